"""Folds the control records of a space, batch by batch, into tables, a catalogue and the state of the next batch.

The reducer is the core's. Around each record the rows that it begins, changes or ends are brought up to date, so that a
table is a function of the journal's prefix alone, however that is cut into batches. Whatever a record holds, it does
not stop the fold: what cannot be folded is counted.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.errors import MewError
from mew.journal.arrow import from_arrow
from mew.pipeline import schemas
from mew.pipeline.control import said
from mew.pipeline.control.administration import administered
from mew.pipeline.control.approvals import Approvals
from mew.pipeline.control.arrow import to_arrow
from mew.pipeline.control.checks import Checks, Claimed
from mew.pipeline.control.lives import StreamTracker
from mew.pipeline.control.memory import FoldStateVersionError, PendingWriterChange, load, save, save_moment
from mew.pipeline.control.rights import ABOUT_RIGHTS, CapabilityTracker
from mew.pipeline.control.rows import Administered, Lost
from mew.pipeline.control.stays import CHECKPOINT, PresenceTracker
from mew.pipeline.control.system_records import SystemRecords
from mew.pipeline.control.talks import ConversationTracker
from mew.pipeline.control.tally import ControlActivity, Tally
from mew.pipeline.control.verdicts import NO_VERDICT, EnvelopeVerdicts
from mew.pipeline.control.welcomes import Rebuilt
from mew.pipeline.kernel.catalogue import Catalogue
from mew.protocol import kinds, raw_json, records
from mew.protocol.fold import fold
from mew.protocol.handlers.data import SKIPPED
from mew.protocol.records import Record
from mew.protocol.state import SnapshotVersionError, SpaceState, snapshot
from mew.protocol.streams import StreamEntry

SNAPSHOT_RECORDS: Final = 20_000
"""After so many control records there is a snapshot in between."""
_ASKING: Final = frozenset({kinds.GRANT_WRITE, kinds.REVOKE_WRITE, kinds.TRANSFER_OWNERSHIP})
_LETTING: Final = frozenset({kinds.WRITE_GRANTED, kinds.OWNERSHIP_TRANSFERRED})
_UNFIT: Final = (MewError, msgspec.MsgspecError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
"""What comes of folding a record that no gateway wrote."""


class Folded(msgspec.Struct, frozen=True):
    """What the control records of a batch came to."""

    state: bytes
    """The state of the next batch."""
    tables: dict[str, pa.Table]
    """Rows that became final, and all that are still open at the batch's end."""
    catalogue: Catalogue
    """Of the streams that were open at some time in the batch."""
    activity: ControlActivity
    checks: Checks
    snapshots: tuple[tuple[int, bytes], ...] = ()
    """Position and state, for `moment.state_at` alone, every 20,000 control records."""


def fold_control(
    space: str, state: bytes | None, batches: Iterable[pa.RecordBatch], to: int, start: int | None = None
) -> Folded:
    """Continue from a state, or from the beginning, with the control rows of a journal up to a position.

    Rows at or before the state's position, and those behind `to`, are passed over. With `start` it is known that
    nothing is to be had between the state's position and there. `SnapshotVersionError` where the state is of another
    version of the fold: then begin again.
    """
    folding = _Folding(space, state, start)
    first = folding.memory.position + 1
    if to < first - 1:
        raise FoldStateVersionError(f"{space!r} is folded up to {first - 1}, and cannot be up to {to}")
    for batch in batches:
        folding.take(_between(batch, first, to))
    return folding.finish(to)


