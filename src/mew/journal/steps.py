"""A journal read in steps: so many records now, the next ones whenever somebody asks again.

For readers that cannot wait in a loop of their own, such as a request over HTTP. Never waits, and keeps nothing between
two steps but a position, an open file and the block or rows that were begun; `let_go` gives up the latter two.
"""

from collections.abc import Generator, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from mew.journal.blocks import Damaged, skim
from mew.journal.following import Follower, Part
from mew.journal.log import Block
from mew.journal.reading import Journal, Missing, is_frame
from mew.protocol.records import Record

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
            for record in _records(part, self.at, control=self._control):
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


def _records(part: Part, at: int, *, control: bool) -> Iterator[Record]:
    found: Iterator[Record]
    if isinstance(part, Block) and control:
        found = (each for each in skim(part.data) if isinstance(each, Record) and not is_frame(each))
    else:
        found = part.records()
    return (record for record in found if record.position >= at)
