"""Reads a journal in order of position, from sealed segments and then from the write-ahead log.

A reader survives what the maintenance worker does meanwhile: sealing, compaction, retention. pyarrow is imported with
the first segment, so a reader of the log alone starts fast.
"""

from collections.abc import Callable, Generator, Iterator
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mew.errors import MewError
from mew.journal.block_format import Damaged, encode, read_head, skim
from mew.journal.layout import Folder, log_first, segments_in
from mew.journal.recovery import synced_bytes
from mew.journal.tail import Follower, Part, never, pause
from mew.journal.wal import Block, LogDamaged, damage_at, is_torn, read_blocks
from mew.protocol.kinds import STREAM_DATA
from mew.protocol.records import CHECKPOINT, ENVELOPE, FRAME, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from mew.journal.segment_reader import Rows


BLOCK_RECORDS: Final = 4096
BLOCK_BYTES: Final = 4 * 2**20
"""Of a block that is made of sealed records."""
MADE: Final = -1
"""The offset of a block that stands in no file."""


class Missing(MewError):
    """Records that should be there and are not."""

    def __init__(self, folder: Folder, first: int, last: int) -> None:
        """From one position to another."""
        super().__init__(f"{folder.root}: the journal of {folder.space!r} has no records {first} to {last}")
        self.first = first
        self.last = last


def is_frame(record: Record) -> bool:
    """Whether a record belongs to the frames: a frame, or stream data that was accepted. The rest is control."""
    return record.event == FRAME or (record.event == ENVELOPE and record.kind == STREAM_DATA)