def _between(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    position = batch.column("position")
    return batch.filter(pc.and_(pc.greater_equal(position, first), pc.less_equal(position, last)))


_TELLS_ALL = frozenset({records.START, records.CHECKPOINT})
"""Events after which anything may be open."""


class _Folding:
    """A batch in progress."""

    def __init__(self, space: str, state: bytes | None, start: int | None) -> None:
        self.space = space
        self.memory, self.state = load(space, state)
        memory, self.checks = self.memory, Checks()
        self.behind_hole = start if start is not None and start > memory.position + 1 else None
        """The first record behind those that are lost."""
        self.known_from = 0 if self.state.position >= 0 else None
        """From where on it is known who could write; None: it is not."""
        self.last = memory.position
        self.envelopes = said.Envelopes(space)
        self.system_records = SystemRecords(space)
        self.verdicts = EnvelopeVerdicts()
        self.stays = PresenceTracker(memory.stays)
        self.lives = StreamTracker(self.state, memory.lives, memory.writings, self.checks.owners)
        self.rights = CapabilityTracker(self.state, memory.holdings)
        self.rebuilt = Rebuilt(self.checks.welcomes)
        self.talks = ConversationTracker(memory.talks)
        self.approvals = Approvals(memory.approvals)
        self.tally = Tally(self.checks.refusals)
        self.lost: list[Lost] = []
        self.administered: list[Administered] = []
        self.probes: list[int] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self._watchers: dict[str, Callable[[Record], None]] = {
            records.START: self._start,
            records.JOINED: self._join,
            records.LEFT: self._leave,
            records.ENVELOPE: self._change,
            records.CONSUMED: self._change,
            records.WELCOMED: self._welcome,
            records.CHECKPOINT: self._checkpoint,
        }
        self._said = said.UNSAID
        """What the envelope at hand says."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Fold the rows of a batch."""
        self.checks.positions.checked += batch.num_rows
        self.tally.add(batch)
        for record in from_arrow(batch):
            self._said = said.UNSAID
            if record.event in said.SPOKEN:
                self._said = said.read(record)
                is_known = self.state.position >= 0
                verdict = self.verdicts.judge(self.state, record, self._said) if is_known else NO_VERDICT
                self.envelopes.add(self._said, verdict)
            if record.position <= self.last:
                what = f"it comes behind {self.last}"
                self.checks.positions.violated(record.position, what, event=record.event)
                continue
            self.last = record.position
            try:
                self._follow(record)
            except _UNFIT as problem:
                what = f"it cannot be folded: {type(problem).__name__}: {problem}"
                self.checks.folded.violated(record.position, what, event=record.event, kind=record.kind)
                rows = self.envelopes if record.event in said.SPOKEN else self.system_records
                rows.problems[record.position] = what
        self.envelopes.end_batch(batch)
        self.system_records.end_batch(batch)

    def _follow(self, record: Record) -> None:
        """What a record makes of the space, and of the rows that do not depend on it."""
        event = record.event
        self.talks.pass_time(record.time)
        if event == records.ENVELOPE:
            self.talks.add(record, self._said)
        elif event == records.GAP and record.reason != SKIPPED:
            lost = _lost(record)
            self.lost.append(lost)
            self.checks.losses.append(_claimed(lost))
            self.probes.append(record.position)
        elif event == records.ADMIN:
            self.administered.append(administered(record))
        if self.state.position < 0 and record.position == 0:
            self.known_from = 0
        if self.state.position < 0 and record.position > 0 and event != records.CHECKPOINT:
            self.checks.unseeded += 1
            if event == records.WELCOMED:
                self.probes.append(record.position)
            return
        if event == records.FRAME_REJECTED:
            self.lives.refused(record.stream_id)
        self.checks.folded.checked += 1
        watcher = self._watchers.get(event)
        if watcher is None:
            self._fold(record)
        else:
            watcher(record)
        if event in _TELLS_ALL:
            self.approvals.reconcile(self.state, record)
        else:
            self.approvals.follow(self.state, record)
        if self.checks.folded.checked % SNAPSHOT_RECORDS == 0:
            self.snapshots.append((record.position, save_moment(self.space, record.position, self.state)))

    def _fold(self, record: Record) -> None:
        self.state = fold(self.state, record)

    # ------------------------------------------------------------------------------ what is watched, by event

    def _start(self, record: Record) -> None:
        self._fold(record)
        self.memory.validates = bool(raw_json.decode_json(record.payload).get("streams", {}).get("validate", False))
        self.stays.all_left(record)
        self.rights.all_changed(self.state, record)

    def _join(self, record: Record) -> None:
        self._fold(record)
        self.rights.joined(self.state, record)
        self.stays.joined(self.state, record, self.rights.of(self.state, record.participant).text)

    def _leave(self, record: Record) -> None:
        presence = self.state.present[record.participant]
        self._fold(record)
        self.stays.left(record.participant, record, record.reason)
        self.rights.left(self.state, record, anonymous=presence.anonymous)

    def _change(self, record: Record) -> None:
        kind, stream_id = record.kind, record.stream_id
        before = None if stream_id is None else self.state.streams.get(stream_id)
        self._fold(record)
        if stream_id is not None:
            granter = self._granter(record)
            self._check_transfer(record, before, granter)
            self.lives.observe(self.state, record, stream_id, before, granter)
            if kind in _ASKING:
                self.memory.asked = PendingWriterChange(record.envelope_id or "", record.participant)
        elif kind in ABOUT_RIGHTS:
            self.rights.changed(self.state, record, self._said.payload)

    def _check_transfer(self, record: Record, before: StreamEntry | None, granter: str | None) -> None:
        """The gateway hands a stream on by itself only where its owner is gone (protocol §4)."""
        if record.kind != kinds.OWNERSHIP_TRANSFERRED or granter != kinds.GATEWAY or before is None:
            return
        if before.owner in self.state.present:
            what = f"it was taken from {before.owner!r}, who was present, and no request asked for that"
            self.checks.owners.violated(record.position, what, stream_id=before.stream_id)

    def _granter(self, record: Record) -> str | None:
        """The participant that requested the change; the gateway if none did."""
        if record.kind not in _LETTING or record.participant != kinds.GATEWAY:
            return None
        asked = self.memory.asked
        return asked.participant if asked is not None and asked.envelope_id in self._said.answers else kinds.GATEWAY

    def _welcome(self, record: Record) -> None:
        self.probes.append(record.position)
        payload = bytes(said.read(record).payload)
        difference, counts = self.rebuilt.check(self.state, self.rights, record, payload)
        if difference is not None:
            self.system_records.differences[record.position] = difference
        self.system_records.frame_counts[record.position] = counts
        self._fold(record)

    def _checkpoint(self, record: Record) -> None:
        is_first = self.state.position < 0
        before = None if is_first else _comparable(self.state)
        try:
            self._fold(record)
        except SnapshotVersionError:
            self.checks.unseeded += 1
            return
        if is_first and self.known_from is None:
            self.known_from = record.position
        # Lost records cannot be folded: such a checkpoint replaces them.
        is_judged = not is_first and record.position != self.behind_hole
        if is_judged:
            self.checks.checkpoints.checked += 1
        if before == _comparable(self.state):
            return
        if is_judged:
            self.checks.checkpoints.violated(record.position, "it is not what was folded up to here")
            self.system_records.differences[record.position] = "state"
        self._begin_anew(record)

    def _begin_anew(self, record: Record) -> None:
        """A state without the records that led to it: what has changed ends here, what is new begins here."""
        state = self.state
        self.rights.all_changed(state, record)
        for participant in [each for each in self.stays.here if each not in state.present]:
            self.stays.left(participant, record, CHECKPOINT)
        for participant in [each for each in state.present if each not in self.stays.here]:
            joined = msgspec.structs.replace(record, participant=participant)
            self.stays.joined(state, joined, self.rights.of(state, participant).text)
        self.lives.reconcile(state, record)

    # ----------------------------------------------------------------------------------------------- the end

    def finish(self, to: int) -> Folded:
        """Everything up to a position has been taken."""
        memory = self.memory
        memory.position = to
        memory.stays = list(self.stays.here.values())
        memory.lives = list(self.lives.open.values())
        memory.writings = self.lives.writings
        memory.holdings = self.rights.holdings
        memory.talks = self.talks.going_on
        memory.approvals = self.approvals.open
        return Folded(
            save(memory, self.state),
            self._tables(),
            msgspec.structs.replace(
                self.lives.catalogue(self.space, self.probes, validates=memory.validates),
                known_from=to + 1 if self.known_from is None else self.known_from,
            ),
            self.tally.activity(),
            self.checks,
            tuple(self.snapshots),
        )

    def _tables(self) -> dict[str, pa.Table]:
        memory, lives = self.memory, self.lives
        made = [
            (schemas.ENVELOPES, self.envelopes.table()),
            (schemas.SYSTEM_RECORDS, self.system_records.table()),
        ]
        for table, final, unfinished in (
            (schemas.PARTICIPANTS, self.stays.over, memory.stays),
            (schemas.STREAMS, lives.over, memory.lives),
            (schemas.STREAM_ACCESS, lives.written, memory.writings),
            (schemas.CAPABILITIES, self.rights.over, memory.holdings),
            (schemas.FORMATS, lives.announced, []),
            (schemas.READER_GAPS, self.lost, []),
            (schemas.CONVERSATIONS, self.talks.over, memory.talks),
            (schemas.APPROVALS, self.approvals.over, memory.approvals),
            (schemas.ADMIN_EVENTS, self.administered, []),
        ):
            made.append((table, to_arrow(table, self.space, final, unfinished)))
        return {table.name: rows for table, rows in made}


class _Gap(msgspec.Struct, rename={"first": "from", "last": "to"}):
    first: int
    last: int
    dropped: int


class _Told(msgspec.Struct):
    payload: _Gap


_told = msgspec.json.Decoder(_Told)


def _lost(record: Record) -> Lost:
    """A loss that was reported to a reader, or would have been."""
    gap = _told.decode(record.payload).payload
    return Lost(
        position=record.position,
        time=record.time,
        reader=record.participant,
        stream_id=record.stream_id or "",
        first=gap.first,
        last=gap.last,
        dropped=gap.dropped,
        reason=record.reason,
    )


def _claimed(lost: Lost) -> Claimed:
    return Claimed(lost.position, lost.reader, lost.stream_id, lost.first, lost.last, lost.dropped)


def _comparable(state: SpaceState) -> bytes:
    """A state without what the control records do not tell."""
    counts = dict.fromkeys(state.streams, 0)
    return snapshot(msgspec.structs.replace(state, position=0, time=0, frames=counts, sequences={}))
