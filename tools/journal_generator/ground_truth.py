"""The truth beside a generated journal: what its story did and had to expect, for whoever reads the journal.

Never computed from the journal: the story keeps it, and a test that compares the two learns something.
"""

from pathlib import Path
from typing import Any

import msgspec


class Owner(msgspec.Struct, array_like=True):
    """From this record on the stream is this participant's."""

    position: int
    time: int
    owner: str


class Writers(msgspec.Struct, array_like=True):
    """From this record on these may write, the owner first."""

    position: int
    time: int
    writers: tuple[str, ...]


class Skipped(msgspec.Struct, array_like=True):
    """Numbers that a writer left out of its sequence; `position` is that of the gap's record."""

    position: int
    writer: str
    first: int
    last: int


class Malformed(msgspec.Struct, array_like=True):
    """An accepted frame or `stream/data` that is not what its stream announced."""

    frame_number: int
    position: int
    why: str
    """`not_json`, `schema`, `not_utf8` or `length`."""


class Ended(msgspec.Struct, array_like=True):
    """How a stream came to its end."""

    position: int
    time: int
    kind: str
    by: str
    reason: str | None


class Written(msgspec.Struct):
    """What one writer sent to one stream and was accepted."""

    frames: int = 0
    data: int = 0
    """`stream/data`."""
    bytes: int = 0
    """Of frames without their header, of `stream/data` the whole envelope: what the journal has as size."""


class StreamTruth(msgspec.Struct, kw_only=True):
    """The whole life of a stream."""

    stream_id: str
    creator: str
    way: str
    """`request` or `announce`."""
    position: int
    """Of `stream/open` or `stream/ready`."""
    time: int
    policy: str
    """`close`, `keep` or `transfer`, when its owner goes."""
    formats: list[dict[str, Any]] = []
    """As announced."""
    targets: tuple[str, ...] | None = None
    started: int | None = None
    """The position from which it was live."""
    owners: list[Owner] = []
    writers: list[Writers] = []
    by_writer: dict[str, Written] = {}
    skipped: list[Skipped] = []
    malformed: list[Malformed] = []
    refused: int = 0
    """Frames that were not accepted while it was open."""
    ended: Ended | None = None

    @property
    def frames(self) -> int:
        """Raw frames that were accepted."""
        return sum(each.frames for each in self.by_writer.values())

    @property
    def data(self) -> int:
        """`stream/data` that was accepted."""
        return sum(each.data for each in self.by_writer.values())

    @property
    def bytes(self) -> int:
        """The size of both."""
        return sum(each.bytes for each in self.by_writer.values())

    @property
    def format_ids(self) -> list[str]:
        """The ids of its formats."""
        return [each["id"] for each in self.formats]


class Stay(msgspec.Struct, kw_only=True):
    """A participant was here from one record to another."""

    participant: str
    transport: str
    anonymous: bool = False
    position: int
    time: int
    takeovers: list[int] = []
    """Positions of the joins by which another connection took its seat."""
    left: int | None = None
    """The position of its leave, or of the start that found it gone; None where it stayed."""
    left_time: int | None = None
    reason: str | None = None
    """`restart` where the gateway went before it."""


class Welcome(msgspec.Struct, kw_only=True):
    """A welcome, and what it had to say."""

    position: int
    participant: str
    why: str
    """`join`, `takeover`, `rejoin`, `capabilities` or `observer`."""
    others: list[str]
    streams: list[str]


class ReaderGap(msgspec.Struct, array_like=True):
    """Frames of a stream that a reader did not get."""

    position: int
    reader: str
    stream_id: str
    first: int
    last: int
    dropped: int
    reason: str | None


class Granted(msgspec.Struct):
    """Capabilities that were handed on, and the position where they were taken back."""

    grant_id: str
    granter: str
    recipient: str
    position: int
    revoked: int | None = None


class Conversation(msgspec.Struct):
    """Envelopes that answer one another, the first of which is its root."""

    root: str
    positions: list[int]
    kinds: list[str]
    times: list[int]
    outcome: str = "open"
    """`fulfilled`, `rejected`, `withdrawn`, `expired`, `cancelled` or `open`."""


class SpaceTruth(msgspec.Struct, kw_only=True):
    """What is true of the journal of one space."""

    space: str
    first: int = 0
    last: int = -1
    first_time: int = 0
    last_time: int = 0
    events: dict[str, int] = {}
    """Records by event."""
    kinds: dict[str, int] = {}
    """Envelopes that were relayed, consumed or said, by kind."""
    refused: dict[str, int] = {}
    """Envelopes by reason."""
    refused_frames: dict[str, int] = {}
    """Frames by reason."""
    starts: dict[str, int] = {}
    """The position at which each epoch began."""
    checkpoints: list[int] = []
    streams: dict[str, StreamTruth] = {}
    """Every stream there ever was, in order."""
    reader_gaps: list[ReaderGap] = []
    stays: list[Stay] = []
    welcomes: list[Welcome] = []
    grants: list[Granted] = []
    conversations: list[Conversation] = []
    invited: list[str] = []
    kicked: list[str] = []
    """In the end."""
    paused: list[str] = []
    """In the end, until somebody resumes them."""

    @property
    def records(self) -> int:
        """How many there are."""
        return self.last - self.first + 1

    @property
    def open_streams(self) -> list[StreamTruth]:
        """Those that have not ended."""
        return [stream for stream in self.streams.values() if stream.ended is None]

    @property
    def present(self) -> list[str]:
        """Who is here in the end."""
        return [stay.participant for stay in self.stays if stay.left is None]


class Truth(msgspec.Struct):
    """What is true of a generated journal."""

    seed: int
    start: int
    spaces: dict[str, SpaceTruth]

    @property
    def records(self) -> int:
        """Of all spaces."""
        return sum(each.records for each in self.spaces.values())


def write_truth(path: Path, truth: Truth) -> None:
    """Put it into a file of JSON."""
    path.write_bytes(msgspec.json.encode(truth))


def read_truth(path: Path) -> Truth:
    """What `write_truth` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Truth)
