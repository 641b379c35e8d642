"""Decides which journal records a participant or observer may read: those the protocol would have sent to it.

Each record is decided separately. A record with unknown recipients is shown to no one (docs/journal.md, Over HTTP).
"""

from typing import Final, TypeAlias

import msgspec

from mew.journal.layout import Segment, segments_in
from mew.journal.reader import Journal, is_data_record
from mew.protocol import GATEWAY, Identity, Record, records
from mew.protocol.kinds import INVITE_ACK, STREAM_OPEN, STREAM_READY

_Audience: TypeAlias = frozenset[str] | None
"""The recipients of a stream's data; None means all participants."""
MAX_CACHED_STREAMS: Final = 10_000
"""Maximum number of streams whose recipients are cached."""
_NOBODY: Final[_Audience] = frozenset()
_FOR_ONE: Final = frozenset({records.WELCOMED, records.CONSUMED, records.REJECTED, records.FRAME_REJECTED, records.GAP})
"""Events sent only to their participant, or sent by it only to the gateway."""
_FOR_ALL: Final = frozenset({records.START, records.JOINED, records.LEFT, records.ENVELOPE})
"""Events sent to all participants, or that all may query. Unknown events are not included."""
_TAKEOVER: Final = "takeover"
_OBSERVER: Final = "observer"


class _Request(msgspec.Struct):
    """The part of a stream request that names the recipients of its data."""

    target: list[str] | None = None

    @property
    def audience(self) -> _Audience:
        return None if self.target is None else frozenset(self.target)


class _Opened(msgspec.Struct):
    """A `stream/open` or `stream/ready` envelope."""

    payload: _Request


class _Stream(msgspec.Struct):
    stream_id: str
    fields: _Request


class _Snapshot(msgspec.Struct):
    """The part of a checkpoint that describes streams."""

    streams: list[_Stream]


class _Addressed(msgspec.Struct):
    to: list[str] = []


class StreamAudiences:
    """The recipients of each stream's data in one space. A stream's id and targets never change."""

    def __init__(self, max_streams: int = MAX_CACHED_STREAMS) -> None:
        """Start with an empty cache, which is cleared when it has `max_streams`."""
        self._max_streams = max_streams
        self._known: dict[str, _Audience] = {}

    def observe(self, record: Record) -> None:
        """Remember the recipients if the record describes a new stream."""
        learnt = _learnt(record)
        if learnt:
            self._keep(learnt)

    def of(self, stream_id: str, journal: Journal, position: int) -> _Audience:
        """Return the recipients of a stream that was open at this position of this journal."""
        if stream_id in self._known:
            return self._known[stream_id]
        # If the start of the stream is not found, show its data to no one.
        audiences = {stream_id: _NOBODY, **_open_at(journal, position)}
        self._keep(audiences)
        return audiences[stream_id]

    def _keep(self, audiences: dict[str, _Audience]) -> None:
        if len(self._known) >= self._max_streams:
            self._known = {}
        self._known.update(audiences)


def _learnt(record: Record) -> dict[str, _Audience]:
    """Return the stream recipients that a record defines: none for a participant's `stream/open` (protocol §1)."""
    if record.kind in (STREAM_OPEN, STREAM_READY) and record.participant == GATEWAY and record.stream_id is not None:
        return {record.stream_id: msgspec.json.decode(record.payload, type=_Opened).payload.audience}
    return {}


def _open_at(journal: Journal, position: int) -> dict[str, _Audience]:
    """Return the recipients of all streams open at a position, and of some others.

    Reads the last checkpoint before the position and the records after it.
    """
    audiences: dict[str, _Audience] = {}
    for record in journal.records(_checkpoint_before(journal, position), control=True):
        if record.position >= position:
            break
        if record.event == records.CHECKPOINT:
            streams = msgspec.json.decode(record.payload, type=_Snapshot).streams
            audiences |= {stream.stream_id: stream.fields.audience for stream in streams}
        audiences |= _learnt(record)
    return audiences


def _checkpoint_before(journal: Journal, position: int) -> int:
    """Return the position of the last sealed checkpoint before this one, or 0."""
    while True:
        hours = reversed(journal.folder.hours())
        segments = (segment for hour in hours for segment in reversed(segments_in(hour)) if segment.first < position)
        try:
            return next((at for segment in segments if (at := _checkpoint_in(segment, position)) is not None), 0)
        except FileNotFoundError:
            continue  # The segment was compacted; try again.


def _checkpoint_in(segment: Segment, before: int) -> int | None:
    import pyarrow.compute as pc  # noqa: PLC0415 - where it is needed

    from mew.journal.segment_reader import read_control, read_footer  # noqa: PLC0415 - as above

    last = read_footer(segment).checkpoint
    if last is None or last < before:
        return last
    table = read_control(segment, ["position", "event"])
    checkpoints = table.filter(pc.equal(table["event"], records.CHECKPOINT))["position"].to_pylist()
    return max((position for position in checkpoints if position < before), default=None)


class JournalAccess:
    """A holder of a token of the space who reads its journal."""

    def __init__(self, identity: Identity, targets: StreamAudiences, journal: Journal) -> None:
        """`journal` is searched for streams that started before the records shown."""
        self._me = None if identity.observer else identity.participant
        self._targets = targets
        self._journal = journal

    def sees(self, record: Record) -> bool:
        """Return whether the complete record may be shown. Call it for records in journal order."""
        self._targets.observe(record)
        if is_data_record(record):
            targets = self._targets.of(str(record.stream_id), self._journal, record.position)
            return targets is None or self._me in targets
        if record.event in _FOR_ONE or (record.event == records.JOINED and record.reason == _TAKEOVER):
            return self._me == record.participant and record.reason != _OBSERVER
        if record.kind == INVITE_ACK:
            return self._me in msgspec.json.decode(record.payload, type=_Addressed).to
        return record.event in _FOR_ALL
