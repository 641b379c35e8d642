"""A segment that is being written: rows go into two Parquet files under other names until both are whole.

Decides nothing about what the rows are or when they are written; what is not published is discarded.
"""

import os
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.journal import checksums
from mew.journal.folder import DIGITS, Segment
from mew.journal.log import sync_folder
from mew.journal.tables import SCHEMA, SCHEMA_VERSION
from mew.protocol.records import CHECKPOINT, ENVELOPE, FRAME, START

GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 64 << 20
"""A row group is written once it has so many rows, or so many bytes before compression."""
TEMPORARY: Final = ".tmp"
VERSION_KEY: Final = b"mew.schema_version"
_MODE: Final = 0o600
_STREAM_DATA: Final = "stream/data"
_NUMBERS: Final = ("position", "time", "frame_number", "sequence", "size")
_TEXTS: Final = ("event", "participant", "kind", "stream_id", "reason", "capability")
"""Those that repeat themselves."""
_FORMAT: Final[dict[str, Any]] = {
    "compression": "zstd",
    # Every reader sees plain types: a stored Arrow schema would show its own to some and not to others.
    "store_schema": False,
    "use_dictionary": list(_TEXTS),
    "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
    "write_statistics": [*_NUMBERS, *_TEXTS, "envelope_id"],
    "write_page_checksum": True,
}


class _Start(msgspec.Struct):
    """What a `start` record's payload has for us."""

    epoch: str


class Draft:
    """Rows of one hour on their way to a segment."""

    def __init__(self, hour: Path) -> None:
        """In a folder that exists."""
        self._hour = hour
        self._first = self._next = -1
        self._files: dict[str, _File] = {}
        self._epochs: list[str] = []
        self.checkpoint: int | None = None
        """The position of the last checkpoint record so far."""

    @property
    def epochs(self) -> tuple[str, ...]:
        """Those that began so far."""
        return tuple(self._epochs)

    @property
    def segment(self) -> Segment:
        """What the rows so far would be; `ValueError` where there are none."""
        if self._first < 0:
            raise ValueError("a segment without records")
        return Segment(self._hour, self._first, self._next - 1)

    @property
    def frames(self) -> int:
        """How many rows belong into the frames file so far."""
        return self._files["frames"].rows if "frames" in self._files else 0

    def add(self, table: pa.Table) -> None:
        """Put rows into the files where they belong; their positions follow those before."""
        positions = table.column("position").to_numpy()
        if self._first < 0:
            self._first = self._next = int(positions[0])
        if not np.array_equal(positions, np.arange(self._next, self._next + len(positions))):
            raise ValueError(f"positions from {self._next} on do not follow each other")
        self._next += len(positions)
        frames = are_frames(table)
        found = pc.sum(frames).as_py()
        if found:
            self._file("frames").add(table if found == len(positions) else table.filter(frames))
        if found < len(positions):
            self._add_control(table.filter(pc.invert(frames)) if found else table)

    def _add_control(self, table: pa.Table) -> None:
        self._file("control").add(table)
        events = table.column("event")
        for payload in table.column("payload").filter(pc.equal(events, START)).to_pylist():
            self._epochs.append(msgspec.json.decode(payload, type=_Start).epoch)
        checkpoint = pc.max(table.column("position").filter(pc.equal(events, CHECKPOINT))).as_py()
        self.checkpoint = self.checkpoint if checkpoint is None else checkpoint

    def _file(self, part: str) -> "_File":
        if part not in self._files:
            # Hidden, because Spark reads every file of a folder that is not.
            self._files[part] = _File(self._hour / f".{self._first:0{DIGITS}}.{part}{TEMPORARY}")
        return self._files[part]

    def publish_frames(self) -> str | None:
        """Give the frames file its name, for good; its checksum, or nothing where there are no frames."""
        if not self.frames:
            return None
        file = self._files["frames"]
        file.close({})
        checksum = checksums.of_file(file.path)
        _publish(file.path, self.segment.frames)
        return checksum

    def publish_control(self, metadata: dict[bytes, bytes]) -> None:
        """Then the control file, which says this of the segment; rows or not, it is always there."""
        file = self._file("control")
        file.close({**metadata, checksums.KEY: checksums.UNKNOWN})
        checksums.stamp(file.path)
        _publish(file.path, self.segment.control)

    def discard(self) -> None:
        """Take away what was not published."""
        for file in self._files.values():
            file.discard()


class _File:
    """One Parquet file that is being written, a row group at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE))
        self._writer = pq.ParquetWriter(path, SCHEMA, **_FORMAT)
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Behind what is there."""
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
        """Nothing more comes."""
        if self._rows:
            self._write_group()
        self._writer.add_key_value_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode(), **metadata})
        self._writer.close()

    def discard(self) -> None:
        """It was for nothing."""
        try:
            self._writer.close()
        finally:
            self.path.unlink(missing_ok=True)


def are_frames(table: pa.Table | pa.RecordBatch) -> Any:
    """For each row whether it belongs into the frames file: frames, and stream data that was accepted."""
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
    sync_folder(name.parent)
