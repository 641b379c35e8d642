"""Sealing: turns a complete log file into a segment, and only then deletes the log file.

Callers decide when to seal. If sealing is interrupted at any point, sealing again leaves each record exactly once: it
stays in the log until both files of the segment are fsynced (architecture, Journal).
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

from mew._internal.files import sync
from mew.journal.arrow import to_batches
from mew.journal.block_format import BLOCK_HEAD_BYTES, BlockHead, CorruptData, check_block, read_block_head
from mew.journal.layout import FRAMES_SUFFIX, NAME_DIGITS, JournalFolder, Segment, first_position, segments_in
from mew.journal.segment_reader import verify_segment
from mew.journal.segments import write_segment
from mew.journal.wal import Block, LogDamaged, read_blocks

_PIECE_RECORDS: Final = 16_384
_PIECE_BYTES: Final = 8 << 20


def seal_log(folder: JournalFolder, log: Path) -> Segment | None:
    """Turn a log file that is no longer written to into a segment. Returns None if the file has no block.

    If the range is already sealed and verified, the log is only deleted. If the log was already sealed and deleted, its
    segment is returned. A damaged log is neither sealed nor deleted: `LogDamaged` names the file and the offset.
    """
    with _locked(log) as exists:
        if not exists:
            return _sealed_before(folder, log)
        start = next(_blocks(log), None)
        segment = None
        if start is not None:
            segment = _sealed(folder.hour(start.head.time), log)
            _keep_folders(folder, segment.hour)
        _delete(log)
        return segment


@contextmanager
def _locked(log: Path) -> Iterator[bool]:
    """Lock the log so that no other process seals it. Yields whether it exists; if so, its contents are fsynced."""
    try:
        file = os.open(log, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        # The previous holder of the lock may have deleted it.
        exists = log.exists()
        if exists:
            os.fsync(file)
        yield exists
    finally:
        os.close(file)


def _sealed_before(folder: JournalFolder, log: Path) -> Segment:
    segment = next(iter(folder.segments(first_position(log))), None)
    if segment is None or segment.first > first_position(log):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(log))
    return segment


def _sealed(hour: Path, log: Path) -> Segment:
    """Return the segment of a log in the folder of its hour: the existing one if it is intact, or a new one."""
    overlapping = [segment for segment in segments_in(hour) if segment.last >= first_position(log)]
    if overlapping:
        # The end of the log is needed only here. It is read twice only if a crash came between sealing and deleting.
        last = _last(log)
        for segment in overlapping:
            if segment.first <= last and _is_sealed(segment, log, last):
                return segment
    _remove_strays(hour, first_position(log))
    return write_segment(hour, _batches(log))


def _is_sealed(segment: Segment, log: Path, last: int) -> bool:
    """Whether a segment that overlaps the log has all its records. `CorruptData` if sealing would duplicate some."""
    first = first_position(log)
    if (segment.first, segment.last) == (first, last):
        try:
            verify_segment(segment)
        except CorruptData:
            return False
        return True
    if first < segment.first or last > segment.last:
        raise LogDamaged(log, 0, f"of its positions {first} to {last} only some are sealed, in {segment.control}")
    verify_segment(segment)
    return True


def _remove_strays(hour: Path, first: int) -> None:
    """Delete frames files that a crash left without a control file: a glob would count their records twice."""
    for path in hour.glob(f"{first:0{NAME_DIGITS}}-*{FRAMES_SUFFIX}"):
        last = int(path.name.removesuffix(FRAMES_SUFFIX).partition("-")[2])
        if not Segment(hour, first, last).control.exists():
            path.unlink()
            sync(hour)


def _keep_folders(folder: JournalFolder, hour: Path) -> None:
    """Wait until the names of an hour's folder and of its parents are fsynced.

    The process that created them may have crashed before that.
    """
    while hour != folder.root:
        hour = hour.parent
        sync(hour)


def _last(log: Path) -> int:
    *_, block = _blocks(log)
    return block.head.last


def _batches(log: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from (batch for blocks in _pieces(log) for batch in to_batches(blocks))
    except CorruptData:
        # Only reading block by block gives the offset of the damage.
        deque(_blocks(log), maxlen=0)
        raise


def _pieces(log: Path) -> Iterator[bytes]:
    """Yield many blocks of a log at a time: a column operation costs the same for one record as for thousands."""
    expected = first_position(log)
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while heads := _next_heads(file, size):
            ends = list(accumulate(BLOCK_HEAD_BYTES + head.body_bytes for head in heads))
            piece = file.read(ends[-1])
            for head, start, end in zip(heads, [0, *ends], ends, strict=False):
                check_block(head, cast("bytes", memoryview(piece)[start:end]))
                if head.first != expected:
                    raise CorruptData(f"position {expected} is missing")
                expected = head.last + 1
            yield piece


def _next_heads(file: BinaryIO, size: int) -> list[BlockHead]:
    """Read the heads of the next blocks, and restore the file position. Raises `CorruptData` if one cannot be right."""
    heads: list[BlockHead] = []
    start = at = file.tell()
    records = 0
    while records < _PIECE_RECORDS and at - start < _PIECE_BYTES and (data := file.read(BLOCK_HEAD_BYTES)):
        heads.append(read_block_head(data))
        records += heads[-1].records
        at += BLOCK_HEAD_BYTES + heads[-1].body_bytes
        # The length in a damaged head is not trusted.
        if at > size:
            raise CorruptData("a block that ends behind the file")
        file.seek(at)
    file.seek(start)
    return heads


def _blocks(log: Path) -> Iterator[Block]:
    """Yield the blocks of a log. Raises `LogDamaged` if a block does not continue where the previous one ended."""
    expected = first_position(log)
    for block in read_blocks(log):
        if block.head.first != expected:
            raise LogDamaged(log, block.offset, f"position {expected} is missing: the next one is {block.head.first}")
        expected = block.head.last + 1
        yield block


def _delete(log: Path) -> None:
    log.unlink()
    sync(log.parent)
