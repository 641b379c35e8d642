"""What a lake keeps beside its rows: plans, parts, progress; and what can be wrong with it.

Values only. All of them are JSON, so that a worker can send them and a person can read them.
"""

from typing import Any, Final

import msgspec

from mew.errors import MewError

APPLICATION: Final = "mew"
"""Under this name each table counts the batches that it has."""


class LakeError(MewError):
    """Something about a lake that its owner can do something about."""


class LakeMissing(LakeError):
    """There is no lake in the folder, or it has no finished batch."""


class LakeBusy(LakeError):
    """Another process works on the lake."""


class BatchOutOfOrder(LakeError):
    """A batch that a table cannot take: one before it is missing."""


class LakeDamaged(LakeError):
    """Something that should be in the lake is not there, or not as it was."""


class UnknownTable(LakeError):
    """No table of the lake is called this."""


class Versions(msgspec.Struct, frozen=True):
    """Of the code that makes the rows: another number, other rows."""

    fold: int
    kernel: int
    decoder: int


ABANDONED: Final = Versions(0, 0, 0)
"""Of an abandoned batch: readers see the preceding one, and the next batch rebuilds all tables."""


class Alarm(msgspec.Struct, frozen=True):
    """Something wrong that no batch would find: a row of `audit` to be."""

    space: str
    check: str
    to_position: int
    sample: list[dict[str, Any]]
    """What is wrong, each with a position."""


class BatchPlan(msgspec.Struct, frozen=True):
    """What a batch will cover, decided before any work: each process that takes it up follows it."""

    batch: int
    """From 1, without a gap."""
    start: dict[str, int]
    """By space, the first position of the batch."""
    to: dict[str, int]
    """By space, the last one; of the same spaces."""
    versions: Versions
    refresh: bool = False
    """Whether it rebuilds all tables, instead of adding to them."""
    typed: tuple[str, ...] = ()
    """Formats that are to have a table of their own, by slug or fingerprint, however few frames they have."""
    alarms: tuple[Alarm, ...] = ()
    """What it tells besides of what was found wrong."""


class ParquetPart(msgspec.Struct, frozen=True):
    """A file of a table that is on the disk, but counts only once it is committed."""

    path: str
    """Within the table's folder, with `/`."""
    size: int
    rows: int
    partition: dict[str, str]
    """Of the columns that are in no file, as Delta writes them."""
    stats: str
    """Delta's, as JSON: what engines skip files by."""


class Progress(msgspec.Struct, frozen=True):
    """A batch that is in all tables, and where each of them has it."""

    batch: int
    positions: dict[str, int]
    """By space, the last position."""
    times: dict[str, int]
    """By space, the time of that record, in microseconds since 1970."""
    tables: dict[str, int]
    """The Delta version of each table: together they are one moment of the lake."""
    state: str
    """The state file of the next batch."""
    seconds: dict[str, float]
    """How long each stage took."""
    versions: Versions
    rows: dict[str, int]
    """By table, what the batch added."""
    finished: int = 0
    """When, in microseconds since 1970; 0: the lake will say."""
