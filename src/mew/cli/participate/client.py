"""`mew client`: sends lines of JSON from stdin to a space and prints what the space sends."""

import asyncio
import base64
import signal
from collections.abc import Container, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App, Parameter

from mew.cli.common.errors import Failed
from mew.cli.common.target import HERE, Participant, Seat, Token, Where, seat, taking_part
from mew.client import Frame
from mew.client.dispatcher import Message
from mew.errors import MewError
from mew.protocol import kinds

if TYPE_CHECKING:
    from mew.cli.participate.client_io import Lines, Said, Writer
    from mew.client import Space, Subscription


app = App(name="client", help="Take part in a space line by line, for scripts.", help_epilogue="")

LAST_WORDS: Final = 5.0
"""Seconds to write what has come, once there is nothing more to wait for."""


@Parameter(name="*")
@dataclass(frozen=True)
class Pipes:
    """Where lines come from, and where they go.

    Parameters
    ----------
    fifo_in
        A FIFO to read lines from instead of standard input; made where there is none.
    fifo_out
        A FIFO to write lines to instead of standard output; made where there is none.
    output_file
        A file to which lines are added instead.
    """

    fifo_in: Path | None = None
    fifo_out: Path | None = None
    output_file: Path | None = None


_STANDARD: Final = Pipes()


_EXAMPLES: Final = """\
Examples:

  echo hello | mew client connect       as the space's default participant
  mew client connect -p bot --fifo-in in --output-file out.jsonl"""


@app.command(help_epilogue=_EXAMPLES)
def connect(
    *,
    where: Where = HERE,
    token: Token = None,
    participant: Participant = None,
    pipes: Pipes = _STANDARD,
    stay: float | None = None,
) -> int:
    """Be a participant: send each line that is read, and write each envelope that comes as a line of JSON.

    A line in is an envelope, as JSON with a kind; a frame, #stream-1#data, of a stream there is; or words, which are
    chat. The first line out is the welcome; what the gateway refuses comes as a system/error. At the end of standard
    input it leaves when everything has been taken; with a FIFO or an output file it stays until it is stopped. A
    connection that breaks is made again.

    Whoever is connected under the same name is sent away: to say one thing, `mew send` is better, to look, `mew tail`.

    Parameters
    ----------
    token
        The token. Everybody on this machine can read arguments: better leave it in MEW_TOKEN, or in the space's files.
    participant
        Which participant to be, where its token does not come along; else MEW_PARTICIPANT_ID.
    stay
        Seconds to stay after the end of the input, to hear answers.
    """
    return taking_part(_connect(seat(where, token, participant), pipes, stay))


async def _connect(at: Seat, pipes: Pipes, stay: float | None) -> int:
    """Speak and listen until the input ends, or SIGTERM comes, or nobody reads any more; 1 where lines may be lost."""
    import mew
    from mew.cli.participate import client_io
    from mew.cli.participate.client_io import Said, note

    taken = client_io.STDIN if pipes.fifo_in is None else client_io.open_fifo(pipes.fifo_in)
    given = client_io.STDOUT
    if pipes.output_file is not None:
        given = client_io.open_file(pipes.output_file)
    elif pipes.fifo_out is not None:
        given = client_io.open_fifo(pipes.fifo_out)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with mew.connect(at.url, space=at.space, token=at.token, participant=at.participant) as space:
        said = Said(space)
        conversation = _Conversation(space, said, client_io.Writer(given))
        note(f"{space.me} is in space {space.id}")
        for_ever = stay is None and given != client_io.STDOUT
        speaking = conversation.speak(client_io.Lines(taken), None if for_ever else stay or 0.0)
        await conversation.hold(speaking, stopped)
    return int(said.in_doubt)


class _Conversation:
    """What is said, and what is heard."""

    def __init__(self, space: "Space", said: "Said", writer: "Writer") -> None:
        """Everything from the welcome on is heard."""
        self._space = space
        self._said = said
        self._writer = writer
        self._messages: Subscription[Message] = space.messages(on_missed=_missed)

    async def hold(self, speaking: Coroutine[Any, Any, None], stopped: asyncio.Event) -> None:
        """Until there is nothing more to say, or to hear, or we are told to stop."""
        hearing = asyncio.create_task(self._hear(), name="mew client: hears")
        saying = asyncio.create_task(speaking, name="mew client: says")
        making_sure = asyncio.create_task(self._said.make_sure(), name="mew client: makes sure")
        stopping = asyncio.create_task(stopped.wait(), name="mew client: until stopped")
        tasks = (hearing, saying, making_sure, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                saying.cancel()
                making_sure.cancel()
                await self._space.close()
                await asyncio.wait({hearing}, timeout=LAST_WORDS)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, OSError) and not isinstance(outcome, BrokenPipeError):
                raise Failed(f"what came cannot be written: {outcome.strerror}")
            if isinstance(outcome, Exception):
                raise outcome

    async def _hear(self) -> None:

        welcome = self._space.latest_welcome
        if welcome is not None:
            await self._writer.write(written(welcome))
        async for message in self._messages:
            if not self._said.answers_us(message):
                await self._writer.write(written(message))

    async def speak(self, lines: "Lines", stay: float | None) -> None:
        """Send each line; then wait until all has been taken, and as long as we are to stay."""
        from mew.cli.participate.client_io import note

        number = 0
        async for line in lines:
            number += 1
            try:
                found = read(line, self._space.view.streams)
            except BadLine as error:
                note(f"line {number}: {error}")
                continue
            if found is not None:
                await self._said.send(number, found.message)
        if stay is None:
            await asyncio.Event().wait()
        else:
            await self._said.all_taken()
            await asyncio.sleep(stay)


def _missed(count: int) -> None:
    from mew.cli.participate.client_io import note

    note(f"{count} messages came faster than they were read, and were lost")


_FRAME: Final = b"#"


class BadLine(MewError):
    """A line that stands for nothing."""


class Read(msgspec.Struct, frozen=True):
    """What a line stands for: the message to be sent."""

    message: bytes


def read(line: bytes, streams: Container[str] = ()) -> Read | None:
    """What a line stands for; None where it is empty, `BadLine` where it is an object and no envelope."""
    line = line.strip()
    if not line:
        return None
    if line.startswith(_FRAME):
        stream_id, sign, _ = line[1:].partition(_FRAME)
        if sign and stream_id.decode(errors="replace") in streams:
            return Read(line)
    value = _object(line)
    if value is None:
        return Read(msgspec.json.encode({"kind": kinds.CHAT, "payload": {"text": _text(line)}}))
    if not isinstance(value.get("kind"), str):
        raise BadLine("no envelope: an object needs a `kind`, such as " + '{"kind":"chat","payload":{"text":"hello"}}')
    return Read(line)


def _object(line: bytes) -> dict[str, Any] | None:
    """What is meant as a JSON object; anything else is words."""
    if not line.startswith(b"{"):
        return None
    try:
        found: dict[str, Any] = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"no envelope: {error}") from None
    return found


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None


def written(message: Message) -> bytes:
    """A message that came, as a line."""
    if not isinstance(message, Frame):
        return message.encode() + b"\n"
    frame = {"stream_id": message.stream_id, **_data(message)}
    return msgspec.json.encode({"frame": frame}) + b"\n"


def _data(frame: Frame[Any]) -> dict[str, str]:
    if frame.text:
        try:
            return {"encoding": "text", "data": frame.data.decode()}
        except UnicodeDecodeError:
            pass
    return {"encoding": "base64", "data": base64.b64encode(frame.data).decode()}
