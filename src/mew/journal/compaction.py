"""Merges the small segments of a past hour into a few large ones.

The new files are written in the trash folder, which no reader looks at. Then their folder and the hour's folder are
exchanged in one system call. The old folder stays in the trash for readers that still have it open.
"""

import ctypes
import errno
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from mew._internal.files import FileLock, LockHeld, make_folder, sync
from mew.journal import JournalError
from mew.journal.block_format import CorruptData
from mew.journal.layout import NAME_DIGITS, JournalFolder, Segment, segments_in
from mew.journal.segment_reader import merged_tables, read_control, read_footer, verify_segment
from mew.journal.segments import SegmentDamaged, write_segment
from mew.journal.wal import read_blocks

_FROM_HERE: Final = -100
"""AT_FDCWD: a relative path is relative to the working directory."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE."""
_SYSTEM_CALL: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
"""System call number of renameat2 by machine, for C libraries without that function."""
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP)
_PROBE: Final = ".exchange"


class CannotExchange(JournalError):
    """The kernel or the file system cannot exchange two names."""

    def __init__(self, one: Path, other: Path, problem: str) -> None:
        """Name the two paths and the reason."""
        super().__init__(
            f"cannot exchange {one} and {other}: {problem}; compaction needs it, and nothing was changed"
            " (both must lie on one file system, and it must know renameat2's RENAME_EXCHANGE)"
        )
        self.one = one
        self.other = other


def swap_directories(one: Path, other: Path) -> None:
    """Exchange the names of two paths atomically, and wait until both names are fsynced."""
    _exchange_names(one, other)
    for parent in {one.parent, other.parent}:
        sync(parent)


def require_exchange(one: Path, other: Path) -> None:
    """Raise `CannotExchange` unless entries of these two folders can be exchanged. Tries it with two empty folders."""
    probes = (one / _PROBE, other / _PROBE)
    try:
        for probe in probes:
            probe.mkdir(exist_ok=True)
        _exchange_names(*probes)
    finally:
        for probe in probes:
            if probe.is_dir():
                probe.rmdir()


def _exchange_names(one: Path, other: Path) -> None:
    ctypes.set_errno(0)
    try:
        result = _renameat2()(_FROM_HERE, os.fsencode(one), _FROM_HERE, os.fsencode(other), _EXCHANGE)
    except NotImplementedError as reason:
        raise CannotExchange(one, other, str(reason)) from None
    if result == 0:
        return
    number = ctypes.get_errno()
    if number in _UNABLE:
        raise CannotExchange(one, other, os.strerror(number))
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _renameat2() -> Callable[[int, bytes, int, bytes, int], int]:
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        return lambda *arguments: int(function(*arguments))
    number = _SYSTEM_CALL.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        raise NotImplementedError(f"{platform.system()} on {platform.machine()} has no renameat2 that we know")
    library.syscall.restype = ctypes.c_long
    return lambda at, path, to, target, flags: int(
        library.syscall(
            ctypes.c_long(number), ctypes.c_int(at), ctypes.c_char_p(path), ctypes.c_int(to), ctypes.c_char_p(target),
            ctypes.c_uint(flags),
        )
    )  # fmt: skip


COMPACTED_BYTES: Final = 256_000_000
"""Maximum size of a new segment in bytes, estimated from the size of its rows in the old segments."""
FREE_DISK_BYTES: Final = 64_000_000
"""Free disk space that must remain, in bytes."""
TRASH_HOURS: Final = 1
"""How long replaced segments stay in the trash for readers that still have them open, in hours."""


class CompactionDeferred(JournalError):
    """The operation cannot be done now; the message gives the reason. Nothing was changed."""


def hours_to_compact(folder: JournalFolder, now: int) -> list[Path]:
    """Return the finished hours worth compacting, oldest first. `now` is in microseconds since 1970."""
    present = folder.hour(now)
    unsealed = _unsealed_hours(folder)
    return [hour for hour in folder.hours() if hour < present and hour not in unsealed and needs_compaction(hour)]


def needs_compaction(hour: Path) -> bool:
    """Whether an hour has more than one segment, and not all of them come from compaction."""
    segments = segments_in(hour)
    return len(segments) > 1 and not all(map(_is_compacted, segments))


def _is_compacted(segment: Segment) -> bool:
    try:
        return read_footer(segment).compacted
    except CorruptData:
        # Compacting the hour reports the damage.
        return False
    except FileNotFoundError:
        # It has just been compacted elsewhere.
        return True


def _unsealed_hours(folder: JournalFolder) -> set[Path]:
    """Hours with an unsealed log file, which will become a segment there."""
    hours = set()
    for log in folder.logs():
        try:
            block = next(read_blocks(log), None)
        except (CorruptData, FileNotFoundError):
            # If the log is repaired later, the hour is compacted again.
            continue
        if block is not None:
            hours.add(folder.hour(next(block.records()).time))
    return hours


