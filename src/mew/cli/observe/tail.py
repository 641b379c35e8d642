"""`mew tail`: follow what is said in a space, one line each.

Must not take over anybody's socket, and must end quietly when whoever reads has had enough.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from mew.cli.common.http_client import Door
from mew.cli.common.io import as_json, in_colours, require_reader
from mew.cli.common.target import DIRECTORY, Reach, look, look_by_socket
from mew.cli.observe.feed import (
    Filters,
    Following,
    Past,
    Seen,
    Told,
    frame_json,
    from_journal,
    from_socket,
    has_no_journal,
)
from mew.cli.observe.tail_render import Paint, counted, line
from mew.errors import MewError
from mew.protocol.patterns import KindPattern
from mew.protocol.timestamps import rfc3339

_EVERY: Final = 1.0
"""Seconds for which frames are counted together."""
_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Wanted:
    """What to show.

    Parameters
    ----------
    kind
        Only of this kind, or pattern such as 'mcp/*'; give it again for more.
    sender
        Only what this participant sent; give it again for more.
    stream
        Only what is about this stream; give it again for more.
    frames
        Each frame and each stream/data on a line of its own, instead of counting them.
    """

    kind: _Names = ()
    sender: Annotated[_Names, Parameter(name="--from")] = ()
    stream: _Names = ()
    frames: _Flag = False

    def filters(self) -> Filters:
        """The same for what is seen."""
        patterns = tuple(KindPattern.parse(each) for each in self.kind)
        return Filters(patterns, frozenset(self.sender), frozenset(self.stream))


_EVERYTHING: Final = Wanted()


@Parameter(name="*")
@dataclass(frozen=True)
class Begin:
    """Where to begin, and when to end.

    Parameters
    ----------
    number
        How many of the last lines to begin with.
    since
        Begin with everything since this time: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    follow
        Go on until interrupted, or end with what has happened so far.
    """

    number: Annotated[int, Parameter(alias="-n")] = 10
    since: str | None = None
    follow: Annotated[bool, Parameter(negative="--no-follow")] = True


_LAST: Final = Begin()


def tail(
    *,
    wanted: Wanted = _EVERYTHING,
    begin: Begin = _LAST,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Follow a space: what everybody says, what the gateway says, what it refuses; frames are counted.

    It looks with an observer's token, which it makes where the space has none, so nobody notices. When the gateway is
    restarted it waits, and goes on without a gap.

    Parameters
    ----------
    json
        Lines of JSON: each envelope as it was sent; a frame and a refusal as {"frame":…} and {"refused":…}.
    """
    filters = wanted.filters()
    show = _Shower(filters, frames=wanted.frames or bool(wanted.kind), json=json)
    way = look(reach)
    with way.door() as door:
        past = _past(door, way.space, filters)
        if past is not None:
            show.all(_history(past, begin, show))
    if past is None and (begin.since is not None or not begin.follow):
        _say("this space keeps no journal: there is no past to show")
    if begin.follow:
        show.follow(from_socket(look_by_socket(reach)) if past is None else from_journal(way, past))
    return 0


def _past(door: Door, space: str | None, filters: Filters) -> Past | None:
    """What has happened; None where a space keeps no journal."""
    try:
        return Past(door, space, control=not filters.wants_data)
    except MewError as error:
        if not has_no_journal(error):
            raise
        return None


def _history(past: Past, begin: Begin, show: "_Shower") -> Iterable[Seen]:
    if begin.since is None:
        return past.latest(max(begin.number, 0), show.wants, data=show.each)
    from mew.cli.journal.options import instant

    return past.since(past.position_at(rfc3339(instant("--since", begin.since) or 0)))


class _Shower:
    """Prints what is wanted, and counts the frames between."""

    def __init__(self, filters: Filters, *, frames: bool, json: bool) -> None:
        self._filters = filters
        self.each = frames or json
        """Whether a stream's data are shown one by one."""
        self._json = json
        self._paint = Paint(colours=in_colours())
        self._counts: dict[str, tuple[int, int]] = {}
        self._since = time.monotonic()

    def wants(self, seen: Seen) -> bool:
        """Whether it is a line of its own."""
        return self._filters.has(seen) and (self.each or not seen.is_data)

    def all(self, seen: Iterable[Seen]) -> None:
        """What has happened."""
        for each in seen:
            if self._counts and self.wants(each):
                self._tell_counts(0.0)
            self._take(each)
        self._tell_counts(0.0)

    def follow(self, following: Following) -> None:
        """What happens, until whoever reads has had enough."""
        sys.stdout.flush()
        while True:
            thing = following.next(_EVERY)
            if isinstance(thing, Told):
                _say(thing.line)
            elif thing is not None:
                self._take(thing)
            took = time.monotonic() - self._since
            if took >= _EVERY:
                self._tell_counts(took)
                require_reader()
            if thing is None or not following.waiting:
                sys.stdout.flush()

    def _take(self, seen: Seen) -> None:
        if not self._filters.has(seen):
            return
        if seen.is_data and not self.each:
            frames, total = self._counts.get(seen.stream_id or "", (0, 0))
            self._counts[seen.stream_id or ""] = frames + 1, total + seen.size
        elif self._json:
            print(_json(seen))
        else:
            print(line(seen, self._paint))

    def _tell_counts(self, seconds: float) -> None:
        for stream_id, (frames, total) in self._counts.items():
            print(counted(stream_id, frames, total, seconds, self._paint))
        self._counts, self._since = {}, time.monotonic()


def _json(seen: Seen) -> str:
    if seen.refused is not None:
        told = {"participant": seen.sender, "kind": seen.kind, "stream_id": seen.stream_id}
        return as_json({"refused": {"error": seen.refused, **told, "ts": seen.time}})
    if seen.envelope is not None:
        return seen.envelope.decode()
    if seen.withheld:
        return as_json({"frame": {"stream_id": seen.stream_id, "withheld": True}})
    return as_json(frame_json(seen))


def _say(told: str) -> None:
    print(f"mew: {told}", file=sys.stderr, flush=True)
