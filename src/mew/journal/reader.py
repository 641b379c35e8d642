"""Reads a journal in order of position, from sealed segments and then from the write-ahead log.

Readers keep working while the maintenance worker seals, compacts or deletes segments. pyarrow is imported with the
first segment, so a reader that needs only the log starts fast.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mew.journal import JournalError
from mew.journal.block_format import CorruptData, encode_block, read_block_head, skim_block
from mew.journal.layout import JournalFolder, Segment, first_position, segments_in
from mew.journal.tail import JournalPart, WalFollower, never_stop, wait_for_poll
from mew.journal.wal import Block, LogDamaged, is_torn_write, log_damage_at, read_blocks, synced_bytes
from mew.protocol.kinds import STREAM_DATA
from mew.protocol.records import CHECKPOINT, ENVELOPE, FRAME, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from mew.journal.segment_reader import FrameGroup, RecordRows


ENCODED_RECORDS: Final = 4096
ENCODED_BYTES: Final = 4 * 2**20
"""Maximum size of the payloads in a block made of sealed records, in bytes."""
NOT_STORED: Final = -1
"""The offset of a block that is not stored in any file."""


class RecordsMissing(JournalError):
    """Records that should be in the journal are missing."""

    def __init__(self, folder: JournalFolder, first: int, last: int) -> None:
        """`first` and `last` are the first and the last missing position."""
        super().__init__(f"{folder.root}: the journal of {folder.space!r} has no records {first} to {last}")
        self.first = first
        self.last = last


class MissingFile:
    """Decides what a missing file means: sealing and compaction move its records, so a reader looks again.

    If the same file is missing twice at the same position, it is lost.
    """

    def __init__(self) -> None:
        """Start without a missing file."""
        self._last: tuple[int, str] | None = None

    def is_lost(self, position: int, error: FileNotFoundError) -> bool:
        """Whether the file was already missing when the reader last looked for this position."""
        before, self._last = self._last, (position, str(error.filename))
        return self._last == before

    def look_again(self, position: int, error: FileNotFoundError) -> None:
        """Return if the reader should look again; raise `CorruptData` if the file is lost."""
        if self.is_lost(position, error):
            raise CorruptData(f"{error.filename}: it is missing") from None


def is_data_record(record: Record) -> bool:
    """Whether a record is a frame or accepted stream data. All other records are control records."""
    return record.event == FRAME or (record.event == ENVELOPE and record.kind == STREAM_DATA)


class Journal:
    """Reads the journal of one space, each record once and in order.

    A start position of 0 means the first existing record. For any other start position, `RecordsMissing` is raised if
    that record no longer exists. A gap is skipped only if a checkpoint follows it. Damage raises `CorruptData` after
    all earlier records were returned. A torn write at the end after a crash is not damage.
    """

    def __init__(self, root: Path, space: str) -> None:
        """Open nothing yet; the journal does not need to exist."""
        self.folder = JournalFolder(root, space)
        self._checked: set[tuple[object, ...]] = set()
        """Sealed files whose checksums were verified."""

    @property
    def first(self) -> int | None:
        """Position of the first record; None if there is none."""
        while True:
            logs = self.folder.logs()
            for hour in self.folder.hours():
                for segment in segments_in(hour):
                    return segment.first
            try:
                blocks = (block for path in logs for block in self._log(path, newest=path == logs[-1]))
                return next((block.head.first for block in blocks), None)
            except FileNotFoundError:
                continue  # It has been sealed.

    @property
    def last(self) -> int | None:
        """Position of the last record; None if there is none."""
        while True:
            logs = self.folder.logs()
            hours = reversed(self.folder.hours())
            position = next((segments[-1].last for hour in hours if (segments := segments_in(hour))), -1)
            try:
                for path in reversed(logs):
                    for block in self._log(path, newest=path == logs[-1]):
                        position = max(position, block.head.last)
                    if position >= first_position(path):
                        break
                return None if position < 0 else position
            except FileNotFoundError:
                continue  # It has been sealed.

    def position_at(self, time: int) -> int:
        """Return a position such that all earlier records are older than `time`. It may be earlier than necessary."""
        after = 0
        for hour in self.folder.hours():
            for segment in segments_in(hour):
                if hour >= self.folder.hour(time):
                    return segment.first
                after = segment.last + 1
        return after

    def records(self, start: int = 0, *, last: int | None = None, control: bool = False) -> Iterator[Record]:
        """Yield the records from `start` to `last` inclusive, or to the end.

        With `control`, frames and stream data are left out.
        """
        for at, part in self._parts(start, control=control):
            for record in _records(part, at, control=control):
                if last is not None and record.position > last:
                    return
                yield record
            if last is not None and _last(part) >= last:
                return

    def batches(self, start: int = 0, *, last: int | None = None, control: bool = False) -> "Iterator[pa.RecordBatch]":
        """Same as `records`, as Arrow batches with all columns. Records stored with the last one may be included."""
        from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

        for at, part in self._parts(start, control=control):
            if isinstance(part, Block):
                yield from segment_reader.block_batches(part, at, control=control)
            elif part.batch.num_rows:
                yield part.batch
            if last is not None and _last(part) >= last:
                return

    def frame_batches(self, first: int, last: int, columns: Sequence[str] = ()) -> "Iterator[pa.Table]":
        """Yield the frames and stream data of a range, in order, one table per row group.

        With `columns`, the tables have only these and the position. Raises `RecordsMissing` unless the whole range is
        sealed. Checksums of pages are verified, but not those of whole files.
        """
        from mew.journal.arrow import SCHEMA  # noqa: PLC0415 - pyarrow, where it is needed
        from mew.journal.segment_reader import frame_row_groups  # noqa: PLC0415 - as above

        names = [name for name in SCHEMA.names if not columns or name in ("position", *columns)]
        at, missing = first, MissingFile()
        while at <= last:
            try:
                for segment in self._covering(at, last):
                    for table in frame_row_groups(segment, names, first=at, last=last):
                        yield table
                        at = table["position"][-1].as_py() + 1
                    at = segment.last + 1
            except FileNotFoundError as error:
                missing.look_again(at, error)

    def sealed_tables(
        self, first: int, last: int, *, control: bool = True, frames: bool = True
    ) -> "Iterator[pa.Table]":
        """Yield the records of a range, in order, without the control records or without frames and stream data.

        Same errors and checks as `frame_batches`.
        """
        from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

        at, missing = first, MissingFile()
        while at <= last:
            try:
                for segment in self._covering(at, last):
                    tables = segment_reader.merge_rows(
                        segment_reader.row_groups(segment.control, first=at, last=last) if control else iter(()),
                        segment_reader.frame_row_groups(segment, first=at, last=last) if frames else iter(()),
                    )
                    for table in tables:
                        yield table
                        at = table["position"][-1].as_py() + 1
                    at = segment.last + 1
            except FileNotFoundError as error:
                missing.look_again(at, error)

    def frame_groups(self, first: int, last: int) -> "list[FrameGroup]":
        """Return the row groups with frames or stream data of a sealed range. Same errors as `frame_batches`."""
        from mew.journal.segment_reader import frame_groups  # noqa: PLC0415 - pyarrow, where it is needed

        missing = MissingFile()
        while True:
            try:
                segments = self._covering(first, last)
                return [group for segment in segments for group in frame_groups(segment, first, last)]
            except FileNotFoundError as error:
                missing.look_again(first, error)

    def _covering(self, first: int, last: int) -> Iterator[Segment]:
        """Yield the segments that cover a range. A gap is skipped only if a checkpoint follows it."""
        from mew.journal.segment_reader import starts_with_checkpoint  # noqa: PLC0415 - pyarrow, where it is needed

        at = first
        for segment in self.folder.segments(first):
            if segment.first > last:
                break
            if segment.first > at and not starts_with_checkpoint(segment):
                raise RecordsMissing(self.folder, at, segment.first - 1)
            yield segment
            at = segment.last + 1
        if at <= last:
            raise RecordsMissing(self.folder, at, last)

    def follow(
        self,
        start: int = 0,
        *,
        control: bool = False,
        synced_only: bool = True,
        wait: Callable[[], object] = wait_for_poll,
        stop: Callable[[], bool] = never_stop,
    ) -> Iterator[Record]:
        """Yield the records from a position on, then each new record as it is appended, until `stop` returns True.

        With `synced_only`, records that a power failure could still undo are held back. `wait` is called whenever there
        is no new record.
        """
        follower = self._follower(start, control=control, synced_only=synced_only)
        for at, part in self._followed(follower, wait, stop):
            yield from _records(part, at, control=control)

    def follow_blocks(
        self,
        start: int = 0,
        *,
        synced_only: bool = True,
        wait: Callable[[], object] = wait_for_poll,
        stop: Callable[[], bool] = never_stop,
    ) -> Iterator[Block]:
        """Same as `follow`, but as whole blocks: log blocks unchanged, sealed records in newly encoded blocks.

        The first block may begin before the requested position.
        """
        follower = self._follower(start, control=False, synced_only=synced_only)
        for at, part in self._followed(follower, wait, stop):
            if isinstance(part, Block):
                yield part
            else:
                yield from _blocks(_records(part, at, control=False))

    # ------------------------------------------------------------------------------------------------- reading in order

    def _parts(self, start: int, *, control: bool) -> Iterator[tuple[int, JournalPart]]:
        """Yield the parts with the records from a position on, each with the position from which it counts."""
        at = start
        missing = MissingFile()
        while True:
            # List the logs first: a log that is sealed in the meantime is then found among the segments.
            logs = self.folder.logs()
            try:
                for part in self._sealed_then_log(logs, at, control=control):
                    yield self._start_of(at, part), part
                    at = _last(part) + 1
                return
            except FileNotFoundError as error:
                missing.look_again(at, error)

    def _sealed_then_log(self, logs: list[Path], start: int, *, control: bool) -> Iterator[JournalPart]:
        at = start
        for rows in self._sealed(at, control=control):
            yield rows
            at = rows.last + 1
        for path, following in zip_longest(logs, logs[1:]):
            if following is None or first_position(following) > at:
                for block in self._log(path, newest=following is None):
                    if block.head.last >= at:
                        yield block
                        at = block.head.last + 1

    def _sealed(self, start: int, *, control: bool) -> "Iterator[RecordRows]":
        at = start
        for segment in self.folder.segments(start):
            from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

            for rows in segment_reader.read_rows(segment, at, control=control, checked=self._checked):
                yield rows
                at = rows.last + 1

    def _log(self, path: Path, *, newest: bool) -> Iterator[Block]:
        """Yield the blocks of a file. An incomplete or torn block at the end of the newest file is not damage."""
        last, synced = first_position(path) - 1, synced_bytes(self.folder, path)
        try:
            for block in read_blocks(path):
                last = block.head.last
                yield block
        except LogDamaged as problem:
            damage = log_damage_at(path, problem.offset, last)
            if damage is not None and not (newest and is_torn_write(damage, synced)):
                raise

    def _start_of(self, at: int, part: JournalPart) -> int:
        """Return the position from which a part counts, or raise `RecordsMissing` after a gap without a checkpoint."""
        first = part.head.first if isinstance(part, Block) else part.first
        if at in (0, first) or first < at:
            return at
        floor = self.first
        if floor is not None and floor < at and _starts_with_checkpoint(part):
            return first
        raise RecordsMissing(self.folder, at, first - 1)

    # -------------------------------------------------------------------------------------------------------- following

    def _follower(self, start: int, *, control: bool, synced_only: bool) -> WalFollower:
        return WalFollower(self.folder, start, lambda at: self._sealed(at, control=control), synced_only=synced_only)

    def _followed(
        self, follower: WalFollower, wait: Callable[[], object], stop: Callable[[], bool]
    ) -> Iterator[tuple[int, JournalPart]]:
        missing = MissingFile()
        try:
            while not stop():
                try:
                    for part in follower.new_parts():
                        yield self._start_of(follower.position, part), part
                        if stop():
                            return
                except FileNotFoundError as error:
                    follower.close()
                    missing.look_again(follower.position, error)
                    continue
                wait()
        finally:
            follower.close()


def _last(part: JournalPart) -> int:
    return part.head.last if isinstance(part, Block) else part.last


def _starts_with_checkpoint(part: JournalPart) -> bool:
    if not isinstance(part, Block):
        return part.starts_with_checkpoint
    first = next(skim_block(part.data))
    return isinstance(first, Record) and first.event == CHECKPOINT


def _records(part: JournalPart, at: int, *, control: bool) -> Iterator[Record]:
    records: Iterator[Record]
    if isinstance(part, Block) and control:
        records = (entry for entry in skim_block(part.data) if isinstance(entry, Record) and not is_data_record(entry))
    else:
        records = part.records()
    return (record for record in records if record.position >= at)


def _blocks(records: Iterator[Record]) -> Iterator[Block]:
    """Encode records as blocks like those in the log."""
    waiting: list[Record] = []
    size = 0
    for record in records:
        waiting.append(record)
        size += len(record.payload)
        if len(waiting) == ENCODED_RECORDS or size >= ENCODED_BYTES:
            yield _block(waiting)
            waiting, size = [], 0
    if waiting:
        yield _block(waiting)


def _block(records: list[Record]) -> Block:
    data = encode_block(records)
    return Block(NOT_STORED, read_block_head(data), data)


PARTS_PER_READ: Final = 256
"""Maximum number of parts (blocks, or rows of a segment) that one step reads if few of their records are wanted."""


class _Marker(Enum):
    """Marks between records."""

    PART = 1
    """End of a part."""
    END = 2
    """No more records yet."""


class JournalCursor(Journal):
    """Reads one journal step by step, for one reader."""

    def __init__(
        self, root: Path, space: str, start: int, *, control: bool, checked: set[tuple[object, ...]] | None = None
    ) -> None:
        """Start before the record at `start`, or before the first record after it.

        `checked` are files whose checksums were verified. A caller that often reads the same files keeps this set.
        """
        super().__init__(root, space)
        self.position = start
        """The next position. Earlier records were returned, or skipped as frames."""
        self._control = control
        self._checked = set() if checked is None else checked
        self._active_follower: WalFollower | None = None
        self._current: Generator[Record | _Marker] | None = None

    def read(self, count: int, size: int) -> list[Record]:
        """Return up to `count` records that are written; stop once their payloads reach `size` bytes.

        Fewer records, or none, mean the end of the journal only if `position` is after its last record. Damage is
        raised once all records before it were returned.
        """
        records: list[Record] = []
        parts = 0
        while len(records) < count and size > 0 and parts < PARTS_PER_READ:
            try:
                item = self._next_item()
            except (CorruptData, RecordsMissing):
                self.release()
                if records:
                    break
                raise
            if isinstance(item, Record):
                records.append(item)
                size -= len(item.payload)
            elif item is _Marker.PART:
                parts += 1
            else:
                break
        return records

    def release(self) -> None:
        """Release all resources and keep only the position, until the next step."""
        if self._current is not None:
            self._current.close()
            self._current = None
        if self._active_follower is not None:
            self._active_follower.close()
            self._active_follower = None

    def _next_item(self) -> Record | _Marker:
        """Return the next record or mark. If a file has disappeared, look again: it was sealed or compacted."""
        missing = MissingFile()
        while True:
            try:
                return self._next_of_current()
            except FileNotFoundError as error:
                self.release()
                missing.look_again(self.position, error)

    def _next_of_current(self) -> Record | _Marker:
        if self._current is None:
            self._current = self._new_records()
        item = next(self._current, _Marker.END)
        if item is _Marker.END:
            self._current = None
        return item

    def _new_records(self) -> Generator[Record | _Marker]:
        """Yield every new record, and a mark after each part."""
        if self._active_follower is None:
            self._active_follower = self._follower(self.position, control=self._control, synced_only=False)
        for part in self._active_follower.new_parts():
            self._accept_retention(part)
            for record in _records(part, self.position, control=self._control):
                self.position = record.position + 1
                yield record
            self.position = (part.head.last if isinstance(part, Block) else part.last) + 1
            yield _Marker.PART

    def _accept_retention(self, part: JournalPart) -> None:
        """Accept a gap if retention has just deleted the records; any other gap raises `RecordsMissing`."""
        try:
            self._start_of(self.position, part)
        except RecordsMissing as missing:
            floor = self.first
            if floor is None or floor <= missing.last:
                raise
