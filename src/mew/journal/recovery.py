"""What a space was when its journal ended: the last checkpoint, and everything behind it folded.

Mends what a crash leaves, and nothing else: a journal that is damaged where it was whole is not started on.
"""

import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec

from mew.errors import MewError
from mew.journal import wal
from mew.journal.block_format import FrameCount, skim
from mew.journal.layout import Folder, Segment, log_first, segments_in
from mew.journal.wal import LogDamaged, read_blocks, sync_folder
from mew.protocol import OtherFold, Record, SpaceState, fold
from mew.protocol.fold import count_frames
from mew.protocol.records import CHECKPOINT


class JournalDamaged(MewError):
    """A journal that cannot be gone on with, and why."""


class Recovered(msgspec.Struct, frozen=True):
    """A space as its journal has it."""

    state: SpaceState
    entries: int
    """What had to be read behind the checkpoint."""
    torn: str | None
    """What a crash had left at the end, if anything."""


def recover(folder: Folder) -> Recovered:
    """The state of a space; an empty one where it has no journal. `JournalDamaged` where the record is not whole.

    The sealer of a gateway that was killed may still be at its last request: what it takes away meanwhile is found
    elsewhere, at a second look.
    """
    torn: str | None = None
    gone = ""
    while True:
        try:
            torn = mend(folder) or torn
            state, entries = _folded(folder)
            return Recovered(state, entries, torn)
        except FileNotFoundError as error:
            if str(error) == gone:
                raise JournalDamaged(f"{error.filename or error}: it is missing") from None
            gone = str(error)


def _folded(folder: Folder) -> tuple[SpaceState, int]:
    state, entries = _from_checkpoint(folder), 0
    for entry in _behind(folder, state.position + 1):
        if entry.position <= state.position:
            continue
        state = _taken(folder, state, entry)
        entries += 1
    return state, entries


def _taken(folder: Folder, state: SpaceState, entry: Record | FrameCount) -> SpaceState:
    first = entry.position if isinstance(entry, Record) else entry.position - entry.count + 1
    if first != state.position + 1:
        if not _begins_anew(state, entry):
            missing = f"has no record {state.position + 1}: it goes on with {first}"
            raise JournalDamaged(f"{folder.root}: the journal of {folder.space!r} {missing}")
        state = SpaceState(space_id=folder.space)
    if isinstance(entry, Record):
        return fold(state, entry)
    count_frames(state, entry.stream_id, entry.count)
    state.position, state.time = entry.position, entry.time
    return state


def _begins_anew(state: SpaceState, entry: Record | FrameCount) -> bool:
    """A checkpoint needs nothing before it: behind retention's cut, and behind what went unrecorded."""
    return isinstance(entry, Record) and entry.event == CHECKPOINT and entry.position > state.position


def _from_checkpoint(folder: Folder) -> SpaceState:
    """What to begin with; where the fold is another today, everything there is has to be folded again."""
    empty = SpaceState(space_id=folder.space)
    record = wal.load(folder)
    if record is None or _is_cut_off(folder, record.position):
        record = _sealed_checkpoint(folder) or record
    try:
        return empty if record is None else fold(empty, record)
    except OtherFold:
        return SpaceState(space_id=folder.space)


def _is_cut_off(folder: Folder, position: int) -> bool:
    """Whether retention has removed what follows a record: a copy that could not be renewed is too old then."""
    first = next((each.first for hour in folder.hours() for each in segments_in(hour)), None)
    return first is not None and first > position + 1


def _sealed_checkpoint(folder: Folder) -> Record | None:
    if not folder.hours():
        return None
    from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

    return segment_reader.last_checkpoint(folder)


def _behind(folder: Folder, start: int) -> Iterator[Record | FrameCount]:
    """Everything from a position on, sealed or not; what is both comes twice."""
    # The logs first: one that is sealed meanwhile is then found among the segments.
    logs = folder.logs()
    parts: list[Segment | Path] = [
        log for log, following in zip_longest(logs, logs[1:]) if following is None or log_first(following) > start
    ]
    parts += folder.segments(start)
    for part in sorted(parts, key=lambda each: each.first if isinstance(each, Segment) else log_first(each)):
        if isinstance(part, Segment):
            from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

            yield from segment_reader.tail(part, start)
        else:
            yield from _log_tail(part, start)


def _log_tail(path: Path, start: int) -> Iterator[Record | FrameCount]:
    try:
        for block in read_blocks(path):
            if block.head.last >= start:
                yield from skim(block.data)
    except LogDamaged as damage:
        raise JournalDamaged(f"{damage}; the blocks before it are whole: see mew journal verify") from None


def mend(folder: Folder) -> str | None:
    """Cut off what a crash left of the last blocks, all of them later than the last sync; what was there, in words.

    Whatever was synced and is no longer whole is damage, and left as it is. A file with nothing in it goes: the next
    one may get its name.
    """
    torn: str | None = None
    for path in reversed(folder.logs()):
        found, end = _mended(folder, path)
        torn = torn or found
        if end:
            break
        path.unlink()
        sync_folder(folder.log)
    return torn


def _mended(folder: Folder, path: Path) -> tuple[str | None, int]:
    """What was wrong with the end of a file, and where its last whole block ends now."""
    end = 0
    try:
        for block in read_blocks(path):
            end = block.offset + len(block.data)
    except LogDamaged as damage:
        if end < synced_bytes(folder, path):
            raise JournalDamaged(f"{damage}, which had been synced: see mew journal verify") from None
        left = path.stat().st_size - end
        _cut(path, end)
        return f"{damage}; its last {left} bytes were not whole and are cut off", end
    return None, end


def synced_bytes(folder: Folder, path: Path) -> int:
    """Up to which byte a file of the log is known to be on the disk."""
    try:
        first, size = map(int, folder.synced.read_text("ascii").split())
    except (FileNotFoundError, ValueError):
        return 0
    if log_first(path) < first:
        return path.stat().st_size
    return size if log_first(path) == first else 0


def _cut(path: Path, end: int) -> None:
    with path.open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