def compact_hour(folder: JournalFolder, hour: Path, *, file_bytes: int = COMPACTED_BYTES) -> list[Segment]:
    """Merge an hour's segments into as few as the maximum size allows. Returns the new ones; empty if not needed.

    Raises `CorruptData` with the damaged file, or `CompactionDeferred` if another process is working on the journal,
    the disk has too little room, or the hour is not ready. In each case the hour is unchanged.
    """
    if not segments_in(hour):
        return []
    with exclusive_maintenance(folder):
        if not needs_compaction(hour):
            return []
        names = _names(hour)
        _require_sealed(folder, hour)
        segments = segments_in(hour)
        new = folder.trash / _trash_name(folder, segments)
        make_folder(folder.trash)
        require_exchange(folder.trash, hour.parent)
        _require_room(folder.trash, segments)
        if new.exists():
            # Left by a compaction that crashed.
            shutil.rmtree(new)
        try:
            compacted = _write_compacted(segments, new, file_bytes)
            _require_sealed(folder, hour)
            if _names(hour) != names:
                raise CompactionDeferred(f"{hour} changed while it was compacted, and was left as it is")
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        swap_directories(new, hour)
        _give_back(new, hour, names)
        return [msgspec.structs.replace(segment, hour=hour) for segment in compacted]


@contextmanager
def exclusive_maintenance(folder: JournalFolder) -> Iterator[None]:
    """Lock the space against other compaction and retention, or raise `CompactionDeferred` if it is locked."""
    make_folder(folder.log)
    try:
        lock = FileLock(folder.log / "compact.lock")
    except LockHeld:
        raise CompactionDeferred(f"another process maintains the journal of {folder.space!r}") from None
    with lock:
        yield


def _require_sealed(folder: JournalFolder, hour: Path) -> None:
    if hour in _unsealed_hours(folder):
        raise CompactionDeferred(f"{hour} was left as it is: not all of its log is sealed")


def _require_room(trash: Path, segments: list[Segment]) -> None:
    """Require room for a copy of the segments, and a reserve for writers: a full disk would stop the space."""
    paths = [path for segment in segments for path in (segment.control, segment.frames) if path.exists()]
    needed = sum(path.stat().st_size for path in paths)
    if shutil.disk_usage(trash).free < needed + FREE_DISK_BYTES:
        raise CompactionDeferred(f"{segments[0].hour} is unchanged: the disk has too little room to write it again")


def _names(hour: Path) -> set[str]:
    return {path.name for path in hour.iterdir()}


def _write_compacted(segments: list[Segment], new: Path, file_bytes: int) -> list[Segment]:
    """Write the same records to a new folder, with one row group in memory at a time."""
    for segment in segments:
        verify_segment(segment)
    for one, other in pairwise(segments):
        if other.first <= one.last:
            raise SegmentDamaged(other.control, f"its range overlaps that of {one.control.name}")
    pieces = _Pieces(segments, file_bytes)
    written = []
    while pieces.left:
        written.append(write_segment(new, pieces.next_file(), compacted=True))
        verify_segment(written[-1])
    rows = sum(map(_rows, written))
    if rows != pieces.rows or rows != sum(map(_records, segments)):
        raise CorruptData(f"{new}: {rows} records were written, and {pieces.rows} were read")
    return written


def _rows(segment: Segment) -> int:
    return int(read_control(segment, ["position"]).num_rows) + read_footer(segment).frames


class _Pieces:
    """The records of segments, one table at a time, split where a file is full or a position is missing."""

    def __init__(self, segments: list[Segment], file_bytes: int) -> None:
        self.rows = 0
        """Number of rows read."""
        self._file_bytes = file_bytes
        self._pieces = ((segment, table) for segment in segments for table in merged_tables(segment))
        self._piece = next(self._pieces, None)

    @property
    def left(self) -> bool:
        """Whether there are more tables."""
        return self._piece is not None

    def next_file(self) -> Iterator[pa.Table]:
        """Yield the tables for the next file: at least one."""
        used, following = 0.0, None
        while self._piece is not None:
            segment, table = self._piece
            used += _bytes(segment) * table.num_rows / _records(segment)
            first = table["position"][0].as_py()
            if following is not None and (used > self._file_bytes or first != following):
                return
            following = first + table.num_rows
            self.rows += table.num_rows
            yield table
            self._piece = next(self._pieces, None)


def _bytes(segment: Segment) -> int:
    return sum(path.stat().st_size for path in (segment.control, segment.frames) if path.exists())


def _records(segment: Segment) -> int:
    return segment.last - segment.first + 1


def _give_back(old: Path, hour: Path, names: set[str]) -> None:
    """Move files that appeared in the hour between the last check and the swap to the new folder, frames first."""
    late = sorted(_names(old) - names, reverse=True)
    for name in late:
        (old / name).rename(hour / name)
    if late:
        sync(hour)


# ---------------------------------------------------------------------------------------------------------------- trash


def empty_trash(folder: JournalFolder, before: int) -> list[Path]:
    """Delete this space's folders that were put into the trash before a time; return them.

    `before` is in microseconds since 1970. The folders were replaced by compaction, or are left over from a crashed
    one: neither is needed.
    """
    if not folder.trash.is_dir():
        return []
    position = f"[0-9]{{{NAME_DIGITS}}}"
    trash_name = re.compile(rf"{re.escape(folder.space)}\.[0-9-]{{10}}\.[0-9]{{2}}\.{position}-{position}")
    with exclusive_maintenance(folder):
        folders = sorted(path for path in folder.trash.iterdir() if trash_name.fullmatch(path.name) is not None)
        # An exchange changes the ctime of the folder, not that of its files.
        old = [path for path in folders if path.stat().st_ctime_ns // 1000 < before]
        for path in old:
            shutil.rmtree(path)
    return old


def _trash_name(folder: JournalFolder, segments: list[Segment]) -> str:
    hour = segments[0].hour
    date, number = hour.parent.name.removeprefix("date="), hour.name.removeprefix("hour=")
    return f"{folder.space}.{date}.{number}.{segments[0].first:0{NAME_DIGITS}}-{segments[-1].last:0{NAME_DIGITS}}"
