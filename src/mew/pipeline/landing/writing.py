"""Writes the segments of a landing, of blocks that lie in staged files: each segment is one worker's.

Its name comes from its positions and its content from the plan: written again it replaces its equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from mew._internal.files import sync
from mew.journal import segment_reader
from mew.journal.kafka.messages import checked_head
from mew.journal.layout import JournalFolder
from mew.journal.segments import write_segment
from mew.journal.wal import Block
from mew.pipeline.landing.values import IngestPosition, LandingError, SegmentPlan
from mew.pipeline.spread import run_on_spark, spread_local

SMALL_BYTES: Final = 4 * 2**20
"""So little is written here in less time than a job of Spark's takes to start."""


def write(session: SparkSession, pieces: Sequence[SegmentPlan], journal: Path) -> None:
    """Write the segments that were planned."""
    items = [msgspec.msgpack.encode(piece) for piece in pieces]
    work = partial(write_a_piece, str(journal.absolute()))
    size = sum(block.size for piece in pieces for block in piece.blocks)
    done = spread_local(work, items) if size <= SMALL_BYTES else run_on_spark(session, work, items)
    for piece, name in zip(pieces, done, strict=True):
        if name.decode() != f"{piece.first}-{piece.last}":
            raise LandingError(f"{piece.space}: {piece.first} to {piece.last} were to be written, not {name.decode()}")


def clear(pieces: Sequence[SegmentPlan], known: Mapping[str, IngestPosition], journal: Path) -> None:
    """Remove the files of an unfinished landing, unless they are about to be written."""
    planned = {(piece.space, piece.first, piece.last) for piece in pieces}
    for space in {piece.space for piece in pieces}:
        last = known.get(space, IngestPosition()).last
        for segment in JournalFolder(journal, space).segments(last + 1):
            if segment.first > last and (space, segment.first, segment.last) not in planned:
                # The commit mark first: without it there is no segment.
                segment.control.unlink()
                sync(segment.hour)
                segment.frames.unlink(missing_ok=True)


def write_a_piece(root: str, item: bytes) -> bytes:
    """`SegmentPlan` to its first and its last position, once they are on the disk."""
    piece = msgspec.msgpack.decode(item, type=SegmentPlan)
    hour = JournalFolder(Path(root), piece.space).hour(piece.time)
    segment = write_segment(hour, _rows(piece))
    return f"{segment.first}-{segment.last}".encode()


def _rows(piece: SegmentPlan) -> Iterator[pa.RecordBatch]:
    for each in piece.blocks:
        with Path(each.file).open("rb") as file:
            file.seek(each.at)
            data = file.read(each.size)
        yield from segment_reader.block_batches(Block(each.at, checked_head(data), data), each.start, control=False)
