"""Sealing: a file of the log that is complete becomes a segment, and only then goes away.

Decides nothing about when. Whatever it is interrupted by, sealing again ends with each record once: in the log until
both files of the segment are on the disk (architecture, Journal).
"""

import errno
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa

from mew.journal.arrow import to_batches
from mew.journal.block_format import HEAD_BYTES, Damaged, Head, check, read_head
from mew.journal.layout import DIGITS, FRAMES, Folder, Segment, log_first, segments_in
from mew.journal.segments import verify, write_segment
from mew.journal.wal import Block, LogDamaged, read_blocks, sync_folder

_PIECE_RECORDS: Final = 16_384
_PIECE_BYTES: Final = 8 << 20


def seal(folder: Folder, log: Path) -> Segment | None:
    """Make a segment of a file of the log that nobody writes to any more; none where it holds no block.

    A log whose range is sealed and verified is only deleted; one that was is its segment. A damaged one is neither
    sealed nor deleted: `LogDamaged` names file and place.
    """
    with _held(log) as here:
        if not here:
            return _sealed_before(folder, log)
        start = next(_blocks(log), None)
        segment = None
        if start is not None:
            segment = _sealed(folder.hour(start.head.time), log)
            _keep_folders(folder, segment.hour)
        _delete(log)
        return segment


@contextmanager
def _held(log: Path) -> Iterator[bool]:
    """Nobody else seals it meanwhile; whether it is there, and then what is read of it is on the disk."""
    try:
        file = os.open(log, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Whoever held it before may have deleted it.
        here = log.exists()
        if here:
            os.fsync(file)
        yield here
    finally:
        os.close(file)


def _sealed_before(folder: Folder, log: Path) -> Segment:
    segment = next(iter(folder.segments(log_first(log))), None)
    if segment is None or segment.first > log_first(log):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(log))
    return segment


def _sealed(hour: Path, log: Path) -> Segment:
    """The segment of a log in the folder of its hour: the one that is there, if it is whole, or a new one."""
    overlapping = [segment for segment in segments_in(hour) if segment.last >= log_first(log)]
    if overlapping:
        # Only now it matters where the log ends: it is read twice where a crash came between.
        last = _last(log)
        for segment in overlapping:
            if segment.first <= last and _is_sealed(segment, log, last):
                return segment
    _remove_strays(hour, log_first(log))
    return write_segment(hour, _batches(log))


def _is_sealed(segment: Segment, log: Path, last: int) -> bool:
    """Whether a segment that has records of the log has all of them; `Damaged` where sealing would double some."""
    first = log_first(log)
    if (segment.first, segment.last) == (first, last):
        try:
            verify(segment)
        except Damaged:
            return False
        return True
    if first < segment.first or last > segment.last:
        raise LogDamaged(log, 0, f"of its positions {first} to {last} only some are sealed, in {segment.control}")
    verify(segment)
    return True


def _remove_strays(hour: Path, first: int) -> None:
    """Frames files that a crash left without their control file: a glob would count them besides ours."""
    for path in hour.glob(f"{first:0{DIGITS}}-*{FRAMES}"):
        last = int(path.name.removesuffix(FRAMES).partition("-")[2])
        if not Segment(hour, first, last).control.exists():
            path.unlink()
            sync_folder(hour)


def _keep_folders(folder: Folder, hour: Path) -> None:
    """Wait until the names of an hour's folder and of those above it are on the disk.

    Whoever made them may have crashed before that.
    """
    while hour != folder.root:
        hour = hour.parent
        sync_folder(hour)


def _last(log: Path) -> int:
    *_, block = _blocks(log)
    return block.head.last


def _batches(log: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from (batch for blocks in _pieces(log) for batch in to_batches(blocks))
    except Damaged:
        # Only whoever reads block by block can say where.
        deque(_blocks(log), maxlen=0)
        raise


def _pieces(log: Path) -> Iterator[bytes]:
    """The blocks of a log, many at a time: a column costs the same for one record as for thousands."""
    expected = log_first(log)
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while heads := _next_heads(file, size):
            ends = list(accumulate(HEAD_BYTES + head.body_bytes for head in heads))
            piece = file.read(ends[-1])
            for head, start, end in zip(heads, [0, *ends], ends, strict=False):
                check(head, cast("bytes", memoryview(piece)[start:end]))
                if head.first != expected:
                    raise Damaged(f"position {expected} is missing")
                expected = head.last + 1
            yield piece


def _next_heads(file: BinaryIO, size: int) -> list[Head]:
    """What the heads of the next blocks say, if it is true; the file stays where it is."""
    heads: list[Head] = []
    start = at = file.tell()
    records = 0
    while records < _PIECE_RECORDS and at - start < _PIECE_BYTES and (data := file.read(HEAD_BYTES)):
        heads.append(read_head(data))
        records += heads[-1].records
        at += HEAD_BYTES + heads[-1].body_bytes
        # What a damaged head says of the length is not believed.
        if at > size:
            raise Damaged("a block that ends behind the file")
        file.seek(at)
    file.seek(start)
    return heads


def _blocks(log: Path) -> Iterator[Block]:
    """The blocks of a log; `LogDamaged` where one does not go on where the one before ended."""
    expected = log_first(log)
    for block in read_blocks(log):
        if block.head.first != expected:
            raise LogDamaged(log, block.offset, f"position {expected} is missing: it goes on with {block.head.first}")
        expected = block.head.last + 1
        yield block


def _delete(log: Path) -> None:
    log.unlink()
    sync_folder(log.parent)
