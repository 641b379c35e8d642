"""Verifies a journal: checksums, positions without a gap, times that never decrease.

It reads everything and changes nothing. Each damage is reported with its file and place; in a Parquet file, as near as
the checksums of pages allow. An incomplete block at the end of the last log is what a crash leaves, and no damage.
"""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal import segments
from mew.journal.block_format import EVENTS, FrameCount, skim
from mew.journal.layout import Folder, Segment, log_first
from mew.journal.recovery import synced_bytes
from mew.journal.wal import Block, Damage, is_torn, scan
from mew.protocol.records import CHECKPOINT

_MAGIC: Final = b"PAR1"
_END: Final = 8
"""Bytes at the end of a file: the length of its footer, and the magic."""
_SIZE, _CHECKSUM = 3, 4
"""Fields of a page's head: the bytes of its data as they stand there, and their checksum."""
_I32: Final = 5
_OTHER_NUMBERS: Final = (4, 6)
_BINARY, _STRUCT = 8, 12
_FIXED: Final = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of the types that have always as many. Lists and maps occur in no head."""
_BITS: Final = 64


def place_of_damage(path: Path) -> str:
    """Between which bytes of a file the damage is."""
    whole = path.read_bytes()
    first, last = _range(whole)
    return f"between bytes {first} and {last}"


def _range(whole: bytes) -> tuple[int, int]:
    at, size = len(_MAGIC), len(whole)
    if not whole.startswith(_MAGIC):
        return 0, min(at, size)
    footer = size - _END - int.from_bytes(whole[-_END:-4], "little")
    end = footer if whole.endswith(_MAGIC) and footer >= at else size
    while at < end:
        try:
            head = _Head(whole, at)
        except (IndexError, ValueError, RecursionError):
            return at, size
        data = whole[head.end : head.end + head.size]
        if crc32(data) != head.checksum:
            return at, head.end + len(data)
        at = head.end + head.size
    # Every page has the data that it should: it is something that is said about them.
    return len(_MAGIC), size


class _Head:
    """The head of a page, in Thrift's compact protocol; `ValueError` or `IndexError` where none stands here."""

    def __init__(self, whole: bytes, at: int) -> None:
        self._whole = whole
        self.end = at
        found = self._struct()
        self.size, self.checksum = found.get(_SIZE, -1), found.get(_CHECKSUM, 0) & 0xFFFFFFFF
        if self.size < 0 or self.end > len(whole):
            raise ValueError("no page has this head")

    def _byte(self) -> int:
        self.end += 1
        return self._whole[self.end - 1]

    def _number(self) -> int:
        value = shift = 0
        while shift < _BITS:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise ValueError("no number has so many bytes")

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)

    def _struct(self) -> dict[int, int]:
        """Skip a struct; the numbers of 32 bits that stand in it."""
        found: dict[int, int] = {}
        field = 0
        while byte := self._byte():
            field = field + (byte >> 4) if byte >> 4 else self._signed()
            if byte & 15 == _I32:
                found[field] = self._signed()
            else:
                self._skip(byte & 15)
        return found

    def _skip(self, sort: int) -> None:
        if sort in _FIXED:
            self.end += _FIXED[sort]
        elif sort in _OTHER_NUMBERS:
            self._number()
        elif sort == _BINARY:
            length = self._number()
            self.end += length
        elif sort == _STRUCT:
            self._struct()
        else:
            raise ValueError(f"a head has nothing of type {sort}")


Sort: TypeAlias = Literal["damage", "torn", "unrecorded"]
Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes have been read, and how many there are."""
_EVENTS: Final = pa.array(EVENTS)
_COLUMNS: Final = ("position", "time", "event")


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and where."""

    path: Path
    place: str
    """Which byte or row of the file; empty where it is the file as a whole."""
    what: str
    sort: Sort = "damage"
    """What a crash left at the end is torn; what the gateway could not write, and said so, is unrecorded."""

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.path), self.place, self.what) if part)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    space: str
    first: int | None
    last: int | None
    records: int
    """How many are whole and can be read."""
    unreachable: int
    """How many are whole and stand behind damage in their file."""
    segments: int
    logs: int
    blocks: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def damaged(self) -> bool:
        """Whether something that was written is not there as it was."""
        return any(problem.sort == "damage" for problem in self.problems)


def verify(root: Path, space: str, progress: Progress = lambda done, total: None) -> Report:
    """Read the whole journal of a space, and say what is wrong with it."""
    return _Verification(Folder(root, space), progress).run()