class Journal:
    """Reads the journal of one space, each record once and in order.

    From 0 on means from the first record there is. From elsewhere on, `Missing` says if that record is gone. A hole is
    passed over only where a checkpoint stands behind it. Damage raises `Damaged`, behind all records before it; what a
    crash left of the last block is none.
    """

    def __init__(self, root: Path, space: str) -> None:
        """It need not exist yet."""
        self.folder = Folder(root, space)
        self._checked: set[tuple[object, ...]] = set()
        """The sealed files whose checksums were found right."""

    @property
    def first(self) -> int | None:
        """The position of the first record, None where there is none."""
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
        """The position of the last record, None where there is none."""
        while True:
            logs = self.folder.logs()
            hours = reversed(self.folder.hours())
            found = next((segments[-1].last for hour in hours if (segments := segments_in(hour))), -1)
            try:
                for path in reversed(logs):
                    for block in self._log(path, newest=path == logs[-1]):
                        found = max(found, block.head.last)
                    if found >= log_first(path):
                        break
                return None if found < 0 else found
            except FileNotFoundError:
                continue  # It has been sealed.

    def position_at(self, time: int) -> int:
        """A position before which every record is older than a time; somewhat earlier than need be."""
        after = 0
        for hour in self.folder.hours():
            for segment in segments_in(hour):
                if hour >= self.folder.hour(time):
                    return segment.first
                after = segment.last + 1
        return after

    def records(self, start: int = 0, *, last: int | None = None, control: bool = False) -> Iterator[Record]:
        """The records from a position on, up to another if one is given, which is then the last.

        Without frames and stream data if only control is wanted.
        """
        for at, part in self._parts(start, control=control):
            for record in _records(part, at, control=control):
                if last is not None and record.position > last:
                    return
                yield record
            if last is not None and _last(part) >= last:
                return

    def batches(self, start: int = 0, *, last: int | None = None, control: bool = False) -> "Iterator[pa.RecordBatch]":
        """Likewise as Arrow, with all columns; what stands together with the last record may come along."""
        from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

        for at, part in self._parts(start, control=control):
            if isinstance(part, Block):
                yield from segment_reader.batches(part, at, control=control)
            elif part.batch.num_rows:
                yield part.batch
            if last is not None and _last(part) >= last:
                return

    def follow(
        self,
        start: int = 0,
        *,
        control: bool = False,
        synced_only: bool = True,
        wait: Callable[[], object] = pause,
        stop: Callable[[], bool] = never,
    ) -> Iterator[Record]:
        """The records from a position on, and then each as it is appended, until told to stop.

        With `synced_only` none that a power cut could still undo. `wait` is called whenever nothing is new.
        """
        follower = self._follower(start, control=control, synced_only=synced_only)
        for at, part in self._followed(follower, wait, stop):
            yield from _records(part, at, control=control)

    def follow_blocks(
        self,
        start: int = 0,
        *,
        synced_only: bool = True,
        wait: Callable[[], object] = pause,
        stop: Callable[[], bool] = never,
    ) -> Iterator[Block]:
        """Likewise as whole blocks: those of the log as they stand there, what is sealed in blocks made anew.

        The first may begin before the position that was asked for.
        """
        follower = self._follower(start, control=False, synced_only=synced_only)
        for at, part in self._followed(follower, wait, stop):
            if isinstance(part, Block):
                yield part
            else:
                yield from _blocks(_records(part, at, control=False))

    # ------------------------------------------------------------------------------- what is there, in order

    def _parts(self, start: int, *, control: bool) -> Iterator[tuple[int, Part]]:
        """What holds the records from a position on, and from which position on it counts."""
        at = start
        gone = _Gone()
        while True:
            # The logs first: one that is sealed meanwhile is then found among the segments.
            logs = self.folder.logs()
            try:
                for part in self._behind(logs, at, control=control):
                    yield self._next(at, part), part
                    at = _last(part) + 1
                return
            except FileNotFoundError as problem:
                gone.look_again(at, problem)

    def _behind(self, logs: list[Path], start: int, *, control: bool) -> Iterator[Part]:
        at = start
        for rows in self._sealed(at, control=control):
            yield rows
            at = rows.last + 1
        for path, following in zip_longest(logs, logs[1:]):
            if following is None or log_first(following) > at:
                for block in self._log(path, newest=following is None):
                    if block.head.last >= at:
                        yield block
                        at = block.head.last + 1

    def _sealed(self, start: int, *, control: bool) -> "Iterator[Rows]":
        at = start
        for segment in self.folder.segments(start):
            from mew.journal import segment_reader  # noqa: PLC0415 - pyarrow, where it is needed

            for rows in segment_reader.read(segment, at, control=control, checked=self._checked):
                yield rows
                at = rows.last + 1

    def _log(self, path: Path, *, newest: bool) -> Iterator[Block]:
        """The blocks of a file; that the last one of all is not whole yet, or was torn by a crash, is no damage."""
        last, synced = log_first(path) - 1, synced_bytes(self.folder, path)
        try:
            for block in read_blocks(path):
                last = block.head.last
                yield block
        except LogDamaged as problem:
            damage = damage_at(path, problem.offset, last)
            if damage is not None and not (newest and is_torn(damage, synced)):
                raise

    def _next(self, at: int, part: Part) -> int:
        """From where on a part counts; `Missing` where something is between, and no checkpoint makes up for it."""
        first = part.head.first if isinstance(part, Block) else part.first
        if at in (0, first) or first < at:
            return at
        floor = self.first
        if floor is not None and floor < at and _begins_with_checkpoint(part):
            return first
        raise Missing(self.folder, at, first - 1)

    # -------------------------------------------------------------------------------------------- as it grows

    def _follower(self, start: int, *, control: bool, synced_only: bool) -> Follower:
        return Follower(self.folder, start, lambda at: self._sealed(at, control=control), synced_only=synced_only)

    def _followed(
        self, follower: Follower, wait: Callable[[], object], stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Part]]:
        gone = _Gone()
        try:
            while not stop():
                try:
                    for part in follower.news():
                        yield self._next(follower.at, part), part
                        if stop():
                            return
                except FileNotFoundError as problem:
                    follower.close()
                    gone.look_again(follower.at, problem)
                    continue
                wait()
        finally:
            follower.close()


class _Gone:
    """A file that was there a moment ago. Sealed or compacted, it is found again elsewhere; twice gone, it is lost."""

    def __init__(self) -> None:
        self._last: tuple[int, str] | None = None

    def look_again(self, at: int, problem: FileNotFoundError) -> None:
        this = (at, str(problem.filename))
        if this == self._last:
            raise Damaged(f"{problem.filename}: it is missing") from None
        self._last = this


def _last(part: Part) -> int:
    return part.head.last if isinstance(part, Block) else part.last


def _begins_with_checkpoint(part: Part) -> bool:
    if not isinstance(part, Block):
        return part.begins_with_checkpoint
    first = next(skim(part.data))
    return isinstance(first, Record) and first.event == CHECKPOINT


