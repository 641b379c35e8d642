"""Recovers the state of a space from its journal: loads the last checkpoint and folds all records after it.

Repairs only what a crash leaves at the end. If synced data is damaged, recovery fails and the space is not started.
"""

import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec

from mew._internal.files import sync
from mew.journal import JournalError, wal
from mew.journal.block_format import FrameCount, skim_block
from mew.journal.layout import JournalFolder, Segment, first_position, segments_in
from mew.journal.reader import MissingFile
from mew.journal.wal import LogDamaged, read_blocks, synced_bytes
from mew.protocol import Record, SnapshotVersionError, SpaceState, fold
from mew.protocol.fold import advance_frame_number
from mew.protocol.records import CHECKPOINT


class JournalDamaged(JournalError):
    """The journal cannot be resumed; the message gives the reason."""


class Recovered(msgspec.Struct, frozen=True):
    """State of a space, recovered from its journal."""

    state: SpaceState
    entries: int
    """Number of entries that were read after the checkpoint."""
    torn: str | None
    """Description of what a crash left at the end; None if there was nothing."""


def recover(folder: JournalFolder) -> Recovered:
    """Return the state of a space; an empty state if it has no journal.

    Raises `JournalDamaged` if records are missing or damaged. The sealer of a killed gateway may still be working on
    its last request. If it removes a file during recovery, a second attempt finds the records elsewhere.
    """
    torn: str | None = None
    missing = MissingFile()
    while True:
        try:
            torn = truncate_torn_tail(folder) or torn
            state, entries = _folded(folder)
            return Recovered(state, entries, torn)
        except FileNotFoundError as error:
            if missing.is_lost(0, error):
                raise JournalDamaged(f"{error.filename}: it is missing") from None


def _folded(folder: JournalFolder) -> tuple[SpaceState, int]:
    state, entries = _from_checkpoint(folder), 0
    for entry in _behind(folder, state.position + 1):
        if entry.position <= state.position:
            continue
        state = _fold_entry(folder, state, entry)
        entries += 1
    return state, entries


def _fold_entry(folder: JournalFolder, state: SpaceState, entry: Record | FrameCount) -> SpaceState:
    first = entry.position if isinstance(entry, Record) else entry.position - entry.count + 1
    if first != state.position + 1:
        if not _can_follow_gap(state, entry):
            missing = f"has no record {state.position + 1}: the next one is {first}"
            raise JournalDamaged(f"{folder.root}: the journal of {folder.space!r} {missing}")
        state = SpaceState(space_id=folder.space)
    if isinstance(entry, Record):
        return fold(state, entry)
    advance_frame_number(state, entry.stream_id, entry.count)
    state.position, state.time = entry.position, entry.time
    return state


def _can_follow_gap(state: SpaceState, entry: Record | FrameCount) -> bool:
    """Whether this is a checkpoint that can follow a gap, left by retention or by records that were not written."""
    return isinstance(entry, Record) and entry.event == CHECKPOINT and entry.position > state.position


def _from_checkpoint(folder: JournalFolder) -> SpaceState:
    """Return the state to start from. It is empty if the fold has changed: all records must be folded again."""
    empty = SpaceState(space_id=folder.space)
    record = wal.load_checkpoint(folder)
    if record is None or _is_cut_off(folder, record.position):
        record = _sealed_checkpoint(folder) or record
    try:
        return empty if record is None else fold(empty, record)
    except SnapshotVersionError:
        return SpaceState(space_id=folder.space)


def _is_cut_off(folder: JournalFolder, position: int) -> bool:
    """Whether retention has removed the records after `position`. Then the saved checkpoint is too old."""
    first = next((segment.first for hour in folder.hours() for segment in segments_in(hour)), None)
    return first is not None and first > position + 1


def _sealed_checkpoint(folder: JournalFolder) -> Record | None:
    if not folder.hours():
        return None
    from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

    return segment_reader.last_checkpoint(folder)


def _behind(folder: JournalFolder, start: int) -> Iterator[Record | FrameCount]:
    """Yield all entries from a position on, sealed or not. Entries that are in both places come twice."""
    # List the logs first: a log that is sealed in the meantime is then found among the segments.
    logs = folder.logs()
    parts: list[Segment | Path] = [
        log for log, following in zip_longest(logs, logs[1:]) if following is None or first_position(following) > start
    ]
    parts += folder.segments(start)
    for part in sorted(parts, key=lambda part: part.first if isinstance(part, Segment) else first_position(part)):
        if isinstance(part, Segment):
            from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

            yield from segment_reader.entries_from(part, start)
        else:
            yield from _log_tail(part, start)


def _log_tail(path: Path, start: int) -> Iterator[Record | FrameCount]:
    try:
        for block in read_blocks(path):
            if block.head.last >= start:
                yield from skim_block(block.data)
    except LogDamaged as damage:
        raise JournalDamaged(f"{damage}; the blocks before it are whole: see mew journal verify") from None


def truncate_torn_tail(folder: JournalFolder) -> str | None:
    """Truncate what a crash left after the last intact block, and return a description of it.

    Only data after the last sync is truncated. Damage in synced data raises `JournalDamaged` and changes nothing. Empty
    files are deleted, because the next file may have the same name.
    """
    torn: str | None = None
    for path in reversed(folder.logs()):
        description, end = _truncate_file(folder, path)
        torn = torn or description
        if end:
            break
        path.unlink()
        sync(folder.log)
    return torn


def _truncate_file(folder: JournalFolder, path: Path) -> tuple[str | None, int]:
    """Return what was wrong at the end of a file (or None), and the end of its last intact block in bytes."""
    end = 0
    try:
        for block in read_blocks(path):
            end = block.offset + len(block.data)
    except LogDamaged as damage:
        if end < synced_bytes(folder, path):
            raise JournalDamaged(f"{damage}, which had been synced: see mew journal verify") from None
        left = path.stat().st_size - end
        _truncate(path, end)
        return f"{damage}; its last {left} bytes were not whole and are cut off", end
    return None, end


def _truncate(path: Path, end: int) -> None:
    with path.open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