class _Verification:
    """How far one reading has come, and what it has found."""

    def __init__(self, folder: Folder, progress: Progress) -> None:
        self.folder = folder
        self.progress = progress
        self.problems: list[Problem] = []
        self.first: int | None = None
        self.next = 0
        """The position that should come next."""
        self.time = 0
        """Of the record before."""
        self.checkpoints = 0
        self.known_hole = False
        """Whether what is missing next has been told of already."""
        self.records = self.unreachable = self.segments = self.logs = self.blocks = self.bytes = 0

    def run(self) -> Report:
        gone = ""
        while True:
            # The logs first: one that is sealed meanwhile is then found among the segments.
            logs = self.folder.logs()
            sealed = self.folder.segments(self.next)
            total = self.bytes + _size(*logs, *(path for each in sealed for path in _files(each)))
            try:
                self._segments(sealed, total)
                self._logs(logs, total)
                break
            except FileNotFoundError as problem:
                # Sealed or compacted meanwhile: it is somewhere else now.
                if str(problem.filename) == gone:
                    self._add(Path(gone), "it is missing")
                    break
                gone = str(problem.filename)
        self._check_beginning()
        self._check_end()
        return self._report()

    def _report(self) -> Report:
        return Report(
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
        self.problems.append(Problem(path, place, what, sort))

    def _count(self, size: int, total: int) -> None:
        self.bytes += size
        self.progress(self.bytes, max(total, self.bytes))

    def _take(self, path: Path, first: int, last: int, *, checkpoint: bool) -> None:
        """Go on behind a range of positions; what is missing before it is told, unless it is known why."""
        if self.first is None:
            self.first = first
        elif first > self.next and not self.known_hole:
            missing = f"records {self.next} to {first - 1}, which come before it, are missing"
            if checkpoint:
                missing += "; a checkpoint makes up for them, as behind what the gateway could not write"
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
            segments.verify(segment)
            control, frames = (read(segment, _COLUMNS) for read in (segments.read_control, segments.read_frames))
        except segments.SegmentDamaged as damage:
            place = place_of_damage(damage.path) if damage.path.exists() else ""
            self._add(damage.path, damage.problem, place)
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
        """Every event is a known one, and from a position on time goes on through both files."""
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
        damages: list[tuple[Damage, list[Block]]] = []
        expected, synced = log_first(path), synced_bytes(self.folder, path)
        for item in scan(path):
            if isinstance(item, Damage):
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
            if following is None and is_torn(damage, synced):
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
            for entry in skim(block.data):
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

    def _damage(self, damage: Damage, behind: list[Block], following: Path | None) -> None:
        if self.first is None:
            self.first = log_first(damage.path)
        whole = sum(block.head.records for block in behind)
        self.unreachable += whole
        found = [block.head.first for block in behind[:1]] or ([] if following is None else [log_first(following)])
        lost = [f"records {self.next} to {first - 1} are lost" for first in found if first > self.next]
        more = [f"{whole} records behind it are whole but unreachable"] if whole else []
        self._add(damage.path, "; ".join([damage.problem, *lost, *more]), f"byte {damage.offset}")
        self.next = max(self.next, *(block.head.last + 1 for block in behind), 0)
        self.known_hole = True

    # -------------------------------------------------------------------------------------------------- ends

    def _check_beginning(self) -> None:
        """What is missing at the beginning was removed for good: a checkpoint behind it makes up for it."""
        if self.first and not self.checkpoints:
            what = f"records 0 to {self.first - 1} are missing, and no checkpoint makes up for them"
            self._add(self.folder.sealed, what)

    def _check_end(self) -> None:
        """The log that was synced last is there, or sealed."""
        try:
            first, size = map(int, self.folder.synced.read_text("ascii").split())
        except (FileNotFoundError, ValueError):
            return
        log = self.folder.log_file(first)
        if first >= self.next and size and not log.exists() and not self.folder.segments(first):
            self._add(log, f"it is missing, and {size} bytes of it had been synced")


def _row_of(position: Any, tables: tuple[tuple[Path, pa.Table], ...]) -> tuple[Path, int]:
    """The file and the row that has a position, which one of them has."""
    return next(
        (path, row) for path, table in tables if (row := pc.index(table["position"], int(position)).as_py()) >= 0
    )


def _files(segment: Segment) -> tuple[Path, Path]:
    return segment.control, segment.frames


def _size(*paths: Path) -> int:
    """Of all of these that are there."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
