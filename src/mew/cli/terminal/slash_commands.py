"""Slash commands: a table of the commands, and the function of each, which works on a `CommandContext`.

This module must not draw anything: a command returns text or raises an error.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from mew.cli.common.errors import UsageError
from mew.client import Space
from mew.protocol import Envelope


@dataclass
class CommandContext:
    """The state of a terminal, as the commands see it."""

    space: Space
    clear: Callable[[], None]
    leave: Callable[[], None]
    targets: tuple[str, ...] = ()
    """Recipients of chats; all participants if empty."""
    verbose: bool = False
    watched: set[str] = field(default_factory=set)
    """Streams whose frames are all shown."""
    received_chat: Envelope | None = None
    """The last chat of another participant."""
    sent_chat: Envelope | None = None
    """Our own last chat."""


Words = Sequence[str]
Doing = Callable[[CommandContext, Words], Awaitable[str | None]]


class SlashCommand(msgspec.Struct, frozen=True):
    """One command: its name, its usage, its description and its function."""

    name: str
    usage: str
    about: str
    do: Doing
    least: int = 0
    """Minimum number of arguments."""


async def carry_out(desk: CommandContext, line: str) -> str | None:
    """Run the command in a line that begins with a slash. Returns its answer. Raises `UsageError`."""
    name, *words = line.removeprefix("/").split() or ("",)
    order = ORDERS.get(name.lower())
    if order is None:
        near = [f"/{command}" for command in ORDERS if name and command.startswith(name[0].lower())]
        hint = f"did you mean {' or '.join(near)}?" if near else "/help lists the commands"
        raise UsageError(f"there is no command /{name}: {hint}")
    if len(words) < order.least:
        raise UsageError(f"/{order.name} needs more arguments: {order.usage}")
    return await order.do(desk, words)


def completions(desk: CommandContext, line: str) -> list[str]:
    """Return the complete lines that could result from this one."""
    if not line.startswith("/") or "\n" in line:
        return []
    begun, _, last = line.rpartition(" ")
    if not begun:
        return [f"/{name} " for name in ORDERS if name.startswith(line[1:].lower())]
    before = begun.split()
    if before == ["/stream"]:
        words: Sequence[str] = tuple(_STREAM)
    elif before[0] == "/stream" and len(before) == 2:
        words = tuple(desk.space.view.streams)
    else:
        words = tuple(desk.space.view.participants)
    return [f"{begun} {word} " for word in words if word.startswith(last)]


async def _help(_desk: CommandContext, _words: Words) -> str:
    return "\n".join(f"{order.usage}: {order.about}" for order in ORDERS.values())


async def _ack(desk: CommandContext, words: Words) -> None:
    if desk.received_chat is None:
        raise UsageError("no other participant has sent a chat yet")
    payload = {"status": " ".join(words)} if words else {}
    await desk.space.send(
        "chat/acknowledge", payload, to=desk.received_chat.sender, correlation_id=desk.received_chat.id
    )


async def _cancel(desk: CommandContext, words: Words) -> None:
    if desk.sent_chat is None:
        raise UsageError("you have not sent a chat yet")
    payload = {"reason": " ".join(words)} if words else {}
    await desk.space.send("chat/cancel", payload, correlation_id=desk.sent_chat.id)


async def _status(desk: CommandContext, words: Words) -> str:
    if not words:
        where = "connected" if desk.space.connection is not None else "not connected"
        recipients = ", ".join(desk.targets) or "all participants"
        return f"{desk.space.participant_id} in {desk.space.id}, {where}; sending to {recipients}"
    status = await desk.space.status(words[0], words[1:], timeout=10)
    return f"{words[0]}: {msgspec.json.encode(status.payload).decode()}"


async def _pause(desk: CommandContext, words: Words) -> None:
    participant, *rest = words
    try:
        seconds = float(rest[0].removesuffix("s")) if rest else None
        reason = _joined(rest[1:])
    except ValueError:
        seconds, reason = None, _joined(rest)
    await desk.space.pause(participant, seconds=seconds, reason=reason)


async def _resume(desk: CommandContext, words: Words) -> None:
    await desk.space.resume(words[0], reason=_joined(words[1:]))


async def _forget(desk: CommandContext, words: Words) -> None:
    participant, *rest = words
    direction = rest.pop(0) if rest and rest[0] in {"oldest", "newest"} else None
    entries = int(rest.pop(0)) if rest and rest[0].isdecimal() else None
    await desk.space.forget(participant, direction=direction, entries=entries, reason=_joined(rest))


async def _compact(desk: CommandContext, words: Words) -> str:
    done = await desk.space.compact(words[0], reason=_joined(words[1:]))
    return f"{words[0]}: {msgspec.json.encode(done).decode()}"


async def _clear(desk: CommandContext, words: Words) -> None:
    if words:
        await desk.space.clear(words[0], reason=_joined(words[1:]))
    else:
        desk.clear()


async def _restart(desk: CommandContext, words: Words) -> None:
    await desk.space.restart(words[0], reason=_joined(words[1:]))


async def _shutdown(desk: CommandContext, words: Words) -> None:
    await desk.space.shutdown(words[0], reason=_joined(words[1:]))


async def _target(desk: CommandContext, words: Words) -> str:
    names = [word.strip(",") for word in words]
    if names == ["all"]:
        desk.targets = ()
    elif names:
        absent = [name for name in names if name not in desk.space.view.participants]
        if absent:
            raise UsageError(f"not in the space: {', '.join(absent)}")
        desk.targets = tuple(names)
    return f"sending to {', '.join(desk.targets) or 'all participants'}"


async def _verbose(desk: CommandContext, _words: Words) -> str:
    desk.verbose = not desk.verbose
    return "all messages are shown" if desk.verbose else "messages for programs are hidden"


async def _exit(desk: CommandContext, _words: Words) -> None:
    desk.leave()


async def _stream(desk: CommandContext, words: Words) -> str | None:
    verb, *rest = words or ("ls",)
    if verb not in _STREAM:
        raise UsageError(f"/stream {verb} does not exist: use one of {', '.join(_STREAM)}")
    least, do = _STREAM[verb]
    if len(rest) < least:
        raise UsageError(f"/stream {verb} needs more arguments: {ORDERS['stream'].usage}")
    if least and verb != "open" and rest[0] not in desk.space.view.streams:
        raise UsageError(f"there is no stream {rest[0]!r}")
    return await do(desk, rest)


async def _list_streams(desk: CommandContext, _words: Words) -> str:
    lines = []
    for name, stream in desk.space.view.streams.items():
        about = stream.entry.get("description") or stream.entry["stream"].get("description") or ""
        lines.append(
            f"{name}  {stream.status}, {stream.owner}; {', '.join(stream.writers)} may write  {about}".rstrip()
        )
    return "\n".join(lines) or "there are no open streams"


async def _open_stream(desk: CommandContext, words: Words) -> str:
    stream = await desk.space.open_stream(description=" ".join(words))
    return f"opened {stream.stream_id}"


async def _send_frame(desk: CommandContext, words: Words) -> None:
    await desk.space.stream(words[0]).send(" ".join(words[1:]))


async def _grant(desk: CommandContext, words: Words) -> None:
    await desk.space.stream(words[0]).grant(words[1])


async def _revoke(desk: CommandContext, words: Words) -> None:
    await desk.space.stream(words[0]).revoke(words[1])


async def _transfer(desk: CommandContext, words: Words) -> None:
    await desk.space.stream(words[0]).transfer(words[1])


async def _close_stream(desk: CommandContext, words: Words) -> None:
    await desk.space.stream(words[0]).close(reason=_joined(words[1:]))


async def _watch(desk: CommandContext, words: Words) -> str:
    desk.watched ^= {words[0]}
    return f"each frame of {words[0]} is shown" if words[0] in desk.watched else f"frames of {words[0]} are not shown"


def _joined(words: Words) -> str | None:
    return " ".join(words) or None


_STREAM: Final[dict[str, tuple[int, Doing]]] = {
    "ls": (0, _list_streams),
    "open": (1, _open_stream),
    "send": (2, _send_frame),
    "watch": (1, _watch),
    "grant": (2, _grant),
    "revoke": (2, _revoke),
    "transfer": (2, _transfer),
    "close": (1, _close_stream),
}
"""Subcommands of `/stream`, with their minimum number of arguments."""

ORDERS: Final = {
    order.name: order
    for order in (
        SlashCommand("help", "/help", "show this list", _help),
        SlashCommand("ack", "/ack [status]", "acknowledge the last chat", _ack),
        SlashCommand("cancel", "/cancel [reason]", "cancel your last chat", _cancel),
        SlashCommand("status", "/status [who]", "show the status of a participant, or your own", _status),
        SlashCommand("pause", "/pause who [seconds]", "make a participant stop sending", _pause, 1),
        SlashCommand("resume", "/resume who", "end a pause", _resume, 1),
        SlashCommand("forget", "/forget who [oldest|newest] [n]", "make a participant forget entries", _forget, 1),
        SlashCommand("compact", "/compact who", "make a participant compact its memory", _compact, 1),
        SlashCommand("clear", "/clear [who]", "clear a participant's memory, or this screen", _clear),
        SlashCommand("restart", "/restart who", "restart a participant", _restart, 1),
        SlashCommand("shutdown", "/shutdown who", "stop a participant", _shutdown, 1),
        SlashCommand("stream", f"/stream {' | '.join(_STREAM)}", "manage streams by their id", _stream),
        SlashCommand("target", "/target [who… | all]", "choose the recipients of your messages", _target),
        SlashCommand("verbose", "/verbose", "show or hide messages for programs", _verbose),
        SlashCommand("exit", "/exit", "leave the space", _exit),
    )
}
