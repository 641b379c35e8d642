"""Flips one bit of a journal at a time, and looks what verification and reading make of it.

Must not know how damage is found: only what must come of it.
"""

import random
from pathlib import Path

from mew.journal.block_format import CorruptData
from mew.journal.layout import Segment
from mew.journal.reader import Journal
from mew.journal.verify import VerificationReport, verify_journal
from mew.journal.wal import read_blocks
from mew.protocol.records import Record
from tests.journal.journal_fixture import JournalFixture


def read_until_damage(fixture: JournalFixture, start: int = 0) -> tuple[list[Record], CorruptData | None]:
    """The records from a position on, as far as they can be read, and what ended it."""
    records: list[Record] = []
    try:
        for record in Journal(fixture.folder.root, fixture.folder.space).records(start):
            records.append(record)
    except CorruptData as damage:
        return records, damage
    return records, None


def verified(fixture: JournalFixture) -> VerificationReport:
    return verify_journal(fixture.folder.root, fixture.folder.space)


class Flips:
    """The files of a journal, and what stands in each."""

    def __init__(self, fixture: JournalFixture) -> None:
        self.fixture = fixture
        self.logs = {path: list(read_blocks(path)) for path in fixture.folder.logs()}
        self.segments = {
            path: segment for segment in fixture.folder.segments() for path in (segment.control, segment.frames)
        }
        self.files = [*self.logs, *self.segments]

    def flip_and_check(self, seed: int) -> None:
        """Flip a bit by chance; then it is found, everything before it is read, nothing is invented."""
        chance = random.Random(seed)
        path = chance.choice(self.files)
        whole = path.read_bytes()
        bit = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            if path in self.logs:
                self.check_log(path, bit // 8)
            else:
                self.check_segment(path, self.segments[path])
        finally:
            path.write_bytes(whole)

    def check_log(self, path: Path, byte: int) -> None:
        *before, damaged = [block for block in self.logs[path] if block.offset <= byte]
        behind = self.logs[path][len(before) + 1 :]
        torn = path == self.fixture.folder.logs()[-1] and not behind
        (problem,) = verified(self.fixture).problems
        assert (problem.path, problem.place) == (path, f"byte {damaged.offset}")
        assert problem.sort == ("torn" if torn else "damage")
        count = sum(block.head.records for block in behind)
        assert (f"{count} records after it are intact but cannot be read" in problem.what) is bool(count)
        records, damage = read_until_damage(self.fixture)
        if any(segment.last >= damaged.head.first for segment in self.segments.values()):
            assert records == self.fixture.records  # it is sealed, and no longer needed
        else:
            assert records == self.fixture.records[: damaged.head.first]
            assert torn or str(damage).startswith(f"{path}: damaged at byte {damaged.offset}: ")
        if path != self.fixture.folder.logs()[-1]:
            following = self.logs[path][-1].head.last + 1
            assert read_until_damage(self.fixture, following) == (self.fixture.records[following:], None)

    def check_segment(self, path: Path, segment: Segment) -> None:
        (problem,) = verified(self.fixture).problems
        assert (problem.path, problem.sort) == (path, "damage")
        assert problem.place in ("", "row group 0")
        records, damage = read_until_damage(self.fixture)
        assert records == self.fixture.records[: segment.first]
        assert str(damage).startswith(f"{path}: ")
        following = segment.last + 1
        assert read_until_damage(self.fixture, following) == (self.fixture.records[following:], None)
