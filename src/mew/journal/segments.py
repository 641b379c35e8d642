"""Sealed segments: a range of positions as two Parquet files, one of control records and one of frames.

The control file is the commit mark. It is published last, and its footer holds the checksum of the frames file, so a
crash leaves either no segment or a complete one. CRC-32 detects disk errors; it does not protect against forgery.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew._internal.files import make_folder, sync
from mew.journal.arrow import SCHEMA, SCHEMA_VERSION
from mew.journal.block_format import CorruptData
from mew.journal.layout import NAME_DIGITS, Segment
from mew.protocol.records import CHECKPOINT, ENVELOPE, FRAME, START

CHECKSUM_KEY: Final = b"mew.checksum"
"""Footer key of a Parquet file for the checksum of all its bytes, computed with zeros in place of the checksum."""
CHECKSUM_PLACEHOLDER: Final = b"0" * 8
"""Placeholder for the checksum until it is known."""
_CHUNK: Final = 1 << 20
_BETWEEN: Final = 2
"""Bytes between a key and its value: type and length of the next field."""


def file_checksum(path: Path) -> str:
    """Return the CRC-32 of all bytes of a file, as eight hexadecimal digits."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = crc32(chunk, checksum)
    return f"{checksum:08x}"


def stamp_checksum(path: Path) -> None:
    """Replace `CHECKSUM_PLACEHOLDER` after `CHECKSUM_KEY` in a file's footer with the checksum of the file."""
    whole = path.read_bytes()
    place = _place(whole)
    if whole[place : place + len(CHECKSUM_PLACEHOLDER)] != CHECKSUM_PLACEHOLDER:
        raise ValueError(f"{path} has no place for a checksum")
    with path.open("r+b") as file:
        file.seek(place)
        file.write(f"{crc32(whole):08x}".encode())


def has_valid_checksum(path: Path) -> bool:
    """Whether a stamped file still has the bytes that were stamped."""
    whole = bytearray(path.read_bytes())
    place = _place(whole)
    stamped = bytes(whole[place : place + len(CHECKSUM_PLACEHOLDER)])
    whole[place : place + len(CHECKSUM_PLACEHOLDER)] = CHECKSUM_PLACEHOLDER
    return stamped == f"{crc32(whole):08x}".encode()


def _place(whole: bytes | bytearray) -> int:
    """Return the offset of the checksum. The footer ends the file, so the last key cannot come from a record."""
    return whole.rfind(CHECKSUM_KEY) + len(CHECKSUM_KEY) + _BETWEEN


GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 64 << 20
"""A row group is written once it has this many rows, or this many bytes before compression."""
TEMPORARY_SUFFIX: Final = ".tmp"
VERSION_KEY: Final = b"mew.schema_version"
_MODE: Final = 0o600
_STREAM_DATA: Final = "stream/data"
_NUMBERS: Final = ("position", "time", "frame_number", "sequence", "size")
_TEXTS: Final = ("event", "participant", "kind", "stream_id", "reason", "capability")
"""Text columns with many repeated values."""
_FORMAT: Final[dict[str, Any]] = {
    "compression": "zstd",
    # Every reader must see plain types: only some readers would apply the types of a stored Arrow schema.
    "store_schema": False,
    "use_dictionary": list(_TEXTS),
    "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
    "write_statistics": [*_NUMBERS, *_TEXTS, "envelope_id"],
    "write_page_checksum": True,
}


class _Start(msgspec.Struct):
    """The field of a `start` record's payload that is needed here."""

    epoch: str


