"""What the stitch remembers from one batch to the next.

Canonical: the same journal up to the same record is the same bytes, however it was cut into units and batches. It grows
with the streams that are open and their writers, and with nothing else: a stream that has ended is forgotten.
"""

from typing import Final

import msgspec

from mew.errors import MewError
from mew.pipeline.kernel.summary import WindowPartial

STITCH_VERSION: Final = 3
"""Raised whenever the same summaries come out otherwise."""


class MergeStateVersionError(MewError):
    """Bytes that are no state of this stitch."""


class WriterState(msgspec.Struct):
    """One writer on one stream, so far."""

    frames: int = 0
    data: int = 0
    bytes: int = 0
    invalid: int = 0
    sequence: int | None = None
    """The last of its own numbers."""


class StreamState(msgspec.Struct):
    """One stream, so far."""

    last_time: int
    last_number: int
    writers: dict[str, WriterState] = {}
    uncertain: bool = False
    """Whether frames may be lost since the last one: records are missing, and no frame has come since."""


class MinuteState(msgspec.Struct):
    """A participant's minute that is not over."""

    participant: str
    start: int
    kinds: dict[str, int] = {}
    refusals: int = 0
    frames: int = 0
    bytes: int = 0


class State(msgspec.Struct):
    """One space, up to a record."""

    version: int
    position: int
    time: int
    complete: bool
    """Whether it began with the space's first record, so that a stream's first frame must be number 1."""
    streams: dict[str, StreamState] = {}
    windows: list[WindowPartial] = []
    """Not over yet."""
    minutes: list[MinuteState] = []
    """The same."""


def encode_state(state: State) -> bytes:
    """As canonical bytes."""
    state.windows.sort(key=lambda each: (each.stream_id, each.seconds, each.start))
    state.minutes.sort(key=lambda each: (each.participant, each.start))
    return msgspec.json.encode(state, order="sorted")


def decode_state(encoded: bytes) -> State:
    """What `encode_state` made, of this version; else `MergeStateVersionError`."""
    try:
        state = msgspec.json.decode(encoded, type=State)
    except msgspec.MsgspecError as problem:
        raise MergeStateVersionError(f"the stitch's state cannot be read: {problem}") from None
    if state.version != STITCH_VERSION:
        raise MergeStateVersionError(
            f"the stitch's state has version {state.version}; this program has {STITCH_VERSION}"
        )
    return state
