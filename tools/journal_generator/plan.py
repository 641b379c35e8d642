"""What a generated journal is to be: how long, of how many spaces, from when, and where its files end.

One frozen value, checked once.
"""

from pathlib import Path
from typing import Final, Required, TypedDict

import msgspec

from mew.errors import MewError
from mew.journal.generator.cast import space_name
from mew.journal.generator.story import FEWEST
from mew.journal.layout import JournalFolder
from mew.journal.settings import JournalSettings

START: Final = 1_772_441_940_000_000
"""2026-03-02T08:59:00Z: a minute before an hour ends, so that short stories see that too."""


class BadPlan(MewError):
    """A journal that cannot be made."""


class PlanFields(TypedDict, total=False):
    """What `generate` takes by name."""

    records: Required[int]
    spaces: int
    seed: int
    start: int
    seal: bool
    segment_bytes: int
    truth: Path | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A journal to be generated."""

    records: int
    """Of all spaces together."""
    spaces: int = 2
    seed: int = 0
    start: int = START
    """When it begins, in microseconds since 1970."""
    seal: bool = True
    """Whether logs become segments."""
    segment_bytes: int = JournalSettings().segment_bytes
    """So large a log is ended, and sealed."""
    truth: Path | None = None
    """Where the truth goes; None: beside the root."""

    def share(self, index: int) -> int:
        """How many records the space of this number has."""
        return self.records // self.spaces + (index < self.records % self.spaces)

    def check(self, root: Path) -> None:
        """`BadPlan` where this cannot be written there."""
        if self.spaces < 1:
            raise BadPlan("there is at least one space")
        if self.records < FEWEST * self.spaces:
            raise BadPlan(f"a space has at least {FEWEST:,} records: {self.records:,} are too few for {self.spaces}")
        for index in range(self.spaces):
            folder = JournalFolder(root, space_name(index))
            if folder.log.exists() or folder.sealed.exists():
                raise BadPlan(f"{root} has a journal of {folder.space!r} already")
