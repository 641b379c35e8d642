"""Parameters of a generated journal: number of records and spaces, seed, start time and file size."""

from pathlib import Path
from typing import Final, Required, TypedDict

import msgspec

from mew.errors import MewError
from mew.journal import JournalSettings
from mew.journal.layout import JournalFolder
from tools.journal_generator.faults import PlantedFault
from tools.journal_generator.participants import space_name

MIN_SPACE_RECORDS: Final = 1_000
"""The smallest number of records that a space can have."""
START: Final = 1_772_441_940_000_000
"""2026-03-02T08:59:00Z: one minute before a full hour, so that short journals also contain a change of the hour."""


class InvalidPlan(MewError):
    """The plan cannot be carried out."""


class PlanFields(TypedDict, total=False):
    """Keyword arguments of `generate`."""

    records: Required[int]
    spaces: int
    seed: int
    start: int
    seal: bool
    segment_bytes: int
    truth: Path | None
    faults: tuple[PlantedFault, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a journal."""

    records: int
    """Total over all spaces."""
    spaces: int = 2
    seed: int = 0
    start: int = START
    """Start time in microseconds since 1970."""
    seal: bool = True
    """Whether WAL files are sealed into segments."""
    segment_bytes: int = JournalSettings().segment_bytes
    """A WAL file that reaches this size is closed, and sealed if `seal` is set."""
    truth: Path | None = None
    """File for the ground truth; None: `truth.json` beside the root."""
    faults: tuple[PlantedFault, ...] = ()
    """Faults that are planted at the end of the spaces, one in each space, beginning with the first."""

    def share(self, index: int) -> int:
        """Return the number of records of the space with this index."""
        return self.records // self.spaces + (index < self.records % self.spaces)

    def check(self, root: Path) -> None:
        """Raise `InvalidPlan` if a journal with this plan cannot be written to `root`."""
        if self.spaces < 1:
            raise InvalidPlan("a journal must have at least one space")
        if self.records < MIN_SPACE_RECORDS * self.spaces:
            raise InvalidPlan(
                f"a space has at least {MIN_SPACE_RECORDS:,} records: {self.records:,} are too few for {self.spaces}"
            )
        if len(self.faults) > self.spaces:
            raise InvalidPlan(f"a space has at most one fault: {len(self.faults)} are too many for {self.spaces}")
        for fault in self.faults:
            fault.check()
        for index in range(self.spaces):
            folder = JournalFolder(root, space_name(index))
            if folder.log.exists() or folder.sealed.exists():
                raise InvalidPlan(f"{root} already contains a journal of the space {folder.space!r}")
