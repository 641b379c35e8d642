"""Streams as rows: the life of each, who could write to it from where to where, and its formats.

Watches `SpaceState.streams` change, record by record; which record changes what is the core's to say.
"""

from typing import Final

from mew.pipeline.control import announced
from mew.pipeline.control.checks import ConsistencyCheck
from mew.pipeline.control.rows import Announced, Owned, StreamRow, Writing
from mew.pipeline.control.stays import CHECKPOINT
from mew.pipeline.kernel.catalogue import Access, Catalogue
from mew.protocol import kinds, raw_json
from mew.protocol.records import Record
from mew.protocol.state import SpaceState
from mew.protocol.streams import LIVE, READY, StreamEntry

OWNER: Final = "owner"
WRITER: Final = "writer"
REQUEST: Final = "request"
ANNOUNCE: Final = "announce"


class StreamTracker:
    """The tables `streams`, `stream_access` and `formats`."""

    def __init__(
        self, state: SpaceState, lives: list[StreamRow], writings: list[Writing], owners: ConsistencyCheck
    ) -> None:
        """With the streams that are open."""
        self.open = {life.stream_id: life for life in lives}
        self.writing: dict[str, dict[str, Writing]] = {life.stream_id: {} for life in lives}
        for row in writings:
            self.writing[row.stream_id][row.participant] = row
        self.over: list[StreamRow] = []
        self.written: list[Writing] = []
        """Rows of `stream_access` that are final."""
        self.announced: list[Announced] = []
        self._seen = dict(state.streams)
        """Every stream of this batch, for the catalogue."""
        self._owners = owners

    def observe(
        self, state: SpaceState, record: Record, stream_id: str, before: StreamEntry | None, by: str | None
    ) -> None:
        """A record may have changed a stream; `by` is who asked for it."""
        after = state.streams.get(stream_id)
        if after is before:
            return
        if after is None:
            self._ended(record, stream_id)
            return
        if before is None or after.created != before.created or stream_id not in self.open:
            self._ended(record, stream_id)
            way = REQUEST if record.kind == kinds.STREAM_OPEN else ANNOUNCE
            self._began(record, after, way)
        self._changed(record, after, by)

    def refused(self, stream_id: str | None) -> None:
        """A frame was not accepted."""
        life = None if stream_id is None else self.open.get(stream_id)
        if life is not None:
            life.refused += 1

    def reconcile(self, state: SpaceState, record: Record) -> None:
        """A checkpoint says something else than was folded, or is the first that is known of the space.

        By which record a stream was made it does not say, nor for sure in which way: rows begin with the checkpoint.
        """
        for stream_id in [each for each in self.open if each not in state.streams]:
            self._ended(record, stream_id)
        for stream in state.streams.values():
            if stream.stream_id not in self.open:
                is_announced = stream.status == READY or stream.stream_id in state.desired_ids
                self._began(record, stream, ANNOUNCE if is_announced else REQUEST)
            self._changed(record, stream, None)

    def _began(self, record: Record, stream: StreamEntry, way: str) -> None:
        formats = announced.rows(stream, record)
        self.announced += formats
        targets = stream.targets
        policy = stream.fields.get("on_owner_disconnect")
        asked = {"direction": stream.direction, "encoding": stream.encoding, **stream.fields}
        self.open[stream.stream_id] = StreamRow(
            stream_id=stream.stream_id,
            namespace=stream.namespace,
            creator=stream.creator,
            way=way,
            position=record.position,
            time=record.time,
            owner=stream.owner,
            owners=[],
            formats=[each.fingerprint for each in formats],
            targets=None if targets is None else list(targets),
            policy=None if policy is None else policy.decode(),
            request=raw_json.join_json(asked).decode(),
        )
        self.writing[stream.stream_id] = {}

    def _changed(self, record: Record, stream: StreamEntry, by: str | None) -> None:
        self._seen[stream.stream_id] = stream
        life = self.open[stream.stream_id]
        if stream.status == LIVE and life.started_position is None:
            life.started_position, life.started_time = record.position, record.time
        if not life.owners or life.owner != stream.owner:
            life.owner = stream.owner
            life.owners.append(Owned(owner=stream.owner, position=record.position, time=record.time))
        self._owners.checked += 1
        if not stream.owner or stream.writers.count(stream.owner) != 1:
            what = f"its owner {stream.owner!r} is not once among its writers {list(stream.writers)}"
            self._owners.violated(record.position, what, stream_id=stream.stream_id)
        roles = {writer: OWNER if writer == stream.owner else WRITER for writer in stream.writers}
        self._write(record, life, roles, by)

    def _write(self, record: Record, life: StreamRow, roles: dict[str, str], by: str | None) -> None:
        """End the rows of participants whose role has changed, and begin rows for their new roles."""
        rows, why = self.writing[life.stream_id], record.kind or record.event
        for row in [each for each in rows.values() if roles.get(each.participant) != each.role]:
            self._stop(rows, row, record, why)
        for participant, role in roles.items():
            if participant in rows:
                continue
            rows[participant] = Writing(
                stream_id=life.stream_id,
                participant=participant,
                role=role,
                from_position=record.position,
                from_time=record.time,
                granted_by=by,
                why=why,
            )
            if participant not in life.writers:
                life.writers.append(participant)

    def _stop(self, rows: dict[str, Writing], row: Writing, record: Record, why: str) -> None:
        row.to_position, row.to_time, row.ended_why = record.position, record.time, why
        self.written.append(rows.pop(row.participant))

    def _ended(self, record: Record, stream_id: str) -> None:
        life = self.open.pop(stream_id, None)
        if life is None:
            return
        rows = self.writing.pop(stream_id)
        for row in list(rows.values()):
            self._stop(rows, row, record, record.kind or record.event)
        life.ended_position, life.ended_time = record.position, record.time
        if record.kind is None:
            life.reason = CHECKPOINT
        else:
            life.ended_kind, life.ended_by, life.reason = record.kind, record.participant, record.reason
        self.over.append(life)

    @property
    def writings(self) -> list[Writing]:
        """Who can write now, by stream."""
        return [row for rows in self.writing.values() for row in rows.values()]

    def catalogue(self, space: str, probes: list[int], *, validates: bool) -> Catalogue:
        """Every stream that was open at some time in this batch."""
        access: dict[str, list[Access]] = {stream_id: [] for stream_id in self._seen}
        for row in (*self.written, *self.writings):
            access[row.stream_id].append(Access(row.participant, row.from_position, row.to_position))
        return Catalogue(
            space,
            {stream_id: announced.content_of(each, validates=validates) for stream_id, each in self._seen.items()},
            {stream_id: tuple(sorted(rows, key=_order)) for stream_id, rows in access.items()},
            tuple(probes),
        )


def _order(access: Access) -> tuple[int, str]:
    return access.from_position, access.participant
