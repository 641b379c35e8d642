"""The hub of one space: runs commands through the core and carries out their effects, in order.

The core makes all decisions. Consecutive frames from one connection to one stream form a run: they are authorized once,
and numbered and recorded together. While the journal is unavailable, messages are rejected.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from mew.gateway.fanout.encoding import EncodedMessage, envelope_item, frame_items
from mew.gateway.fanout.fanout import USUAL_FANOUT, Fanout, FanoutOptions
from mew.gateway.fanout.sinks import Counters, FileSink, HttpMailbox, Sink, SocketSink
from mew.gateway.scheduling import SHARE_SECONDS, Turns
from mew.journal.block_format import FrameBatch
from mew.protocol import (
    EVERYONE,
    GATEWAY,
    Admit,
    AttachOutputLog,
    Audience,
    CapabilityChecked,
    Checkpoint,
    Close,
    Command,
    Deliver,
    DeliverFrame,
    Effect,
    HttpAnswer,
    Leave,
    Post,
    Receive,
    Recipients,
    Record,
    ReportLoss,
    Route,
    SpaceCore,
    Tick,
    raw_json,
    records,
)
from mew.protocol.envelope import Stamp, compose
from mew.protocol.errors import JournalUnavailable
from mew.protocol.frames import frame_header, is_frame
from mew.protocol.interface import http_connection
from mew.protocol.kinds import ERROR
from mew.protocol.proposals import proposal_outcome

if TYPE_CHECKING:
    from mew.gateway.history_log import CapabilityDecisions, EnvelopeHistory


class Recorder(Protocol):
    """Records events in order, and reports when their effects may be delivered."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be recorded now; None if recording works."""
        ...

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint of the state is due."""
        ...

    def add(self, record: Record) -> None:
        """Add a record to the journal."""
        ...

    def add_frames(self, frames: FrameBatch) -> None:
        """Add the frames of one run to the journal."""
        ...

    def commit(self) -> bool:
        """Commit the added records and return whether their effects may be delivered."""
        ...


class NullRecorder:
    """A recorder that stores nothing, for a space without a journal."""

    problem: str | None = None
    wants_checkpoint = False

    def add(self, record: Record) -> None:
        """Ignore the record."""

    def add_frames(self, frames: FrameBatch) -> None:
        """Ignore the frames."""

    def commit(self) -> bool:
        """Return True: effects never wait for a record."""
        return True


class _Named(msgspec.Struct):
    """The part of an envelope that an error about it refers to."""

    id: str


def refusal_to(space: SpaceCore, participant: str, message: bytes, problem: str, now: int) -> bytes | None:
    """Compose the error for a message that cannot be recorded; None if throttled, for frames (protocol §4, §6)."""
    cause: tuple[str, ...] = ()
    parts = {}
    if is_frame(message):
        suppressed = space.throttle(participant).admit("", JournalUnavailable.code, now)
        if suppressed is None:
            return None
        parts = {"suppressed": suppressed} if suppressed else {}
    else:
        with suppress(msgspec.MsgspecError):
            cause = (msgspec.json.decode(message, type=_Named).id,)
    payload = raw_json.encode_json(JournalUnavailable(problem, **parts).payload())
    stamp = Stamp(GATEWAY, space.new_id(), now)
    return compose(ERROR, payload, stamp, to=(participant,), correlation_id=cause)


TICK_SECONDS: Final = 0.1
_LOW_PRIORITY: Final = frozenset({"system/presence", "system/welcome"})
"""Low-priority kinds: they may be delivered later when many participants connect concurrently."""
_INBOUND: Final = frozenset({records.ENVELOPE, records.CONSUMED, records.REJECTED})


class FrameRun:
    """Consecutive frames from one connection to one stream that have no numbers yet."""

    __slots__ = ("audience", "connection", "messages", "participant", "route", "text", "writer")

    def __init__(self, connection: str, participant: str, route: Route, message: bytes, *, text: bool) -> None:
        """Start a run with its first frame."""
        self.connection = connection
        self.participant = participant
        self.route = route
        self.audience: Audience = EVERYONE if route.targets is None else Recipients(route.targets)
        self.text = text
        self.messages = [message]
        self.writer: FrameRunSource | None = None


class FrameRunSource(Protocol):
    """A transport that adds frames to a run directly, until any other event in the space ends the run."""

    def begin_run(self, header: bytes, add: Callable[[bytes], None], *, text: bool) -> None:
        """Let the transport pass frames with this header and opcode to `add`; they are already authorized."""
        ...

    def end_run(self) -> None:
        """Stop adding frames: the run has ended."""
        ...


class Outputs(msgspec.Struct, frozen=True):
    """Where a hub writes, besides sockets and the journal."""

    log_files: Mapping[str, FileSink]
    """The output log of each participant that has one."""
    mailbox_bytes: int
    """Maximum size of the mailbox of an HTTP presence."""
    history: "EnvelopeHistory | None" = None
    decisions: "CapabilityDecisions | None" = None


class Hub:
    """One space and the sinks of all its connections."""

    def __init__(
        self,
        space: SpaceCore,
        journal: Recorder,
        *,
        clock: Callable[[], int],
        outputs: Outputs,
        fanout_options: FanoutOptions = USUAL_FANOUT,
        share_seconds: float = SHARE_SECONDS,
    ) -> None:
        """`clock` returns microseconds since 1970. `share_seconds` is the time of one participant per turn."""
        self.space = space
        self.clock = clock
        self.journal = journal
        self.refusing = False
        """Whether messages are rejected because they cannot be recorded."""
        self.decisions = outputs.decisions
        self.counts = Counters()
        self.fanout = Fanout(self.counts, self._commit, history=outputs.history, options=fanout_options)
        self.turns = Turns(share_seconds=share_seconds)
        self.lag = 0.0
        """Delay of the last tick, in seconds."""
        self._outputs = outputs
        self._mail_numbers: dict[str, int] = {}
        self._run: FrameRun | None = None
        self._missed: list[ReportLoss] = []
        """Losses of closed readers: processed after the effects that closed them."""
        self._held_closes: list[Close] = []
        self._held_writable: dict[str, list[EncodedMessage]] = {}
        """Work held until the journal recovers: connections to close, and writable readers with their loss notices."""
        self._inbound = "websocket"
        """The transport of the command whose effects are carried out."""
        self._ticking: asyncio.TimerHandle | None = None
        self._stopping = False

    # Commands

    def run(self, command: Command) -> list[Effect]:
        """Run a command through the core, carry out its effects and return them."""
        self._inbound = "http" if isinstance(command, Post) else "websocket"
        effects = self._handle(command)
        self.carry_out(effects)
        while self._missed:
            self.carry_out(self._handle(self._missed.pop(0)))
        return effects

    def ask(self, command: Command) -> HttpAnswer | None:
        """Run a command and return its answer, or None if it has none."""
        effects = self.run(command)
        return next((effect for effect in effects if isinstance(effect, HttpAnswer)), None)

    def _handle(self, command: Command) -> list[Effect]:
        """Pass a command to the core. This ends the run: later frames are numbered after it and authorized again."""
        self._end_run()
        return self.space.handle(command, self.clock())

    # The journal

    def _commit(self) -> bool:
        """Commit everything up to now to the journal and return whether it may be delivered."""
        self._end_run()
        if not self.journal.commit():
            self.refusing = True
            return False
        return not self.refusing

    def require_journal(self) -> None:
        """Raise `JournalUnavailable` if messages cannot be recorded."""
        if self.refusing:
            raise JournalUnavailable(self._problem)

    @property
    def _problem(self) -> str:
        return f"nothing can be recorded: {self.journal.problem or 'it has just failed'}"

    def journal_changed(self) -> None:
        """Handle a failure or recovery of the journal; after a recovery, resume the held work."""
        self.refusing = not self.journal.commit()
        if self.refusing:
            return
        closes, self._held_closes = self._held_closes, []
        for close in closes:
            self._close(close)
        writable, self._held_writable = self._held_writable, {}
        for connection, notices in writable.items():
            sink = self.fanout.sink(connection)
            if notices and isinstance(sink, SocketSink):
                sink.resume(notices)
            else:
                self.writable(connection)
        self.fanout.resume()

    def _refuse(self, connection: str, participant: str, message: bytes) -> None:
        """Send an error to the sender immediately: it has no record, so it need not wait for one."""
        sink = self.fanout.sink(connection)
        refusal = refusal_to(self.space, participant, message, self._problem, self.clock())
        if sink is not None and refusal is not None:
            sink.put([envelope_item(refusal)])

    # Frames

    def receive(
        self, connection: str, participant: str, message: bytes, *, text: bool, writer: FrameRunSource | None = None
    ) -> None:
        """Handle a message of a joined socket; frames with a route take a fast path without a command."""
        if self.refusing:
            self._refuse(connection, participant, message)
            return
        if is_frame(message) and self.space.settings.limits.frames_per_second is None:
            session = self.space.sessions.get(connection)
            if session is None:
                return
            routed = None if session.observer else self.space.route(participant, message)
            if isinstance(routed, Route):
                self._end_run()
                self._run = FrameRun(connection, participant, routed, message, text=text)
                if writer is not None:
                    self._run.writer = writer
                    writer.begin_run(frame_header(routed.stream_id), self._run.messages.append, text=text)
                self.fanout.request_flush(self._run.audience)
                return
        self.run(Receive(connection, message, text))

    def _end_run(self) -> None:
        """Number the frames of the current run, record them and queue them for delivery."""
        run = self._run
        if run is None:
            return
        self._run = None
        if run.writer is not None:
            run.writer.end_run()
        position, time, number = self.space.accept_frames(run.route, len(run.messages), self.clock())
        self.counts.frames += len(run.messages)
        stream_id, messages = run.route.stream_id, run.messages
        skipped = len(frame_header(stream_id))
        self.journal.add_frames(FrameBatch(position, time, run.participant, stream_id, number, skipped, messages))
        for item in frame_items(stream_id, number, messages, text=run.text):
            self.fanout.enqueue(run.audience, item)

    # Connections

    def attach(self, connection: str, sink: Sink) -> None:
        """Register the sink of a connection; it receives messages once the core admits it."""
        if isinstance(sink, SocketSink):
            sink.counts = self.counts
        self.fanout.bind(connection, sink)

    def leave(self, connection: str, reason: str | None = None) -> None:
        """Remove a closed connection and record the stream frames that it did not receive as lost.

        During a shutdown, participants do not leave: after the next start, they have time to reconnect.
        """
        self._end_run()  # frames that came earlier are numbered before the connection is removed
        self.fanout.flush_before_close(connection)
        losses = self._losses(connection, "disconnected")
        self._drop(connection)
        for lose in losses:
            self.run(lose)
        if not self._stopping:
            self.run(Leave(connection, reason))

    def writable(self, connection: str) -> None:
        """Handle a socket that accepts bytes again: report lost frames to its reader, then send the queue."""
        sink = self.fanout.sink(connection)
        if not isinstance(sink, SocketSink):
            return
        if self.refusing:
            self._held_writable.setdefault(connection, [])
            return
        notices = [notice for lose in self._losses(connection) for notice in self._notices(lose)]
        if notices and not self._commit():
            self._held_writable[connection] = notices
        else:
            sink.resume(notices)

    def _losses(self, connection: str, reason: str | None = None) -> list[ReportLoss]:
        """Return the losses of a reader since its last notice; observers receive no notice."""
        sink, name = self.fanout.sink(connection), self.fanout.participant_of(connection)
        if not isinstance(sink, SocketSink) or not sink.losses or name is None:
            return []
        return [
            ReportLoss(
                participant=name,
                stream_id=stream_id,
                first=loss.first,
                last=loss.last,
                dropped=loss.dropped,
                reason=reason,
            )
            for stream_id, loss in sink.losses.items()
        ]

    def _notices(self, lose: ReportLoss) -> list[EncodedMessage]:
        """Record a loss and return its `stream/gap` envelope, which is sent before all queued items."""
        effects = self._handle(lose)
        self.carry_out([effect for effect in effects if isinstance(effect, Record)])
        return [envelope_item(effect.message) for effect in effects if isinstance(effect, Deliver)]

    def mailbox(self, participant: str) -> HttpMailbox | None:
        """Return the mailbox of a participant connected over HTTP, or None."""
        sink = self.fanout.sink(http_connection(participant))
        return sink if isinstance(sink, HttpMailbox) else None

    # Effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out effects in the order of the core; the most frequent types are tested first."""
        latest: Record | None = None
        history = self.fanout.history
        for effect in effects:
            if isinstance(effect, Record):
                latest = effect
                self._count(effect)
                self.journal.add(effect)
                if history is not None and effect.event in _INBOUND and effect.payload:
                    self._log_received(effect)
            elif isinstance(effect, Deliver):
                record = None if history is None else self._record_of(effect, latest)
                item = envelope_item(effect.message, record)
                self.fanout.enqueue(effect.audience, item, low_priority=effect.kind in _LOW_PRIORITY)
            elif isinstance(effect, CapabilityChecked):
                if self.decisions is not None:
                    capabilities = self.space.capabilities(effect.participant).text
                    self.decisions.decided(effect, self.space.state.time, capabilities)
            elif isinstance(effect, DeliverFrame):
                for item in frame_items(effect.stream_id, effect.frame_number, [effect.message], text=effect.text):
                    self.fanout.enqueue(effect.audience, item)
            elif isinstance(effect, Admit):
                self._admit(effect)
            elif isinstance(effect, Close):
                self._close(effect)

    def _count(self, record: Record) -> None:
        counts = self.counts
        if record.event in (records.REJECTED, records.FRAME_REJECTED):
            counts.refusals[str(record.reason)] = counts.refusals.get(str(record.reason), 0) + 1
        elif record.frame_number is not None:
            counts.frames += 1
        elif record.event in _INBOUND:
            counts.envelopes += record.participant != GATEWAY
            outcome = proposal_outcome(record)
            if outcome is not None:
                counts.closed_proposals[outcome] = counts.closed_proposals.get(outcome, 0) + 1

    def _record_of(self, deliver: Deliver, latest: Record | None) -> Record:
        """Return the journal record of an envelope; an error has none, so create one that holds the envelope."""
        if latest is not None and latest.envelope_id == deliver.envelope_id:
            return latest
        now = self.space.state.time
        return Record(-1, now, "envelope", GATEWAY, deliver.kind, deliver.envelope_id, size=0, payload=deliver.message)

    def _log_received(self, record: Record) -> None:
        if self.fanout.history is not None and record.participant != GATEWAY:
            self.fanout.history.received(record, self._inbound)

    def _admit(self, admit: Admit) -> None:
        if admit.transport == "http":
            first = self._mail_numbers.get(admit.connection, 0)
            self.fanout.bind(admit.connection, HttpMailbox(self._outputs.mailbox_bytes, first))
        elif admit.transport == "virtual":
            self.fanout.bind(admit.connection, self._outputs.log_files[admit.participant])
        self.fanout.admit(admit.connection, None if admit.observer else admit.participant)

    def _close(self, close: Close) -> None:
        if not self.fanout.flush_before_close(close.connection):
            self._held_closes.append(close)
            return
        sink = self.fanout.sink(close.connection)
        if sink is not None:
            sink.close(close.code, close.reason)
            self._missed += self._losses(close.connection, "disconnected")
        self._drop(close.connection)

    def _drop(self, connection: str) -> None:
        sink = self.fanout.unbind(connection)
        if isinstance(sink, HttpMailbox):
            self._mail_numbers[connection] = sink.next_number

    def flush(self) -> None:
        """Send everything that is queued so far, immediately."""
        self.fanout.flush()

    # Time

    def start(self, output_logs: list[str]) -> None:
        """Attach the output logs of these participants and start the tick timer."""
        for participant in output_logs:
            self.run(AttachOutputLog(participant))
        self._tick()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if self._ticking is not None:
            self.lag = max(0.0, loop.time() - self._ticking.when())
        if not self.refusing:
            self.run(Tick())
            if self.journal.wants_checkpoint:
                self.run(Checkpoint())
        self._commit()
        self._ticking = loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """Stop the tick timer, send what is queued, and close every sink with code 1001 (going away)."""
        self._stopping = True
        if self._ticking is not None:
            self._ticking.cancel()
        self.flush()
        self.fanout.close(1001, "the gateway is stopping")
        for log in (self.fanout.history, self.decisions):
            if log is not None:
                log.close()
