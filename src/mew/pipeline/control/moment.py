"""The welcome at any position: what a joiner would have received after a record.

Pure: folds what it is given and asks the core. Needs no Arrow, so that a new process answers quickly.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mew.errors import MewError
from mew.pipeline.control.memory import FoldStateVersionError, load
from mew.protocol.fold import fold
from mew.protocol.records import CHECKPOINT, JOINED, Record
from mew.protocol.state import SnapshotVersionError, SpaceState
from mew.protocol.welcome import observer_welcome_at, welcome_at

OBSERVER: Final = "observer"
"""The reader if none is named."""
_JOIN: Final = b'{"transport":"websocket"}'


class NotWelcome(MewError):
    """A participant that could not have joined at that position."""


def state_at(
    space: str,
    state: bytes | None,
    records: Iterable[Record],
    position: int,
    participant: str | None,
    frames: Mapping[str, int],
) -> bytes:
    """The payload of the `system/welcome` after the record at a position.

    Folds the control records after a saved state, or from the beginning. `frames` has the count of frames and data of
    each stream up to there. A present participant gets what a repeated join would have returned. An absent one joins
    with the next record; an unknown one gets the defaults. Without a participant, it is the welcome of an observer.
    """
    folded = _fold(space, state, records, position)
    folded.position = position
    folded.frames = {stream_id: frames.get(stream_id, 0) for stream_id in folded.streams}
    if participant is None:
        return observer_welcome_at(folded, OBSERVER)
    if participant in folded.kicked:
        raise NotWelcome(f"{participant!r} had been removed from {space!r} at {position}, and could not have joined")
    if participant not in folded.present:
        folded = fold(folded, Record(position + 1, folded.time, JOINED, participant, payload=_JOIN))
    return welcome_at(folded, participant)


def _fold(space: str, saved: bytes | None, records: Iterable[Record], position: int) -> SpaceState:
    memory, state = load(space, saved)
    if memory.position > position:
        raise FoldStateVersionError(
            f"the state of {space!r} is that after {memory.position}, which is behind {position}"
        )
    for record in records:
        if record.position > position:
            break
        if record.position > memory.position and (state.position >= 0 or _begins(record)):
            try:
                state = fold(state, record)
            except SnapshotVersionError:
                continue  # Of another version, and nothing has been folded yet: the next may do.
    if state.position < 0:
        raise FoldStateVersionError(
            f"nothing is known of {space!r} at {position}: no start and no checkpoint stands before it"
        )
    return state


def _begins(record: Record) -> bool:
    """Whether a space can be folded from this record on."""
    return record.position == 0 or record.event == CHECKPOINT