def _records(part: Part, at: int, *, control: bool) -> Iterator[Record]:
    if not isinstance(part, Block):
        found = part.records()
    elif control:
        found = (each for each in skim(part.data) if isinstance(each, Record) and not is_frame(each))
    else:
        found = part.records()
    return (record for record in found if record.position >= at)


def _blocks(records: Iterator[Record]) -> Iterator[Block]:
    """Records in blocks, as the log would have them."""
    waiting: list[Record] = []
    size = 0
    for record in records:
        waiting.append(record)
        size += len(record.payload)
        if len(waiting) == BLOCK_RECORDS or size >= BLOCK_BYTES:
            yield _block(waiting)
            waiting, size = [], 0
    if waiting:
        yield _block(waiting)


def _block(records: list[Record]) -> Block:
    data = encode(records)
    return Block(MADE, read_head(data), data)


PARTS: Final = 256
"""Blocks or rows of a segment that one step looks at, where hardly any of their records are wanted."""


class _Mark(Enum):
    """What stands between records."""

    PART = 1
    """A part ends here."""
    END = 2
    """There is nothing more yet."""


class Steps(Journal):
    """One reader of one journal."""

    def __init__(
        self, root: Path, space: str, start: int, *, control: bool, checked: set[tuple[object, ...]] | None = None
    ) -> None:
        """Before the record of a position, or the first there is behind it.

        `checked` are files whose checksums were found right; whoever reads the same ones often keeps it.
        """
        super().__init__(root, space)
        self.at = start
        """The position that comes next: what is before it has been given, or left out as frames."""
        self._control = control
        self._checked = set() if checked is None else checked
        self._follower_now: Follower | None = None
        self._begun: Generator[Record | _Mark] | None = None

    def take(self, records: int, size: int) -> list[Record]:
        """The next records that are written, at most so many, and no more once their payloads have so many bytes.

        Fewer, or none, are the end of the journal only where `at` is behind it. Damage is raised in front of it.
        """
        taken: list[Record] = []
        parts = 0
        while len(taken) < records and size > 0 and parts < PARTS:
            try:
                found = self._one()
            except (Damaged, Missing):
                self.let_go()
                if taken:
                    break
                raise
            if isinstance(found, Record):
                taken.append(found)
                size -= len(found.payload)
            elif found is _Mark.PART:
                parts += 1
            else:
                break
        return taken

    def let_go(self) -> None:
        """Keep nothing but the position, until the next step."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None
        if self._follower_now is not None:
            self._follower_now.close()
            self._follower_now = None

    def _one(self) -> Record | _Mark:
        """What comes next; a file that is gone was sealed or compacted, and is found again elsewhere."""
        gone = None
        while True:
            try:
                return self._one_of_what_was_begun()
            except FileNotFoundError as problem:
                self.let_go()
                if problem.filename == gone:
                    raise Damaged(f"{gone}: it is missing") from None
                gone = problem.filename

    def _one_of_what_was_begun(self) -> Record | _Mark:
        if self._begun is None:
            self._begun = self._news()
        found = next(self._begun, _Mark.END)
        if found is _Mark.END:
            self._begun = None
        return found

    def _news(self) -> Generator[Record | _Mark]:
        """Every new record, and a mark behind each part."""
        if self._follower_now is None:
            self._follower_now = self._follower(self.at, control=self._control, synced_only=False)
        for part in self._follower_now.news():
            self._step_over_what_is_gone(part)
            for record in _step_records(part, self.at, control=self._control):
                self.at = record.position + 1
                yield record
            self.at = (part.head.last if isinstance(part, Block) else part.last) + 1
            yield _Mark.PART

    def _step_over_what_is_gone(self, part: Part) -> None:
        """Retention may have cut meanwhile; any other hole is `Missing`."""
        try:
            self._next(self.at, part)
        except Missing as missing:
            floor = self.first
            if floor is None or floor <= missing.last:
                raise


def _step_records(part: Part, at: int, *, control: bool) -> Iterator[Record]:
    found: Iterator[Record]
    if isinstance(part, Block) and control:
        found = (each for each in skim(part.data) if isinstance(each, Record) and not is_frame(each))
    else:
        found = part.records()
    return (record for record in found if record.position >= at)
