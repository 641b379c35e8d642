"""Compaction: the many small segments of an hour that is over become a few large ones.

Loses no record and shows none twice, to our readers or to anybody's glob: the new files are made in the trash, where
nobody looks, and their folder changes places with the hour's in one step. The old one stays in the trash for those
that still read it. Decides nothing about when (architecture, Journal).
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from mew.errors import MewError
from mew.journal.blocks import Damaged
from mew.journal.exchange import exchange, require_exchange
from mew.journal.folder import DIGITS, Folder, Segment, segments_in
from mew.journal.log import read_blocks, sync_folder
from mew.journal.segments import SegmentDamaged, make_folder, merged, read_control, read_footer, verify, write_segment

FILE_BYTES: Final = 256_000_000
"""Of a new segment at most, by what its rows took before."""
ROOM_BYTES: Final = 64_000_000
"""That many must be left on the disk."""
_MODE: Final = 0o600


class Postponed(MewError):
    """What cannot be done just now, and why; everything is as it was."""


def closed_hours(folder: Folder, now: int) -> list[Path]:
    """The hours that are over and worth compacting, the first first; `now` is in microseconds since 1970."""
    present = folder.hour(now)
    unsealed = _unsealed_hours(folder)
    return [hour for hour in folder.hours() if hour < present and hour not in unsealed and is_scattered(hour)]


def is_scattered(hour: Path) -> bool:
    """Whether an hour has more than one segment, not all of them made by compaction."""
    segments = segments_in(hour)
    return len(segments) > 1 and not all(map(_is_compacted, segments))


def _is_compacted(segment: Segment) -> bool:
    try:
        return read_footer(segment).compacted
    except Damaged:
        # Whoever compacts it will be told.
        return False
    except FileNotFoundError:
        # Somebody has just compacted it.
        return True


def _unsealed_hours(folder: Folder) -> set[Path]:
    """Those of which a file of the log is left: it will be a segment there."""
    found = set()
    for log in folder.logs():
        try:
            block = next(read_blocks(log), None)
        except (Damaged, FileNotFoundError):
            # Should it be mended one day, the hour is compacted again.
            continue
        if block is not None:
            found.add(folder.hour(next(block.records()).time))
    return found


def compact(folder: Folder, hour: Path, *, file_bytes: int = FILE_BYTES) -> list[Segment]:
    """Write an hour's segments anew, in as few as its size allows; the new ones, or none where there is nothing to do.

    `Damaged` names the file that is; `Postponed` says that somebody else is at it. Either way the hour is as it was.
    """
    if not segments_in(hour):
        return []
    with alone(folder):
        if not is_scattered(hour):
            return []
        names = _names(hour)
        _require_sealed(folder, hour)
        segments = segments_in(hour)
        new = folder.trash / _trash_name(folder, segments)
        make_folder(folder.trash)
        require_exchange(folder.trash, hour.parent)
        _require_room(folder.trash, segments)
        if new.exists():
            # A compaction crashed here.
            shutil.rmtree(new)
        try:
            made = _write_anew(segments, new, file_bytes)
            _require_sealed(folder, hour)
            if _names(hour) != names:
                raise Postponed(f"{hour} changed while it was compacted, and was left as it is")
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        exchange(new, hour)
        _give_back(new, hour, names)
        return [msgspec.structs.replace(segment, hour=hour) for segment in made]


@contextmanager
def alone(folder: Folder) -> Iterator[None]:
    """Nobody else compacts or removes the segments of this space meanwhile; `Postponed` where somebody does."""
    make_folder(folder.log)
    lock = os.open(folder.log / "compact.lock", os.O_RDWR | os.O_CREAT, _MODE)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Postponed(f"somebody else is tidying the journal of {folder.space!r}") from None
        yield
    finally:
        os.close(lock)


def _require_sealed(folder: Folder, hour: Path) -> None:
    if hour in _unsealed_hours(folder):
        raise Postponed(f"{hour} was left as it is: not all of its log is sealed")


def _require_room(trash: Path, segments: list[Segment]) -> None:
    """The same once more, and some for those who write meanwhile: a full disk would stop the space."""
    paths = [path for each in segments for path in (each.control, each.frames) if path.exists()]
    needed = sum(path.stat().st_size for path in paths)
    if shutil.disk_usage(trash).free < needed + ROOM_BYTES:
        raise Postponed(f"{segments[0].hour} was left as it is: there is too little room on the disk to write it anew")


def _names(hour: Path) -> set[str]:
    return {path.name for path in hour.iterdir()}


def _write_anew(segments: list[Segment], new: Path, file_bytes: int) -> list[Segment]:
    """The same records in a new folder, a row group in memory at a time."""
    for segment in segments:
        verify(segment)
    for one, other in pairwise(segments):
        if other.first <= one.last:
            raise SegmentDamaged(other.control, f"its range overlaps that of {one.control.name}")
    pieces = _Pieces(segments, file_bytes)
    made = []
    while pieces.left:
        made.append(write_segment(new, pieces.next_file(), compacted=True))
        verify(made[-1])
    rows = sum(map(_rows, made))
    if rows != pieces.rows or rows != sum(map(_records, segments)):
        raise Damaged(f"{new}: {rows} records were written, and {pieces.rows} were read")
    return made


def _rows(segment: Segment) -> int:
    return int(read_control(segment, ["position"]).num_rows) + read_footer(segment).frames


class _Pieces:
    """The records of segments, a table at a time, cut where a file is full or a position is missing."""

    def __init__(self, segments: list[Segment], file_bytes: int) -> None:
        self.rows = 0
        """How many were read."""
        self._file_bytes = file_bytes
        self._pieces = ((segment, table) for segment in segments for table in merged(segment))
        self._piece = next(self._pieces, None)

    @property
    def left(self) -> bool:
        """Whether there is more."""
        return self._piece is not None

    def next_file(self) -> Iterator[pa.Table]:
        """What goes into the next file: at least one table."""
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
    """What came into the hour between the last look and the exchange, to where it was meant to be; frames first."""
    late = sorted(_names(old) - names, reverse=True)
    for name in late:
        (old / name).rename(hour / name)
    if late:
        sync_folder(hour)


# -------------------------------------------------------------------------------------------------- trash


def empty_trash(folder: Folder, before: int) -> list[Path]:
    """Delete the folders of this space that came into the trash before a time, in microseconds since 1970; those.

    They are what compaction took away, or what it left unfinished when it crashed: nobody misses either.
    """
    if not folder.trash.is_dir():
        return []
    ours = re.compile(rf"{re.escape(folder.space)}\.[0-9-]{{10}}\.[0-9]{{2}}\.[0-9]{{{DIGITS}}}-[0-9]{{{DIGITS}}}")
    with alone(folder):
        found = sorted(path for path in folder.trash.iterdir() if ours.fullmatch(path.name) is not None)
        # An exchange changes the time of a folder's inode, not that of its files.
        old = [path for path in found if path.stat().st_ctime_ns // 1000 < before]
        for path in old:
            shutil.rmtree(path)
    return old


def _trash_name(folder: Folder, segments: list[Segment]) -> str:
    hour = segments[0].hour
    date, number = hour.parent.name.removeprefix("date="), hour.name.removeprefix("hour=")
    return f"{folder.space}.{date}.{number}.{segments[0].first:0{DIGITS}}-{segments[-1].last:0{DIGITS}}"
