"""Which records of a journal a participant or observer may read: those that the protocol would have sent to it.

Each record is decided by itself. A record whose recipients are unknown is shown to no one (docs/journal.md, Over HTTP).
"""

from typing import Final, TypeAlias

import msgspec

from mew.journal.layout import Segment, segments_in
from mew.journal.reader import Journal, is_frame
from mew.protocol import GATEWAY, Identity, Record, records
from mew.protocol.kinds import INVITE_ACK, STREAM_OPEN, STREAM_READY

Audience: TypeAlias = frozenset[str] | None
"""Those for whom the data of a stream is; None: for all."""
MOST_STREAMS: Final = 10_000
"""Of which it is remembered for whom they are."""
_NOBODY: Final[Audience] = frozenset()
_FOR_ONE: Final = frozenset({records.WELCOMED, records.CONSUMED, records.REJECTED, records.FRAME_REJECTED, records.GAP})
"""What its participant alone was told, or told the gateway alone."""
_FOR_ALL: Final = frozenset({records.START, records.JOINED, records.LEFT, records.ENVELOPE})
"""What everybody was told, or may ask; an event that nobody has thought of is not among them."""
_TAKEOVER: Final = "takeover"
_OBSERVER: Final = "observer"


class _Request(msgspec.Struct):
    """What of a stream's request says for whom its data is."""

    target: list[str] | None = None

    @property
    def audience(self) -> Audience:
        return None if self.target is None else frozenset(self.target)


class _Opened(msgspec.Struct):
    """`stream/open` or `stream/ready`."""

    payload: _Request


class _Stream(msgspec.Struct):
    stream_id: str
    fields: _Request


class _Snapshot(msgspec.Struct):
    """What of a checkpoint is about streams."""

    streams: list[_Stream]


class _Addressed(msgspec.Struct):
    to: list[str] = []


class Targets:
    """For whom the data of each stream of a space is; a stream's name and its targets are fixed for life."""

    def __init__(self) -> None:
        """Of none it is known."""
        self._known: dict[str, Audience] = {}

    def heed(self, record: Record) -> None:
        """Learn what a record says of a new stream."""
        learnt = _learnt(record)
        if learnt:
            self._keep(learnt)

    def of(self, stream_id: str, journal: Journal, position: int) -> Audience:
        """For whom a stream is that was open at this position of this journal."""
        if stream_id in self._known:
            return self._known[stream_id]
        # Where its beginning cannot be found: better nobody than everybody.
        found = {stream_id: _NOBODY, **_open_at(journal, position)}
        self._keep(found)
        return found[stream_id]

    def _keep(self, found: dict[str, Audience]) -> None:
        if len(self._known) >= MOST_STREAMS:
            self._known = {}
        self._known.update(found)


def _learnt(record: Record) -> dict[str, Audience]:
    """What a record says of streams; a participant's own `stream/open` says nothing (protocol §1)."""
    if record.kind in (STREAM_OPEN, STREAM_READY) and record.participant == GATEWAY and record.stream_id is not None:
        return {record.stream_id: msgspec.json.decode(record.payload, type=_Opened).payload.audience}
    return {}


def _open_at(journal: Journal, position: int) -> dict[str, Audience]:
    """The streams that were open at a position, from the last checkpoint before it and what came since; and others."""
    found: dict[str, Audience] = {}
    for record in journal.records(_checkpoint_before(journal, position), control=True):
        if record.position >= position:
            break
        if record.event == records.CHECKPOINT:
            streams = msgspec.json.decode(record.payload, type=_Snapshot).streams
            found |= {stream.stream_id: stream.fields.audience for stream in streams}
        found |= _learnt(record)
    return found


def _checkpoint_before(journal: Journal, position: int) -> int:
    """The position of the last sealed checkpoint before this one, or 0."""
    while True:
        hours = reversed(journal.folder.hours())
        segments = (segment for hour in hours for segment in reversed(segments_in(hour)) if segment.first < position)
        try:
            return next((at for segment in segments if (at := _checkpoint_in(segment, position)) is not None), 0)
        except FileNotFoundError:
            continue  # It was compacted.


def _checkpoint_in(segment: Segment, before: int) -> int | None:
    import pyarrow.compute as pc  # noqa: PLC0415 - where it is needed

    from mew.journal.segments import read_control, read_footer  # noqa: PLC0415 - likewise

    last = read_footer(segment).checkpoint
    if last is None or last < before:
        return last
    table = read_control(segment, ["position", "event"])
    found = table.filter(pc.equal(table["event"], records.CHECKPOINT))["position"].to_pylist()
    return max((position for position in found if position < before), default=None)


class Onlooker:
    """Somebody with a token of the space who reads its journal."""

    def __init__(self, identity: Identity, targets: Targets, journal: Journal) -> None:
        """`journal` is asked for streams that began before what is shown."""
        self._me = None if identity.observer else identity.participant
        self._targets = targets
        self._journal = journal

    def sees(self, record: Record) -> bool:
        """Whether all of a record may be shown; records are asked about in their order."""
        self._targets.heed(record)
        if is_frame(record):
            targets = self._targets.of(str(record.stream_id), self._journal, record.position)
            return targets is None or self._me in targets
        if record.event in _FOR_ONE or (record.event == records.JOINED and record.reason == _TAKEOVER):
            return self._me == record.participant and record.reason != _OBSERVER
        if record.kind == INVITE_ACK:
            return self._me in msgspec.json.decode(record.payload, type=_Addressed).to
        return record.event in _FOR_ALL
