"""What a landing is planned by, remembers and finds wrong: values, all of them JSON.

Decides nothing.
"""

from typing import Final

import msgspec

from mew.errors import MewError
from mew.journal.arrow import SCHEMA_VERSION

SEGMENT_RECORDS: Final = 200_000
SEGMENT_BYTES: Final = 64 * 2**20
"""A landed segment ends with the block that reaches either."""


class LandingError(MewError):
    """Blocks cannot be landed, and why."""


class Offsets(msgspec.Struct, frozen=True):
    """Messages of a partition, from one offset up to another, which is not included."""

    start: int
    to: int


class LandingPlan(msgspec.Struct, frozen=True):
    """What one landing takes, decided before any work: each process that takes it up follows it."""

    number: int
    """From 1, without a gap."""
    cluster: str
    topic: str
    partitions: dict[int, Offsets]
    records: int = SEGMENT_RECORDS
    bytes: int = SEGMENT_BYTES
    """How segments are cut: a repetition cuts the same."""


class IngestStopped(msgspec.Struct, frozen=True):
    """Why a space does not continue."""

    at: int
    """The position that would come next."""
    what: str


class IngestPosition(msgspec.Struct, frozen=True):
    """How far a space is."""

    last: int = -1
    """The last position that is landed, together with all before it."""
    time: int = 0
    """Of that record, in microseconds since 1970."""
    epochs: tuple[str, ...] = ()
    """Those that blocks have told of."""
    stopped: IngestStopped | None = None


class LandingDone(msgspec.Struct, frozen=True):
    """The result of a landing; the next one continues from here."""

    number: int
    cluster: str
    topic: str
    partitions: dict[int, int]
    """By partition, the next offset."""
    spaces: dict[str, IngestPosition]


class TopicMessage(msgspec.Struct, frozen=True):
    """A message that was looked at: what its headers and its block say, without the block."""

    partition: int
    offset: int
    space: str
    size: int = 0
    problem: str | None = None
    """Why it is no block of ours; then the rest says nothing."""
    schema: int = SCHEMA_VERSION
    """The version of its block; of one that this program does not read the rest says nothing either."""
    first: int = 0
    last: int = 0
    time: int = 0
    """Of the last record."""
    epoch: str = ""
    after: int = -1
    told: tuple[str, ...] = ()
    """The epochs that its records tell of."""
    file: str = ""
    """The staged file that has its block."""
    at: int = 0
    """And from which byte on."""


class Taken(msgspec.Struct, frozen=True):
    """A block that goes into a segment, from a position on: what is before it was landed already."""

    file: str
    at: int
    size: int
    start: int


class SegmentPlan(msgspec.Struct, frozen=True):
    """A segment that is to be written."""

    space: str
    time: int
    """Of its last record: all are of one hour."""
    first: int
    last: int
    blocks: tuple[Taken, ...]
