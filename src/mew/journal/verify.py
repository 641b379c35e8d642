"""Verifies a journal: checksums, positions without a gap, times that never decrease.

It reads everything and changes nothing. Each damage is reported with its file and place. In a Parquet file, the place
is the row group, if the checksums of its pages locate the damage. An incomplete block at the end of the last log is the
result of a crash, not damage.
"""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.journal.block_format import BLOCK_EVENTS, FrameCount, skim_block
from mew.journal.layout import JournalFolder, Segment, first_position
from mew.journal.reader import MissingFile
from mew.journal.segment_reader import read_control, read_frames, verify_segment
from mew.journal.segments import SegmentDamaged
from mew.journal.wal import Block, LogDamage, is_torn_write, scan_log, synced_bytes
from mew.protocol.records import CHECKPOINT

Sort: TypeAlias = Literal["damage", "torn", "unrecorded"]
VerifyProgress: TypeAlias = Callable[[int, int], None]
"""Receives the number of bytes read so far, and the total."""
_EVENTS: Final = pa.array(BLOCK_EVENTS)
_COLUMNS: Final = ("position", "time", "event")


class JournalProblem(msgspec.Struct, frozen=True):
    """A problem and its location."""

    path: Path
    place: str
    """Byte, row or row group in the file; empty if the problem concerns the whole file or cannot be located."""
    what: str
    sort: Sort = "damage"
    """`torn`: left at the end by a crash. `unrecorded`: the gateway could not write records, and reported it."""

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.path), self.place, self.what) if part)


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a verification."""

    space: str
    first: int | None
    last: int | None
    records: int
    """Number of intact records that can be read."""
    unreachable: int
    """Number of intact records that follow damage in their file."""
    segments: int
    logs: int
    blocks: int
    bytes: int
    problems: tuple[JournalProblem, ...]

    @property
    def damaged(self) -> bool:
        """Whether data that was written is missing or has changed."""
        return any(problem.sort == "damage" for problem in self.problems)


def verify_journal(root: Path, space: str, progress: VerifyProgress = lambda done, total: None) -> VerificationReport:
    """Read the whole journal of a space and report all problems."""
    return _Verification(JournalFolder(root, space), progress).run()


class _Verification:
    """Progress and results of one verification."""

    def __init__(self, folder: JournalFolder, progress: VerifyProgress) -> None:
        self.folder = folder
        self.progress = progress
        self.problems: list[JournalProblem] = []
        self.first: int | None = None
        self.next = 0
        """The next expected position."""
        self.time = 0
        """Time of the preceding record."""
        self.checkpoints = 0
        self.known_hole = False
        """Whether the next gap has already been reported."""
        self.records = self.unreachable = self.segments = self.logs = self.blocks = self.bytes = 0

    def run(self) -> VerificationReport:
        missing = MissingFile()
        while True:
            # List the logs first: a log that is sealed in the meantime is then found among the segments.
            logs = self.folder.logs()
            sealed = self.folder.segments(self.next)
            total = self.bytes + _size(*logs, *(path for segment in sealed for path in _files(segment)))
            try:
                self._segments(sealed, total)
                self._logs(logs, total)
                break
            except FileNotFoundError as problem:
                # Sealed or compacted in the meantime: the records are in another file now.
                if missing.is_lost(self.next, problem):
                    self._add(Path(problem.filename), "it is missing")
                    break
        self._check_beginning()
        self._check_end()
        return self._report()

    def _report(self) -> VerificationReport:
        return VerificationReport(
            space=self.folder.space,
            first=self.first,
            last=self.next - 1 if self.next else None,
            records=self.records,
            unreachable=self.unreachable,
            segments=self.segments,
            logs=self.logs,
            blocks=self.blocks,
            bytes=self.bytes,
            problems=tuple(self.problems),
        )

    def _add(self, path: Path, what: str, place: str = "", sort: Sort = "damage") -> None:
        self.problems.append(JournalProblem(path, place, what, sort))

    def _count(self, size: int, total: int) -> None:
        self.bytes += size
        self.progress(self.bytes, max(total, self.bytes))

    def _take(self, path: Path, first: int, last: int, *, checkpoint: bool) -> None:
        """Continue after a range of positions. Report missing records before it, unless the reason is known."""
        if self.first is None:
            self.first = first
        elif first > self.next and not self.known_hole:
            missing = f"records {self.next} to {first - 1}, which come before it, are missing"
            if checkpoint:
                missing += "; a checkpoint replaces them, because the gateway could not write them"
            self._add(path, missing, sort="unrecorded" if checkpoint else "damage")
        self.known_hole = False
        self.next = last + 1

    # ---------------------------------------------------------------------------------------------- segments

    def _segments(self, sealed: list[Segment], total: int) -> None:
        for before, segment in zip([None, *sealed], sealed, strict=False):
            size = _size(*_files(segment))
            if before is not None and segment.first <= before.last:
                what = f"its positions {segment.first} to {before.last} are in {before.control.name} too"
                self._add(segment.control, what)
            self._segment(segment)
            self.segments += 1
            self._count(size, total)

    def _segment(self, segment: Segment) -> None:
        try:
            verify_segment(segment)
            control, frames = (read(segment, _COLUMNS) for read in (read_control, read_frames))
        except SegmentDamaged as damage:
            self._add(damage.path, damage.problem, damaged_row_group(damage.path))
            self._take(segment.control, segment.first, segment.last, checkpoint=False)
            return
        events = control["event"]
        self.checkpoints += pc.sum(pc.equal(events, CHECKPOINT)).as_py() or 0
        begins = bool(len(events)) and control["position"][0].as_py() == segment.first
        begin = max(segment.first, self.next)
        self.records += segment.last - begin + 1
        checkpoint = begins and events[0].as_py() == CHECKPOINT
        self._take(segment.control, segment.first, segment.last, checkpoint=checkpoint)
        self._check_rows(begin, (segment.control, control), (segment.frames, frames))

    def _check_rows(self, begin: int, *tables: tuple[Path, pa.Table]) -> None:
        """Check that all events are known, and that from `begin` on the times never decrease across both files."""
        for path, table in tables:
            unknown = pc.index(pc.is_in(table["event"], _EVENTS), False).as_py()
            if unknown >= 0:
                self._add(path, f"unknown event {table['event'][unknown].as_py()!r}", f"row {unknown}")
        positions = np.concatenate([table["position"].to_numpy() for _, table in tables])
        times = np.concatenate([table["time"].cast(pa.int64()).to_numpy() for _, table in tables])
        order = np.argsort(positions)[np.sum(positions < begin) :]
        in_order = np.concatenate([[self.time], times[order]])
        for back in np.flatnonzero(np.diff(in_order) < 0)[:1]:
            path, row = _row_of(positions[order[back]], tables)
            self._add(path, "its time is before that of the record before it", f"row {row}")
        self.time = int(in_order[-1])

    # -------------------------------------------------------------------------------------------------- logs

    def _logs(self, logs: list[Path], total: int) -> None:
        for path, following in zip_longest(logs, logs[1:]):
            size = _size(path)
            self._log(path, following)
            self.logs += 1
            self._count(size, total)

    def _log(self, path: Path, following: Path | None) -> None:
        damages: list[tuple[LogDamage, list[Block]]] = []
        expected, synced = first_position(path), synced_bytes(self.folder, path)
        for item in scan_log(path):
            if isinstance(item, LogDamage):
                damages.append((item, []))
            elif damages:
                damages[-1][1].append(msgspec.structs.replace(item, data=b""))
            else:
                if item.head.first != expected:
                    what = f"its first position is {item.head.first}, and {expected} should come here"
                    self._add(path, what, f"byte {item.offset}")
                expected = item.head.last + 1
                self._block(path, item)
        for damage, behind in damages:
            if following is None and is_torn_write(damage, synced):
                what = f"the end of a block that was not written to its end: {damage.problem}"
                self._add(path, what, f"byte {damage.offset}", "torn")
            else:
                self._damage(damage, behind, following)
        if not damages and (size := path.stat().st_size) < synced:
            self._add(path, f"{synced} bytes of it had been synced, and the rest is gone", f"byte {size}")

    def _block(self, path: Path, block: Block) -> None:
        self.blocks += 1
        if block.head.last < self.next:
            return  # It is sealed, and was not deleted yet.
        begin, checkpoint = max(block.head.first, self.next), False
        if self.first is not None and block.head.first < self.next:
            what = f"its positions {block.head.first} to {self.next - 1} are sealed too"
            self._add(path, what, f"byte {block.offset}")
        try:
            for entry in skim_block(block.data):
                if entry.position < begin:
                    continue
                if entry.time < self.time:
                    what = f"the time of record {entry.position} is before that of the record before it"
                    self._add(path, what, f"byte {block.offset}")
                self.time = entry.time
                if not isinstance(entry, FrameCount) and entry.event == CHECKPOINT:
                    self.checkpoints += 1
                    checkpoint = checkpoint or entry.position == begin
        except (IndexError, UnicodeDecodeError) as problem:
            self._add(path, f"its checksum is right, and it cannot be understood: {problem}", f"byte {block.offset}")
        self.records += block.head.last - begin + 1
        self._take(path, begin, block.head.last, checkpoint=checkpoint)

    def _damage(self, damage: LogDamage, behind: list[Block], following: Path | None) -> None:
        if self.first is None:
            self.first = first_position(damage.path)
        whole = sum(block.head.records for block in behind)
        self.unreachable += whole
        following_firsts = [block.head.first for block in behind[:1]] or (
            [] if following is None else [first_position(following)]
        )
        lost = [f"records {self.next} to {first - 1} are lost" for first in following_firsts if first > self.next]
        more = [f"{whole} records after it are intact but cannot be read"] if whole else []
        self._add(damage.path, "; ".join([damage.problem, *lost, *more]), f"byte {damage.offset}")
        self.next = max(self.next, *(block.head.last + 1 for block in behind), 0)
        self.known_hole = True

    # -------------------------------------------------------------------------------------------------- ends

    def _check_beginning(self) -> None:
        """Check that a checkpoint exists if the first records are missing, as after retention."""
        if self.first and not self.checkpoints:
            what = f"records 0 to {self.first - 1} are missing, and no checkpoint replaces them"
            self._add(self.folder.sealed, what)

    def _check_end(self) -> None:
        """Check that the log file that was synced last exists or is sealed."""
        try:
            first, size = map(int, self.folder.synced.read_text("ascii").split())
        except (FileNotFoundError, ValueError):
            return
        log = self.folder.log_file(first)
        if first >= self.next and size and not log.exists() and not self.folder.segments(first):
            self._add(log, f"it is missing, and {size} bytes of it had been synced")


def _row_of(position: Any, tables: tuple[tuple[Path, pa.Table], ...]) -> tuple[Path, int]:
    """Return the file and row with a position; exactly one of the files has it."""
    return next(
        (path, row) for path, table in tables if (row := pc.index(table["position"], int(position)).as_py()) >= 0
    )


def _files(segment: Segment) -> tuple[Path, Path]:
    return segment.control, segment.frames


def _size(*paths: Path) -> int:
    """Total size in bytes of those files that exist."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def damaged_row_group(path: Path) -> str:
    """Name the first row group of a Parquet file that cannot be read; empty if the file is missing or all can be read.

    Arrow compares the checksum of each page. A damaged footer, and most damage between pages, have no place.
    """
    index = -1
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for index in range(file.num_row_groups):
                file.read_row_group(index)
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return "" if index < 0 else f"row group {index}"
    return ""
