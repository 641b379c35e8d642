"""`mew tail`: shows the messages of a space, one line each.

It must not replace a participant's connection, and must exit without an error when its output is closed. Text of
participants is shown without characters that could move the cursor.
"""

import sys
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from mew.cli.common.http_client import GatewayClient
from mew.cli.common.io import as_json, require_reader, use_color
from mew.cli.common.render import human_size, printable
from mew.cli.common.target import DIRECTORY, TargetOptions, observer_socket_target, observer_target
from mew.cli.observe.feed import (
    EventFeed,
    FeedEvent,
    FeedFilter,
    FeedNotice,
    JournalHistory,
    frame_json,
    from_journal,
    from_socket,
    has_no_journal,
)
from mew.errors import MewError
from mew.protocol.patterns import KindPattern
from mew.protocol.timestamps import rfc3339

_EVERY: Final = 1.0
"""Seconds during which frames are counted together."""
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class TailOptions:
    """What to show.

    Parameters
    ----------
    kind
        Only messages of this kind or pattern, such as 'mcp/*'; repeat for more.
    sender
        Only messages of this sender; repeat for more.
    stream
        Only messages about this stream; repeat for more.
    frames
        Show each frame and each stream/data on its own line, instead of counting them.
    """

    kind: _Names = ()
    sender: Annotated[_Names, Parameter(name="--from")] = ()
    stream: _Names = ()
    frames: _Flag = False

    def filters(self) -> FeedFilter:
        """Return the options as a filter."""
        patterns = tuple(KindPattern.parse(pattern) for pattern in self.kind)
        return FeedFilter(patterns, frozenset(self.sender), frozenset(self.stream))


_EVERYTHING: Final = TailOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class Begin:
    """Where to start, and when to stop.

    Parameters
    ----------
    number
        The number of latest messages to show first; by default 10.
    since
        Start with all messages since this time: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    follow
        Wait for new messages until interrupted (the default), or stop after the existing ones.
    """

    number: Annotated[int, Parameter(alias="-n")] = 10
    since: str | None = None
    follow: Annotated[bool, Parameter(negative="--no-follow")] = True


_LAST: Final = Begin()


