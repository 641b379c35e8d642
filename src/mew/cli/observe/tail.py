"""`mew tail`: shows the messages of a space, one line each.

It must not replace a participant's connection, and must exit without an error when its output is closed.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from mew.cli.common.http_client import GatewayClient
from mew.cli.common.io import as_json, require_reader, use_color
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
from mew.cli.observe.tail_render import Paint, count_text, event_line
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
