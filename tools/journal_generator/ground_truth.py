"""Ground truth of a generated journal: what happened in each space.

It comes from the simulation and from the records that the core returned, never from the journal's files, so a test can
compare it with what a reader finds.
"""

from pathlib import Path
from typing import Any

import msgspec


class Owner(msgspec.Struct, array_like=True):
    """The owner of a stream, from this record on."""

    position: int
    time: int
    owner: str


class Writers(msgspec.Struct, array_like=True):
    """The writers of a stream from this record on, the owner first."""

    position: int
    time: int
    writers: tuple[str, ...]


class Skipped(msgspec.Struct, array_like=True):
    """Sequence numbers that a writer skipped; `position` is the one of the gap record."""

    position: int
    writer: str
    first: int
    last: int


class Malformed(msgspec.Struct, array_like=True):
    """An accepted frame or `stream/data` that violates the announced format."""

    frame_number: int
    position: int
    why: str
    """`not_json`, `schema`, `not_utf8` or `length`."""


class Ended(msgspec.Struct, array_like=True):
    """How a stream ended."""

    position: int
    time: int
    kind: str
    by: str
    reason: str | None


class Written(msgspec.Struct):
    """What one writer sent to one stream, counting accepted messages only."""

    frames: int = 0
    data: int = 0
    """Number of `stream/data` envelopes."""
    bytes: int = 0
    """Frames without their header and whole `stream/data` envelopes: the sum of the journal's `size`."""


class StreamTruth(msgspec.Struct, kw_only=True):
    """The lifetime of a stream."""

    stream_id: str
    creator: str
    way: str
    """`request` or `announce`."""
    position: int
    """Position of `stream/open` or `stream/ready`."""
    time: int
    policy: str
    """What happens when the owner disconnects: `close`, `keep` or `transfer`."""
    formats: list[dict[str, Any]] = []
    """The announced formats."""
    targets: tuple[str, ...] | None = None
    started: int | None = None
    """The position from which it was live."""
    owners: list[Owner] = []
    writers: list[Writers] = []
    by_writer: dict[str, Written] = {}
    skipped: list[Skipped] = []
    malformed: list[Malformed] = []
    refused: int = 0
    """Frames that were rejected while it was open."""
    ended: Ended | None = None

    @property
    def frames(self) -> int:
        """Accepted raw frames."""
        return sum(written.frames for written in self.by_writer.values())

    @property
    def data(self) -> int:
        """Accepted `stream/data` envelopes."""
        return sum(written.data for written in self.by_writer.values())

    @property
    def bytes(self) -> int:
        """Total size of frames and data."""
        return sum(written.bytes for written in self.by_writer.values())

    @property
    def format_ids(self) -> list[str]:
        """Ids of the formats."""
        return [descriptor["id"] for descriptor in self.formats]


class Stay(msgspec.Struct, kw_only=True):
    """Presence interval of a participant."""

    participant: str
    transport: str
    anonymous: bool = False
    position: int
    time: int
    takeovers: list[int] = []
    """Positions of joins by which another connection took over."""
    left: int | None = None
    """Position of the leave, or of the gateway start that ended the interval; None if it has not ended."""
    left_time: int | None = None
    reason: str | None = None
    """`restart` if the gateway stopped first."""


class Welcome(msgspec.Struct, kw_only=True):
    """A welcome and the participants and streams it listed."""

    position: int
    participant: str
    why: str
    """`join`, `takeover`, `rejoin`, `capabilities` or `observer`."""
    others: list[str]
    streams: list[str]


class ReaderGap(msgspec.Struct, array_like=True):
    """Frames of a stream that a reader did not receive."""

    position: int
    reader: str
    stream_id: str
    first: int
    last: int
    dropped: int
    reason: str | None


class Granted(msgspec.Struct):
    """Granted capabilities, and the position of their revocation."""

    grant_id: str
    granter: str
    recipient: str
    position: int
    revoked: int | None = None


class Conversation(msgspec.Struct):
    """Related envelopes; the first one is the root."""

    root: str
    positions: list[int]
    kinds: list[str]
    times: list[int]
    outcome: str = "open"
    """`fulfilled`, `rejected`, `withdrawn`, `expired`, `cancelled` or `open`."""


class SpaceTruth(msgspec.Struct, kw_only=True):
    """Ground truth of one space."""

    space: str
    first: int = 0
    last: int = -1
    first_time: int = 0
    last_time: int = 0
    events: dict[str, int] = {}
    """Number of records by event."""
    kinds: dict[str, int] = {}
    """Number of envelopes that were relayed, consumed or sent by the gateway, by kind."""
    refused: dict[str, int] = {}
    """Number of rejected envelopes by reason."""
    refused_frames: dict[str, int] = {}
    """Number of rejected frames by reason."""
    starts: dict[str, int] = {}
    """Position of the first record of each epoch."""
    checkpoints: list[int] = []
    streams: dict[str, StreamTruth] = {}
    """All streams, in order of creation."""
    reader_gaps: list[ReaderGap] = []
    stays: list[Stay] = []
    welcomes: list[Welcome] = []
    grants: list[Granted] = []
    conversations: list[Conversation] = []
    invited: list[str] = []
    kicked: list[str] = []
    """At the end of the journal."""
    paused: list[str] = []
    """At the end of the journal: participants that are paused without a time limit."""

    @property
    def records(self) -> int:
        """Number of records."""
        return self.last - self.first + 1

    @property
    def open_streams(self) -> list[StreamTruth]:
        """Streams that have not ended."""
        return [stream for stream in self.streams.values() if stream.ended is None]

    @property
    def present(self) -> list[str]:
        """Participants that are present at the end of the journal."""
        return [stay.participant for stay in self.stays if stay.left is None]


class Truth(msgspec.Struct):
    """Ground truth of a generated journal."""

    seed: int
    start: int
    spaces: dict[str, SpaceTruth]

    @property
    def records(self) -> int:
        """Number of records in all spaces."""
        return sum(space.records for space in self.spaces.values())


def write_truth(path: Path, truth: Truth) -> None:
    """Write the ground truth to a JSON file."""
    path.write_bytes(msgspec.json.encode(truth))


def read_truth(path: Path) -> Truth:
    """Read a file that `write_truth` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Truth)