def tail_command(
    *,
    selection: TailOptions = _EVERYTHING,
    begin: Begin = _LAST,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Show the latest messages of a space and follow new ones. Frames are counted.

    Messages of participants and of the gateway and rejections are shown. The command uses an observer token, which it
    creates if necessary. If the gateway restarts, the command waits and continues without a gap.

    Parameters
    ----------
    json
        Print lines of JSON: each envelope as it was sent, a frame as {"frame":…}, a rejection as {"refused":…}.
    """
    filters = selection.filters()
    show = _Shower(filters, frames=selection.frames or bool(selection.kind), json=json)
    target = observer_target(options)
    with target.client() as client:
        past = _past(client, target.space, filters)
        if past is not None:
            show.all(_history(past, begin, show))
    if past is None and (begin.since is not None or not begin.follow):
        _print_note("this space has no journal: earlier messages cannot be shown")
    if begin.follow:
        show.follow(from_socket(observer_socket_target(options)) if past is None else from_journal(target, past))
    return 0


def _past(client: GatewayClient, space: str | None, filters: FeedFilter) -> JournalHistory | None:
    """Return the history, or None if the space has no journal."""
    try:
        return JournalHistory(client, space, control=not filters.wants_data)
    except MewError as error:
        if not has_no_journal(error):
            raise
        return None


def _history(past: JournalHistory, begin: Begin, show: "_Shower") -> Iterable[FeedEvent]:
    if begin.since is None:
        return past.latest(max(begin.number, 0), show.wants, data=show.every_frame)
    from mew.cli.journal.options import parse_time

    return past.since(past.position_at(rfc3339(parse_time("--since", begin.since) or 0)))


class _Shower:
    """Prints the selected events and counts the frames in between."""

    def __init__(self, filters: FeedFilter, *, frames: bool, json: bool) -> None:
        self._filters = filters
        self.every_frame = frames or json
        """Whether each frame is shown."""
        self._json = json
        self._paint = Paint(colours=use_color())
        self._counts: dict[str, tuple[int, int]] = {}
        self._since = time.monotonic()

    def wants(self, event: FeedEvent) -> bool:
        """Return whether the event is shown on its own line."""
        return self._filters.has(event) and (self.every_frame or not event.is_data)

    def all(self, events: Iterable[FeedEvent]) -> None:
        """Print earlier events."""
        for event in events:
            if self._counts and self.wants(event):
                self._tell_counts(0.0)
            self._take(event)
        self._tell_counts(0.0)

    def follow(self, following: EventFeed) -> None:
        """Print new events until the output has no reader."""
        sys.stdout.flush()
        while True:
            thing = following.next(_EVERY)
            if isinstance(thing, FeedNotice):
                _print_note(thing.line)
            elif thing is not None:
                self._take(thing)
            took = time.monotonic() - self._since
            if took >= _EVERY:
                self._tell_counts(took)
                require_reader()
            if thing is None or not following.waiting:
                sys.stdout.flush()

    def _take(self, event: FeedEvent) -> None:
        if not self._filters.has(event):
            return
        if event.is_data and not self.every_frame:
            frames, total = self._counts.get(event.stream_id or "", (0, 0))
            self._counts[event.stream_id or ""] = frames + 1, total + event.size
        elif self._json:
            print(_json(event))
        else:
            print(event_line(event, self._paint))

    def _tell_counts(self, seconds: float) -> None:
        for stream_id, (frames, total) in self._counts.items():
            print(count_text(stream_id, frames, total, seconds, self._paint))
        self._counts, self._since = {}, time.monotonic()


def _json(event: FeedEvent) -> str:
    if event.refused is not None:
        refusal = {"participant": event.sender, "kind": event.kind, "stream_id": event.stream_id}
        return as_json({"refused": {"error": event.refused, **refusal, "ts": event.time}})
    if event.envelope is not None:
        return event.envelope.decode()
    if event.withheld:
        return as_json({"frame": {"stream_id": event.stream_id, "withheld": True}})
    return as_json(frame_json(event))


def _print_note(text: str) -> None:
    print(f"mew: {text}", file=sys.stderr, flush=True)


MAX_SHOWN: Final = 160
"""Maximum characters shown of a message."""
RESET, FAINT, BOLD, RED = "\x1b[0m", "\x1b[2m", "\x1b[1m", "\x1b[31m"
_PALETTE: Final = ("\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[35m", "\x1b[36m", "\x1b[92m", "\x1b[94m", "\x1b[95m")
"""A participant always has the same color."""
_GATEWAY: Final = "system:gateway"
_CLOCK: Final = slice(11, 23)


class Paint:
    """Colors text, if enabled."""

    def __init__(self, *, colours: bool) -> None:
        """Enable or disable colors."""
        self._on = colours

    def __call__(self, text: str, colour: str) -> str:
        """Return text in a color."""
        return f"{colour}{text}{RESET}" if self._on and text else text

    def name(self, text: str, width: int = 0) -> str:
        """Return the name of a participant in its color."""
        name = printable("gateway" if text == _GATEWAY else text).ljust(width)
        return self(name, FAINT if text == _GATEWAY else _PALETTE[zlib.crc32(text.encode()) % len(_PALETTE)])


def event_line(event: FeedEvent, paint: Paint) -> str:
    """Return the line for an event."""
    clock, sender = paint(event.time[_CLOCK], FAINT), paint.name(event.sender or "?", 12)
    kind = printable(event.kind or "frame")
    if event.refused is not None:
        about = f" on {printable(event.stream_id)}" if event.stream_id else ""
        return f"{clock} {sender} {paint(f'{kind} refused: {printable(event.refused)}{about}', RED)}"
    if event.envelope is None:
        content = "for other recipients" if event.withheld else excerpt(event.frame or b"")
        return f"{clock} {sender} {paint('frame', FAINT)} {printable(event.stream_id or '')} {content}".rstrip()
    envelope = msgspec.json.decode(event.envelope)
    to = envelope.get("to") or []
    recipients = (
        f" → {', '.join(paint.name(str(recipient)) for recipient in to)}" if to and event.sender != _GATEWAY else ""
    )
    payload = envelope.get("payload")
    words = content_text(kind, payload if isinstance(payload, dict) else {}, event.stream_id)
    colour = RED if kind in {"stream/error", "system/error", "mcp/reject"} else BOLD if kind == "chat" else ""
    return f"{clock} {sender} {paint(kind, FAINT)}{recipients} {paint(words, colour) if colour else words}".rstrip()


def count_text(stream_id: str, frames: int, total: int, seconds: float, paint: Paint) -> str:
    """Return a line about frames that were not shown individually."""
    rate = f", {frames / seconds:,.0f}/s" if seconds > 0 else ""
    word = "frame" if frames == 1 else "frames"
    return paint(f"{'':12} {'':12} {printable(stream_id)}: {frames:,} {word}, {human_size(total)}{rate}", FAINT)


def excerpt(data: bytes) -> str:
    """Return the beginning of a frame, as text if it is UTF-8, else as hexadecimal."""
    cut = data[:MAX_SHOWN]
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        # The cut may have split a character.
        text = cut[: error.start].decode() if error.start > MAX_SHOWN - 4 else cut.hex(" ", 4)
    return printable(text) + (f"… ({human_size(len(data))})" if len(data) > MAX_SHOWN else "")


def content_text(kind: str, payload: dict[str, Any], stream_id: str | None) -> str:
    """Return the content of an envelope: its main field if the kind is known, else its payload as JSON."""
    words = _WORDS.get(kind)
    try:
        text = None if words is None else words(payload)
    except (KeyError, TypeError, AttributeError):
        # The payload of a participant may not have the usual fields.
        text = None
    if text is None:
        stream = f"{stream_id} " if stream_id else ""
        left = {name: value for name, value in payload.items() if name not in {"stream", "stream_id"}}
        text = stream + (msgspec.json.encode(left).decode() if left else "")
    line_text = printable(text)
    return line_text if len(line_text) <= MAX_SHOWN else f"{line_text[:MAX_SHOWN]}…"


def _presence(payload: dict[str, Any]) -> str:
    words = {"join": "joined", "leave": "left", "invited": "was invited", "capabilities": "has new capabilities"}
    why = f" ({payload['reason']})" if payload.get("reason") else ""
    return f"{payload['participant']['id']} {words.get(payload['event'], payload['event'])}{why}"


def _request(payload: dict[str, Any]) -> str:
    params = payload.get("params") or {}
    name = params.get("name") or params.get("uri") or ""
    arguments = params.get("arguments")
    return f"{payload['method']} {name}".rstrip() + (f" {msgspec.json.encode(arguments).decode()}" if arguments else "")


def _opened(payload: dict[str, Any]) -> str:
    about = payload.get("description") or payload.get("intent") or ""
    stream = payload["stream"]
    owner = payload.get("owner") or stream.get("owner")
    return f"{stream['stream_id']} of {owner}: {about}" if about else f"{stream['stream_id']} of {owner}"


def _writers(payload: dict[str, Any]) -> str:
    return f"{payload['stream_id']} may be written by {', '.join(payload['authorized_writers'])}"


def _transferred(payload: dict[str, Any]) -> str:
    return f"{payload['stream_id']} went from {payload['previous_owner']} to {payload['new_owner']}"


def _granted(payload: dict[str, Any]) -> str:
    return f"{payload['recipient']}: {msgspec.json.encode(payload.get('capabilities')).decode()}"


_WORDS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "chat": lambda payload: str(payload["text"]),
    "system/presence": _presence,
    "mcp/request": _request,
    "mcp/proposal": _request,
    "reasoning/thought": lambda payload: str(payload.get("message") or payload["text"]),
    "capability/grant": _granted,
    "stream/open": _opened,
    "stream/ready": _opened,
    "stream/write-granted": _writers,
    "stream/write-revoked": _writers,
    "stream/ownership-transferred": _transferred,
}
