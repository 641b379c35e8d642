"""`mew client`: sends lines of JSON from stdin to a space and prints what the space sends."""

import asyncio
import signal
from collections.abc import Container, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App, Parameter

from mew.cli.common.errors import CommandFailed
from mew.cli.common.target import DIRECTORY, GatewayTarget, Participant, TargetOptions, Token, participant_target
from mew.client import Frame
from mew.client.dispatcher import Message
from mew.errors import MewError
from mew.protocol import kinds
from mew.protocol.frames import frame_body

if TYPE_CHECKING:
    from mew.cli.participate.client_io import LineSender, PipeLines, PipeWriter
    from mew.client import Space, Subscription


app = App(name="client", help="Send and receive messages as lines of text, for scripts.", help_epilogue="")

DRAIN_SECONDS: Final = 5.0
"""Seconds to write the remaining received messages before the command ends."""


@Parameter(name="*")
@dataclass(frozen=True)
class Pipes:
    """Where lines are read from and written to.

    Parameters
    ----------
    fifo_in
        A FIFO to read lines from, instead of standard input. Created if it does not exist.
    fifo_out
        A FIFO to write lines to, instead of standard output. Created if it does not exist.
    output_file
        A file to append lines to, instead of standard output.
    """

    fifo_in: Path | None = None
    fifo_out: Path | None = None
    output_file: Path | None = None


_STANDARD: Final = Pipes()


_EXAMPLES: Final = """\
Examples:

  echo hello | mew client connect       as the space's default participant
  mew client connect -p bot --fifo-in in --output-file out.jsonl"""


@app.command(name="connect", help_epilogue=_EXAMPLES)
def connect_client_command(
    *,
    options: TargetOptions = DIRECTORY,
    token: Token = None,
    participant: Participant = None,
    pipes: Pipes = _STANDARD,
    stay: float | None = None,
) -> int:
    """Join a space: send each line of the input, and print each received message as a line of JSON.

    An input line is an envelope, as JSON with a `kind`; a frame of an open stream, #stream-1#data; or text, which is
    sent as a chat. The first output line is the welcome. If the gateway rejects a line, it sends a system/error.
    At the end of standard input, the command leaves when the gateway has accepted every line; with a FIFO or an output
    file, it stays until it is stopped. A broken connection is reconnected.

    The command replaces another connection of the same participant. To send one message, use `mew send`; to read,
    use `mew tail`.

    Parameters
    ----------
    token
        The token. Prefer MEW_TOKEN or a token file: all users of this machine can read the arguments of a process.
    participant
        The participant, if no token is given; by default MEW_PARTICIPANT_ID.
    stay
        Seconds to wait for answers after the end of the input; by default 0.
    """
    return asyncio.run(_connect(participant_target(options, participant, token=token), pipes, stay))


async def _connect(at: GatewayTarget, pipes: Pipes, stay: float | None) -> int:
    """Send and receive until the input ends, the output closes or SIGTERM arrives. Returns 1 if lines may be lost."""
    import mew
    from mew.cli.participate import client_io
    from mew.cli.participate.client_io import LineSender, print_note

    source = client_io.STDIN_DESCRIPTOR if pipes.fifo_in is None else client_io.open_fifo(pipes.fifo_in)
    sink = client_io.STDOUT_DESCRIPTOR
    if pipes.output_file is not None:
        sink = client_io.open_file(pipes.output_file)
    elif pipes.fifo_out is not None:
        sink = client_io.open_fifo(pipes.fifo_out)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with mew.connect(at.url, space=at.space, token=at.token, participant=at.participant) as space:
        sender = LineSender(space)
        conversation = _Conversation(space, sender, client_io.PipeWriter(sink))
        print_note(f"{space.participant_id} is in space {space.id}")
        for_ever = stay is None and sink != client_io.STDOUT_DESCRIPTOR
        speaking = conversation.send_lines(client_io.PipeLines(source), None if for_ever else stay or 0.0)
        await conversation.run(speaking, stopped)
    return int(sender.uncertain)


class _Conversation:
    """Sends the lines of the input and writes the received messages."""

    def __init__(self, space: "Space", sender: "LineSender", writer: "PipeWriter") -> None:
        """Subscribe to all messages, starting with the welcome."""
        self._space = space
        self._sender = sender
        self._writer = writer
        self._messages: Subscription[Message] = space.messages(on_overflow=_missed)

    async def run(self, speaking: Coroutine[Any, Any, None], stopped: asyncio.Event) -> None:
        """Run until sending or receiving ends, or until the command is stopped."""
        hearing = asyncio.create_task(self._receive(), name="mew client: receive")
        saying = asyncio.create_task(speaking, name="mew client: send")
        making_sure = asyncio.create_task(self._sender.confirm_delivery(), name="mew client: check")
        stopping = asyncio.create_task(stopped.wait(), name="mew client: wait for stop")
        tasks = (hearing, saying, making_sure, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                saying.cancel()
                making_sure.cancel()
                await self._space.close()
                await asyncio.wait({hearing}, timeout=DRAIN_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, OSError) and not isinstance(outcome, BrokenPipeError):
                raise CommandFailed(f"cannot write the received messages: {outcome.strerror}")
            if isinstance(outcome, Exception):
                raise outcome

    async def _receive(self) -> None:

        welcome = self._space.last_welcome
        if welcome is not None:
            await self._writer.write(encode_message(welcome))
        async for message in self._messages:
            await self._writer.write(encode_message(message))

    async def send_lines(self, lines: "PipeLines", stay: float | None) -> None:
        """Send each line, then wait until all are accepted, and for `stay` seconds more; None waits forever."""
        from mew.cli.participate.client_io import print_note

        number = 0
        async for line in lines:
            number += 1
            try:
                line_message = parse_line(line, self._space.view.streams)
            except BadLine as error:
                print_note(f"line {number}: {error}")
                continue
            if line_message is not None:
                await self._sender.send(number, line_message.message)
        if stay is None:
            await asyncio.Event().wait()
        else:
            await self._sender.wait_until_accepted()
            await asyncio.sleep(stay)


def _missed(count: int) -> None:
    from mew.cli.participate.client_io import print_note

    print_note(f"{count} received messages were lost: they arrived faster than they were read")


_FRAME: Final = b"#"


class BadLine(MewError):
    """A line that is not a valid message."""


class Read(msgspec.Struct, frozen=True):
    """The message to send for a line."""

    message: bytes


def parse_line(line: bytes, streams: Container[str] = ()) -> Read | None:
    """Return the message for a line, or None for an empty line. Raises `BadLine` if an object is not an envelope."""
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
        raise BadLine('not an envelope: the object has no `kind`, as in {"kind":"chat","payload":{"text":"hello"}}')
    return Read(line)


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if the line is plain text."""
    if not line.startswith(b"{"):
        return None
    try:
        fields: dict[str, Any] = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"not an envelope: {error}") from None
    return fields


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadLine("the line is not UTF-8") from None


def encode_message(message: Message) -> bytes:
    """Return a received message as one line."""
    if not isinstance(message, Frame):
        return message.encode() + b"\n"
    frame = frame_body(message.stream_id, message.data, text=message.text)
    return msgspec.json.encode({"frame": frame}) + b"\n"
