"""Statistics of a journal from footers, a few columns and the log: fast, and without verification."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal.block_format import CorruptData, FrameCount, skim_block
from mew.journal.layout import JournalFolder, Segment
from mew.journal.reader import MissingFile, is_data_record
from mew.journal.segment_reader import read_control, read_footer, read_frames
from mew.journal.wal import Block, LogDamage, scan_log
from mew.protocol import raw_json
from mew.protocol.records import CHECKPOINT, FRAME, START
from mew.protocol.timestamps import rfc3339

StatsProgress: TypeAlias = Callable[[int, int], None]
"""Receives the number of files read so far, and the total."""
_CONTROL: Final = ("time", "event")
_FRAMES: Final = ("time", "event", "stream_id")


class Stored(msgspec.Struct, frozen=True):
    """Number and total size of files of one kind."""

    count: int
    bytes: int


class JournalStats(msgspec.Struct, kw_only=True):
    """Summary of a space's journal."""

    space: str
    journal: Path
    first: int | None = None
    last: int | None = None
    records: int = 0
    since: str | None = None
    """Time of the first record; `until` is that of the last one."""
    until: str | None = None
    events: Counter[str] = msgspec.field(default_factory=Counter)
    streams: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of frames and stream data records by stream."""
    segments: Stored = Stored(0, 0)
    compacted: int = 0
    """Number of segments that come from compaction."""
    logs: Stored = Stored(0, 0)
    last_checkpoint: int | None = None
    epochs: list[str] = []
    """One for each start of a gateway."""


def collect_stats(folder: JournalFolder, progress: StatsProgress = lambda done, total: None) -> JournalStats:
    """Return the current summary. Raises `CorruptData` if files are missing or cannot be read."""
    missing = MissingFile()
    while True:
        try:
            return _look(folder, progress)
        except FileNotFoundError as error:
            if missing.is_lost(0, error):
                text = f"{folder.root}: files of the space {folder.space!r} are missing: see mew journal verify"
                raise CorruptData(text) from None


def _look(folder: JournalFolder, progress: StatsProgress) -> JournalStats:
    info = JournalStats(space=folder.space, journal=folder.root)
    logs = folder.logs()
    sealed = folder.segments()
    info.segments = Stored(len(sealed), sum(_size(segment.control) + _size(segment.frames) for segment in sealed))
    info.logs = Stored(len(logs), sum(map(_size, logs)))
    total = len(sealed) + len(logs)
    for number, segment in enumerate(sealed, 1):
        _add_segment(info, segment)
        progress(number, total)
    for number, path in enumerate(logs, len(sealed) + 1):
        _add_log(info, path)
        progress(number, total)
    return info


def _add_segment(info: JournalStats, segment: Segment) -> None:
    footer = read_footer(segment)
    tables = [read_control(segment, _CONTROL)]
    if footer.frames:
        tables.append(read_frames(segment, _FRAMES))
        info.streams.update(_counts(tables[1]["stream_id"]))
    for table in tables:
        info.events.update(_counts(table["event"]))
    bounds = [pc.min_max(table["time"].cast(pa.int64())).as_py() for table in tables if table.num_rows]
    info.since = rfc3339(min(bound["min"] for bound in bounds)) if info.since is None else info.since
    info.until = rfc3339(max(bound["max"] for bound in bounds))
    info.compacted += footer.compacted
    info.epochs += footer.epochs
    info.last_checkpoint = info.last_checkpoint if footer.checkpoint is None else footer.checkpoint
    _add_range(info, segment.first, segment.last)


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in column.value_counts().to_pylist()}


def _add_range(info: JournalStats, first: int, last: int) -> None:
    info.records += last - first + 1
    info.first = first if info.first is None else info.first
    info.last = last


def _add_log(info: JournalStats, path: Path) -> None:
    """Add the blocks of a log that are not sealed, up to the first damage."""
    for block in scan_log(path):
        if isinstance(block, LogDamage):
            return
        if info.last is None or block.head.first > info.last:
            _add_block(info, block)


def _add_block(info: JournalStats, block: Block) -> None:
    _add_range(info, block.head.first, block.head.last)
    for entry in skim_block(block.data):
        info.since = rfc3339(entry.time) if info.since is None else info.since
        if isinstance(entry, FrameCount):
            info.events[FRAME] += entry.count
            info.streams[entry.stream_id] += entry.count
            continue
        info.events[entry.event] += 1
        if is_data_record(entry):
            info.streams[str(entry.stream_id)] += 1
        elif entry.event == CHECKPOINT:
            info.last_checkpoint = entry.position
        elif entry.event == START:
            info.epochs.append(str(raw_json.decode_json(entry.payload)["epoch"]))
    info.until = rfc3339(block.head.time)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