class SegmentWriter:
    """Rows of one hour that will become a segment."""

    def __init__(self, hour: Path) -> None:
        """Start without rows. The folder of the hour must exist."""
        self._hour = hour
        self._first = self._next = -1
        self._files: dict[str, _File] = {}
        self._epochs: list[str] = []
        self.checkpoint: int | None = None
        """Position of the last checkpoint record so far; None if there is none."""

    @property
    def epochs(self) -> tuple[str, ...]:
        """Epochs that began in the rows so far."""
        return tuple(self._epochs)

    @property
    def segment(self) -> Segment:
        """The segment that the rows so far would form. Raises `ValueError` if there are none."""
        if self._first < 0:
            raise ValueError("a segment without records")
        return Segment(self._hour, self._first, self._next - 1)

    @property
    def frames(self) -> int:
        """Number of rows for the frames file so far."""
        return self._files["frames"].rows if "frames" in self._files else 0

    def add(self, table: pa.Table) -> None:
        """Add rows to the files to which they belong. Raises `ValueError` if the positions are not consecutive."""
        positions = table.column("position").to_numpy()
        if self._first < 0:
            self._first = self._next = int(positions[0])
        if not np.array_equal(positions, np.arange(self._next, self._next + len(positions))):
            raise ValueError(f"positions from {self._next} on do not follow each other")
        self._next += len(positions)
        frames = data_record_mask(table)
        frame_rows = pc.sum(frames).as_py()
        if frame_rows:
            self._file("frames").add(table if frame_rows == len(positions) else table.filter(frames))
        if frame_rows < len(positions):
            self._add_control(table.filter(pc.invert(frames)) if frame_rows else table)

    def _add_control(self, table: pa.Table) -> None:
        self._file("control").add(table)
        events = table.column("event")
        for payload in table.column("payload").filter(pc.equal(events, START)).to_pylist():
            self._epochs.append(msgspec.json.decode(payload, type=_Start).epoch)
        checkpoint = pc.max(table.column("position").filter(pc.equal(events, CHECKPOINT))).as_py()
        self.checkpoint = self.checkpoint if checkpoint is None else checkpoint

    def _file(self, part: str) -> "_File":
        if part not in self._files:
            # Hidden, because Spark reads every file of a folder that is not hidden.
            self._files[part] = _File(self._hour / f".{self._first:0{NAME_DIGITS}}.{part}{TEMPORARY_SUFFIX}")
        return self._files[part]

    def publish_frames(self) -> str | None:
        """Give the frames file its final name. Returns its checksum, or None if there are no frames."""
        if not self.frames:
            return None
        file = self._files["frames"]
        file.close({})
        checksum = file_checksum(file.path)
        _publish(file.path, self.segment.frames)
        return checksum

    def publish_control(self, metadata: dict[bytes, bytes]) -> None:
        """Write `metadata` and the checksum to the control file and publish it. It always exists, even without rows."""
        file = self._file("control")
        file.close({**metadata, CHECKSUM_KEY: CHECKSUM_PLACEHOLDER})
        stamp_checksum(file.path)
        _publish(file.path, self.segment.control)

    def discard(self) -> None:
        """Delete the files that were not published."""
        for file in self._files.values():
            file.discard()


class _File:
    """A Parquet file that is being written, one row group at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE))
        self._writer = pq.ParquetWriter(path, SCHEMA, **_FORMAT)
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        self.rows += table.num_rows
        while table.num_rows:
            part = table.slice(0, GROUP_ROWS - self._rows)
            self._pending.append(part)
            self._rows, self._bytes = self._rows + part.num_rows, self._bytes + part.nbytes
            table = table.slice(part.num_rows)
            if self._rows == GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._write_group()

    def _write_group(self) -> None:
        self._writer.write_table(pa.concat_tables(self._pending), GROUP_ROWS)
        self._pending, self._rows, self._bytes = [], 0, 0

    def close(self, metadata: dict[bytes, bytes]) -> None:
        """Write the remaining rows and the metadata."""
        if self._rows:
            self._write_group()
        self._writer.add_key_value_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode(), **metadata})
        self._writer.close()

    def discard(self) -> None:
        """Close and delete the file."""
        try:
            self._writer.close()
        finally:
            self.path.unlink(missing_ok=True)


def data_record_mask(table: pa.Table | pa.RecordBatch) -> Any:
    """For each row, whether it belongs in the frames file: frames, and stream data that was accepted."""
    events = table.column("event")
    frames = pc.equal(events, FRAME)
    if pc.all(frames).as_py():
        return frames
    data = pc.and_(pc.equal(events, ENVELOPE), pc.equal(table.column("kind"), _STREAM_DATA))
    return pc.or_(frames, pc.fill_null(data, False))


def _publish(path: Path, name: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.replace(name)
    sync(name.parent)


FOOTER_KEY: Final = b"mew.segment"
_GATHERED_ROWS: Final = 16_384


class SegmentDamaged(CorruptData):
    """A file of a segment is damaged; the message says what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        """The file `path` differs from what was written."""
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class SegmentFooter(msgspec.Struct, frozen=True):
    """What the footer of a control file says about its segment."""

    first: int
    last: int
    epochs: tuple[str, ...]
    """Epochs that began in the range, in order."""
    frames: int
    """Number of rows in the frames file. If it is 0, there is no such file."""
    frames_checksum: str | None
    """CRC-32 of all bytes of the frames file, as eight hexadecimal digits."""
    schema_version: int
    checkpoint: int | None
    """Position of the last checkpoint record in the range."""
    compacted: bool


# -------------------------------------------------------------------------------------------------------------- writing


def write_segment(hour: Path, batches: Iterable[pa.RecordBatch | pa.Table], *, compacted: bool = False) -> Segment:
    """Write records of one hour with consecutive positions as a segment, and wait until it is fsynced.

    At least one record is required. A segment of the same range is replaced. A failed write leaves no files behind.
    """
    make_folder(hour)
    draft = SegmentWriter(hour)
    try:
        for table in _gathered(batches):
            draft.add(table)
        return _publish_segment(draft, compacted=compacted)
    except BaseException:
        draft.discard()
        raise


def _publish_segment(draft: SegmentWriter, *, compacted: bool) -> Segment:
    """Publish the frames first: once the control file exists, everything in its footer is true."""
    segment = draft.segment
    footer = SegmentFooter(
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


def _gathered(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """Join small batches into tables that are large enough for column operations; large batches are passed on."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            pending.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= _GATHERED_ROWS or size >= GROUP_BYTES:
                yield pa.Table.from_batches(pending, SCHEMA)
                pending, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(pending, SCHEMA)
