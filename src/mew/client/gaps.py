"""What a reader did not get: of one stream, and of a whole space while there was no connection.

Pure values. Counted by what the gateway says, never guessed.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from mew.view import SpaceView, StreamView

Cause = Literal["queue", "gateway", "connection"]
"""Who let them go: our own queue, because they were not read; the gateway's; or the time without a connection."""


class StreamGap(msgspec.Struct, frozen=True):
    """Frames of one stream that are missing at this place."""

    stream_id: str
    """Which stream."""
    frames: int
    """How many are missing."""
    cause: Cause
    """Who dropped them: our `queue`, which was full; the `gateway`, which says so; or a `connection` that broke."""


class Gap(msgspec.Struct, frozen=True):
    """What happened between two connections, as far as the gateway counts it."""

    position_before: int
    """The journal's, at the last welcome before."""
    position_after: int
    """The journal's, at the new welcome."""
    streams: Mapping[str, int]
    """Of each stream there is, the frames that went by meanwhile; those of streams that are new to us included."""
    ended: tuple[str, ...] = ()
    """Streams that are gone; what went by on them is not known."""


def gap_between(before: SpaceView, after: SpaceView) -> Gap:
    """What was missed, from the last thing known to the new welcome."""
    kept = {name for name, stream in after.streams.items() if is_same(before.streams.get(name), stream)}
    missed = {
        name: max(0, stream.frames - (before.streams[name].frames if name in kept else 0))
        for name, stream in after.streams.items()
        if receives(after, stream)
    }
    return Gap(
        position_before=before.position,
        position_after=after.position,
        streams=missed,
        ended=tuple(name for name in before.streams if name not in kept),
    )


def is_same(before: StreamView | None, after: StreamView) -> bool:
    """Whether it is the same stream; without a journal, a restarted gateway gives ids a second time."""
    return before is not None and before.entry["created"] == after.entry["created"]


def receives(view: SpaceView, stream: StreamView) -> bool:
    """Whether the data of a stream reach us: all of them, unless it has targets (protocol §4)."""
    targets = stream.entry.get("target")
    return not isinstance(targets, list) or (view.you.id in targets and not is_observer(view))


def is_observer(view: SpaceView) -> bool:
    """Whether we only look: every participant has some capability, an observer none (protocol §2)."""
    return not view.you.capabilities
