"""Segments: a range of positions as two Parquet files, written so that a crash leaves either none or all of it.

Decides neither what is sealed nor when. The control file is the commit mark: what its footer says of the frames file
holds, and until it is there the segment does not exist (architecture, Journal).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mew.journal import checksums
from mew.journal.blocks import Damaged
from mew.journal.drafts import GROUP_BYTES, Draft
from mew.journal.folder import Segment
from mew.journal.log import sync_folder
from mew.journal.tables import SCHEMA, SCHEMA_VERSION

FOOTER_KEY: Final = b"mew.segment"
_GATHERED_ROWS: Final = 16_384


class SegmentDamaged(Damaged):
    """A file of a segment, and what is wrong with it."""

    def __init__(self, path: Path, problem: str) -> None:
        """This file is not what was written."""
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class Footer(msgspec.Struct, frozen=True):
    """What a control file says of its segment."""

    first: int
    last: int
    epochs: tuple[str, ...]
    """Those that began in the range, in order."""
    frames: int
    """Rows of the frames file; where there are none, there is no such file."""
    frames_checksum: str | None
    """CRC-32 of all bytes of the frames file, as eight hexadecimal digits."""
    schema_version: int
    checkpoint: int | None
    """The position of the range's last checkpoint record."""
    compacted: bool


# ------------------------------------------------------------------------------------------------ writing


def write_segment(hour: Path, batches: Iterable[pa.RecordBatch | pa.Table], *, compacted: bool = False) -> Segment:
    """Write records of one hour, whose positions follow each other, as a segment, and wait until it is on the disk.

    There is at least one record. A segment of the same range is replaced; what fails leaves nothing behind.
    """
    make_folder(hour)
    draft = Draft(hour)
    try:
        for table in _gathered(batches):
            draft.add(table)
        return _publish(draft, compacted=compacted)
    except BaseException:
        draft.discard()
        raise


def _publish(draft: Draft, *, compacted: bool) -> Segment:
    """The frames first: once the control file is there, so is all that its footer says."""
    segment = draft.segment
    footer = Footer(
        segment.first,
        segment.last,
        draft.epochs,
        draft.frames,
        draft.publish_frames(),
        SCHEMA_VERSION,
        draft.checkpoint,
        compacted,
    )
    draft.publish_control({FOOTER_KEY: msgspec.json.encode(footer)})
    return segment


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that a crash cannot lose their names."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def _gathered(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a column operation; a large one goes on as it is."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for each in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            pending.append(each)
            rows, size = rows + each.num_rows, size + each.nbytes
            if rows >= _GATHERED_ROWS or size >= GROUP_BYTES:
                yield pa.Table.from_batches(pending, SCHEMA)
                pending, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(pending, SCHEMA)


# ------------------------------------------------------------------------------------------------ reading


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A file to read; what Arrow finds wrong is `SegmentDamaged`. One that is gone is `FileNotFoundError`."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as problem:
        raise SegmentDamaged(path, f"it cannot be read: {problem}") from None


def read_footer(segment: Segment) -> Footer:
    """What the control file says."""
    with _opened(segment.control) as file:
        found = (file.metadata.metadata or {}).get(FOOTER_KEY)
    if found is None:
        raise SegmentDamaged(segment.control, "its footer does not say what it is")
    try:
        footer = msgspec.json.decode(found, type=Footer)
    except msgspec.DecodeError as problem:
        raise SegmentDamaged(segment.control, f"its footer cannot be read: {problem}") from None
    if footer.schema_version != SCHEMA_VERSION:
        known = f"this program reads version {SCHEMA_VERSION}"
        raise SegmentDamaged(segment.control, f"a segment of schema version {footer.schema_version}; {known}")
    return footer


def read_control(segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """Its rows that are not frames, in order; all columns, or these."""
    return pa.concat_tables([*_groups(segment.control, columns), _empty(columns)])


def read_frames(segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """Its frames and stream data, in order; all columns, or these."""
    return pa.concat_tables([*_frame_groups(segment, columns), _empty(columns)])


def read_segment(segment: Segment) -> pa.Table:
    """All its rows, in order."""
    return pa.concat_tables([*merged(segment), _empty(None)])


def merged(segment: Segment) -> Iterator[pa.Table]:
    """Likewise, a row group of frames at a time and what stands between them."""
    control = read_control(segment)
    places = control.column("position").to_numpy()
    done = 0
    for frames in _frame_groups(segment, None):
        end = int(np.searchsorted(places, frames.column("position")[-1].as_py()))
        if end > done:
            both = pa.concat_tables([control.slice(done, end - done), frames])
            frames = both.take(pa.array(np.argsort(both.column("position").to_numpy())))
        yield frames
        done = end
    if done < len(places):
        yield control.slice(done)


def _frame_groups(segment: Segment, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    try:
        yield from _groups(segment.frames, columns)
    except FileNotFoundError:
        if read_footer(segment).frames:
            raise SegmentDamaged(segment.frames, "it is missing") from None


def _groups(path: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The row groups of a file."""
    wanted = list(SCHEMA.names if columns is None else columns)
    with _opened(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, wanted).select(wanted).cast(_schema(columns))


def _empty(columns: Sequence[str] | None) -> pa.Table:
    return _schema(columns).empty_table()


def _schema(columns: Sequence[str] | None) -> pa.Schema:
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


# ------------------------------------------------------------------------------------------- verification


def verify(segment: Segment) -> None:
    """`Damaged` unless both files hold, byte for byte, what was written, and every position of the range once."""
    footer = check_bytes(segment)
    if not footer.frames and segment.frames.exists():
        raise SegmentDamaged(segment.frames, "the control file knows of no frames")
    control, frames = (read(segment, ["position"]).column(0).to_numpy() for read in (read_control, read_frames))
    if len(frames) != footer.frames:
        raise SegmentDamaged(segment.frames, f"it has {len(frames)} rows, the control file says {footer.frames}")
    for path, positions in ((segment.control, control), (segment.frames, frames)):
        if (np.diff(positions) <= 0).any():
            raise SegmentDamaged(path, "its rows are not in order")
    both = np.sort(np.concatenate([control, frames]))
    if not np.array_equal(both, np.arange(segment.first, segment.last + 1)):
        raise SegmentDamaged(segment.control, "its rows and the frames are not each position of the range once")


def check_bytes(segment: Segment) -> Footer:
    """`Damaged` unless both files hold, byte for byte, what was written; what the control file says of them.

    `FileNotFoundError` where the whole segment went away.
    """
    # Before anything else looks into it: what was damaged says nothing.
    if not checksums.is_whole(segment.control):
        raise SegmentDamaged(segment.control, "its checksum is wrong")
    footer = read_footer(segment)
    if (footer.first, footer.last) != (segment.first, segment.last):
        raise SegmentDamaged(segment.control, f"its footer speaks of positions {footer.first} to {footer.last}")
    if footer.frames:
        _check_frames(segment, footer)
    return footer


def _check_frames(segment: Segment, footer: Footer) -> None:
    try:
        checksum = checksums.of_file(segment.frames)
    except FileNotFoundError:
        segment.control.stat()  # Where the whole segment went away, nothing is damaged.
        raise SegmentDamaged(segment.frames, "it is missing") from None
    if checksum != footer.frames_checksum:
        raise SegmentDamaged(segment.frames, "its checksum is wrong")
