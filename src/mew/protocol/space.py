"""State machine of one space: `SpaceCore.handle` takes a command and returns its effects.

Pure and synchronous: `handle` never raises, never waits and never reads a clock. The data that the journal determines
is in `state` and changes only by folding records. The other data of the process (connections, rates, caches) is here.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Final

import msgspec

from mew.protocol import dispatch, kinds, records
from mew.protocol.authentication import Session, Tokens
from mew.protocol.capabilities import CapabilitySet
from mew.protocol.dispatch import RefusalDetails
from mew.protocol.errors import InvalidEnvelope, MessageTooLarge, Paused, ProtocolError, StreamNotLive
from mew.protocol.fold import advance_frame_number, fold
from mew.protocol.formats import Formats, count_patterns, read_formats
from mew.protocol.frames import Route, frame_header, split_frame
from mew.protocol.handlers import administration, data, presence, timeouts
from mew.protocol.ids import IdsIgnoringCase
from mew.protocol.interface import (
    Administer,
    AttachOutputLog,
    Checkpoint,
    Command,
    Effect,
    Join,
    Leave,
    Poll,
    Post,
    Receive,
    RefuseConnection,
    ReportLoss,
    Start,
    Tick,
)
from mew.protocol.limits import (
    RETENTION_SECONDS,
    Bucket,
    Budgets,
    CapabilityUsage,
    ErrorThrottle,
    StreamUsage,
)
from mew.protocol.records import Record
from mew.protocol.settings import SpaceSettings
from mew.protocol.state import SpaceState
from mew.protocol.streams import LIVE
from mew.protocol.timestamps import SECOND
from mew.protocol.transition import Transition
from mew.protocol.welcome import Roster, roster_entry


class ExpiredGrants(msgspec.Struct):
    """Expired grants of one recipient that are not recorded as revoked yet."""

    grant_ids: dict[str, None]
    before: bytes | None
    """Capabilities before the expiry, as JSON text. None if the recipient is absent or the change was announced."""


class SpaceCore:
    """One space, from the start of its gateway process."""

    def __init__(self, settings: SpaceSettings, tokens: Tokens, state: SpaceState | None = None) -> None:
        """Continue from a state that was folded from the journal, or start with an empty state."""
        self.settings = settings
        self.tokens = tokens
        self.state = state or SpaceState(space_id=settings.space_id)
        self.sessions: dict[str, Session] = {}
        self.connections: dict[str, str] = {}
        """The connection that receives the messages of each present participant."""
        self.http_expiry: dict[str, int] = {}
        self.roster = Roster()
        self.writers_in_grace: set[str] = set()
        """Writers that were disconnected by a gateway restart and have not reconnected yet."""
        self.id_suffixes: dict[str, int] = {}
        """Per desired stream id that is in use, the next number suffix to try."""
        self.stream_usage = StreamUsage()
        self.capability_usage = CapabilityUsage()
        self.refusal_details = RefusalDetails()
        self.refused_connections = administration.RefusedConnections()
        self.ids_in_use = IdsIgnoringCase()
        """Ids of configured, invited and present participants."""
        self._ids = 0
        self._now = 0
        limits = settings.limits
        self._short_cut_bytes = limits.message_bytes if limits.frames_per_second is None else -1
        self._routes: dict[bytes, Route] = {}
        self._muted: set[str] = set()
        self._mutes_change = _NEVER
        self.next_end = 0
        """No proposal expires and no grant ends before this time, in microseconds since 1970."""
        self.ended: dict[str, ExpiredGrants] = {}
        """Per recipient, grants that have expired but are not recorded as revoked yet: they authorize nothing."""
        self._capabilities: dict[str, CapabilitySet] = {}
        self._formats: dict[str, Formats] = {}
        self._patterns: dict[str, int] = {}
        """Number of patterns in the formats of each stream."""
        self._envelope_rates: dict[str, Bucket] = {}
        self._frame_rates: dict[str, Bucket] = {}
        self._throttles: dict[str, ErrorThrottle] = {}
        self.budgets = Budgets()
        self._left: dict[str, int] = {}
        """When each departed participant left, in order of leaving; kept while its rates are kept."""

    def handle(self, command: Command, now: int) -> list[Effect]:
        """Execute one command and return its effects.

        `now` is in microseconds since 1970. If it is earlier than the last known time, that time is used instead.
        """
        self._now = self.time_at(now)
        transition = Transition(self, self._now, self.apply)
        _HANDLERS[type(command)](transition, command)
        return transition.effects

    def time_at(self, now: int) -> int:
        """Return the time of a command that arrives `now`: time in a space never goes back."""
        return max(now, self._now, self.state.time)

    def in_state(self, state: SpaceState) -> "SpaceCore":
        """Return a copy of the space in another state, for a dry run. It shares all other data with the space.

        Capabilities are compiled again if the grants differ.
        """
        twin = copy(self)
        twin.state = state
        if state.grants is not self.state.grants:
            twin._capabilities = {}
        return twin

    def route(self, participant: str, message: bytes) -> Route | ProtocolError:
        """Return the route of a frame, or why it is rejected: the whole frame rule (protocol §4), in constant time."""
        route = self._routes.get(message[: message.find(b"#", 1) + 1])
        if (
            route is not None
            and participant in route.writers
            and participant not in self._muted
            and len(message) <= self._short_cut_bytes
        ):
            return route
        return self.check_frame(participant, message)

    def check_frame(self, participant: str, message: bytes) -> Route | ProtocolError:
        """Return the same as `route`, by the complete frame rule, in order."""
        limits = self.settings.limits
        if len(message) > limits.message_bytes:
            return MessageTooLarge.of_size(len(message), limits.message_bytes)
        if limits.frames_per_second is not None and not self.frame_rate(participant).take():
            wait = self.frame_rate(participant).wait_from_here(tokens=1)
            return self.budgets.over("frames", f"over {limits.frames_per_second:g} frames a second", wait)
        try:
            stream_id, _ = split_frame(message)
        except InvalidEnvelope as refusal:
            return refusal
        if self.is_muted(participant):
            return Paused(f"{participant!r} is paused", stream_id=stream_id)
        route = self.stream_route(frame_header(stream_id))
        if route is None:
            return data.unauthorized_write(participant, stream_id)
        if not route.live:
            return StreamNotLive(f"{stream_id!r} is announced but not started", stream_id=stream_id)
        return route if participant in route.writers else data.unauthorized_write(participant, stream_id)

    def accept_frames(self, route: Route, count: int, now: int) -> tuple[int, int, int]:
        """Assign positions and frame numbers to a batch of routed frames, one record each.

        Returns the position, time and frame number of the first frame.
        """
        state = self.state
        position = state.position + 1
        state.position += count
        state.time = max(now, state.time)
        return position, state.time, advance_frame_number(state, route.stream_id, count)

    def stream_route(self, stream_header: bytes) -> Route | None:
        """Return the route for a frame header, live or not; None if there is no such stream."""
        return self._routes.get(stream_header)

    def new_id(self) -> str:
        """Return a new envelope id, unique across all starts of the gateway."""
        self._ids += 1
        return f"{self.state.epoch}-{self._ids:x}"

    def capabilities(self, participant: str) -> CapabilitySet:
        """Return the effective capabilities of a participant, compiled and cached."""
        capabilities = self._capabilities.get(participant)
        if capabilities is None:
            ended = self.ended.get(participant)
            capabilities = self.state.capabilities(participant, () if ended is None else ended.grant_ids)
            self._capabilities[participant] = capabilities
        return capabilities

    def roster_entry(self, participant: str) -> bytes:
        """Return the roster entry that others receive for a participant, present or not."""
        entry = self.roster.entries.get(participant)
        return entry if entry is not None else roster_entry(participant, self.capabilities(participant))

    def formats(self, stream_id: str) -> Formats:
        """Return the formats of a stream, compiled and cached."""
        compiled = self._formats.get(stream_id)
        if compiled is None:
            declared = self.state.streams[stream_id].value("formats")
            compiled = Formats() if declared is None else read_formats(declared, len(declared))
            self._formats[stream_id] = compiled
        return compiled

    def pattern_counts(self, creator: str) -> tuple[int, int]:
        """Return the number of patterns in the streams that a participant created, and in all streams."""
        streams = self.state.streams
        own = sum(count for stream_id, count in self._patterns.items() if streams[stream_id].creator == creator)
        return own, sum(self._patterns.values())

    def require_rates(self, session: Session, now: int) -> None:
        """Spend one envelope of the sender's rate.

        Raises `RateLimited` if the rate is exceeded, or if the sender owes work units or bytes.
        """
        limits = self.settings.limits
        if not self.may_send(session.allowance, now):
            wait = self._envelope_rates[session.allowance].wait(now, tokens=1)
            raise self.budgets.over("envelopes", f"over {limits.envelopes_per_second:g} envelopes a second", wait)
        self.budgets.require(session.payer, limits, now)

    def charge(self, payer: str, now: int, *, work: int, size: int) -> None:
        """Charge work units and bytes (`size`) to a participant or an observer."""
        self.budgets.charge(payer, self.settings.limits, now, work=work, size=size)

    def may_send(self, participant: str, now: int) -> bool:
        """Return whether a participant's rate allows one more envelope, and spend it if so."""
        bucket = self._envelope_rates.get(participant)
        if bucket is None:
            limits = self.settings.limits
            bucket = Bucket(limits.envelopes_per_second, limits.envelope_burst, now)
            self._envelope_rates[participant] = bucket
        return bucket.spend(now)

    def frame_rate(self, participant: str) -> Bucket:
        """Return the frame rate of a participant. It is refilled at every tick and by the sender's own commands."""
        limits = self.settings.limits
        bucket = self._frame_rates.get(participant)
        if bucket is None:
            bucket = Bucket(limits.frames_per_second or 0, limits.frame_burst, self._now)
            self._frame_rates[participant] = bucket
        return bucket

    def throttle(self, participant: str) -> ErrorThrottle:
        """Return the throttle that limits repeated errors to a participant."""
        return self._throttles.setdefault(participant, ErrorThrottle())

    def is_muted(self, participant: str) -> bool:
        """Return whether the participant is paused or shutting down, as of the last command."""
        return participant in self._muted

    def pass_time(self, now: int) -> None:
        """Unmute participants whose pause or shutdown period has ended by `now`."""
        if now >= self._mutes_change:
            self._derive_mutes(now)

    def fill_frame_rates(self, now: int) -> None:
        """Refill the frame rates up to `now`. `route` takes no time argument, so it cannot do this."""
        for bucket in self._frame_rates.values():
            bucket.fill(now)

    def forget(self, participant: str) -> None:
        """Drop the data of a participant that left. Its rates are kept for `RETENTION_SECONDS`."""
        for table in (self.http_expiry, self.connections):
            table.pop(participant, None)
        self._left.pop(participant, None)
        self._left[participant] = self._now
        if len(self._left) > self.budgets.max_payers:
            self._forget_rates(next(iter(self._left)))

    def forget_rates(self, now: int) -> None:
        """Drop the rates of participants that left at least `RETENTION_SECONDS` ago and have not reconnected."""
        for participant in [name for name, left in self._left.items() if left + RETENTION_SECONDS * SECOND <= now]:
            self._forget_rates(participant)

    def _forget_rates(self, participant: str) -> None:
        del self._left[participant]
        if participant not in self.connections:
            for table in (self._envelope_rates, self._frame_rates, self._throttles):
                table.pop(participant, None)

    def apply(self, record: Record) -> None:
        """Apply a new record to the state, and update the data derived from the state."""
        if record.event == records.CHECKPOINT:
            # A checkpoint contains exactly this state: reading it back would change nothing else.
            self.state.position, self.state.time = record.position, record.time
            return
        self.state = fold(self.state, record)
        if record.event == records.START:
            self._derive_all()
        elif record.event == records.JOINED:
            self._derive_presence(record.participant)
        elif record.event == records.LEFT:
            self.roster.drop(record.participant)
            if record.participant not in self.state.left:  # an anonymous one takes its grants along
                self._capabilities.pop(record.participant, None)
                self.capability_usage.put(self.state, record.participant)
            self._derive_presence(record.participant)
            self._derive_mutes(record.time)
        elif record.stream_id is not None and record.kind in _ABOUT_STREAMS:
            self._derive_stream(record.stream_id)
        elif record.kind in _ABOUT_PAUSES:
            self._derive_mutes(record.time)
        elif record.kind in _WITH_AN_END:
            self.next_end = 0

    def end_grants(self, ended: dict[str, tuple[str, ...]]) -> None:
        """Withdraw the capabilities of expired grants, given per recipient. Their end is recorded later."""
        now_ended: dict[str, ExpiredGrants] = {}
        for participant, grant_ids in ended.items():
            already_ended = self.ended.get(participant)
            before = None if already_ended is None else already_ended.before
            is_more = already_ended is None or any(grant_id not in already_ended.grant_ids for grant_id in grant_ids)
            if before is None and is_more and participant in self.state.present:
                before = self.capabilities(participant).text
            now_ended[participant] = ExpiredGrants(dict.fromkeys(grant_ids), before)
        for participant in {**self.ended, **now_ended}:
            self._capabilities.pop(participant, None)
        self.ended = now_ended

    def capabilities_changed(self, participant: str, before: bytes | None = None) -> bool:
        """Recompile a participant's capabilities. Return whether they changed.

        They are compared with `before`, or with the cached capabilities if it is None.
        """
        if before is None:
            before = self.capabilities(participant).text
        self._derive_participant(participant)
        return self.capabilities(participant).text != before

    def _derive_all(self) -> None:
        self._capabilities.clear()
        self._formats.clear()
        self._patterns.clear()
        self._routes.clear()
        self.stream_usage = StreamUsage()
        state = self.state
        self.ids_in_use = IdsIgnoringCase((*state.configured, *state.invited, *state.present))
        self.roster.clear()
        self.capability_usage = CapabilityUsage()
        for participant in {**state.grants, **state.invited}:
            self.capability_usage.put(state, participant)
        self._derive_mutes(self.state.time)
        for stream_id in self.state.streams:
            self._derive_stream(stream_id)

    def _derive_participant(self, participant: str) -> None:
        self._capabilities.pop(participant, None)
        self.capability_usage.put(self.state, participant)
        self._derive_presence(participant)

    def _derive_presence(self, participant: str) -> None:
        """Update what depends on who is present. Compiled capabilities do not: they are kept for a reconnect."""
        (self.ids_in_use.add if self.state.knows(participant) else self.ids_in_use.discard)(participant)
        if participant in self.state.present:
            self.roster.put(participant, roster_entry(participant, self.capabilities(participant)))

    def _derive_mutes(self, now: int) -> None:
        state = self.state
        self._muted = {name for name in (*state.paused, *state.closing) if state.is_muted(name, now)}
        ends = [until for until in (*state.paused.values(), *state.closing.values()) if until is not None]
        self._mutes_change = min((until for until in ends if until > now), default=_NEVER)

    def _derive_stream(self, stream_id: str) -> None:
        stream = self.state.streams.get(stream_id)
        if stream is None:
            self._routes.pop(frame_header(stream_id), None)
            self._formats.pop(stream_id, None)
            self._patterns.pop(stream_id, None)
            self.stream_usage.drop(stream_id)
            return
        if stream_id not in self._patterns:
            self._patterns[stream_id] = count_patterns(stream.value("formats"))
        self.stream_usage.put(stream)
        self._routes[frame_header(stream_id)] = Route(
            stream_id=stream_id,
            owner=stream.owner,
            writers=frozenset(stream.writers) if stream.status == LIVE else frozenset(),
            live=stream.status == LIVE,
            targets=stream.targets,
        )


_NEVER: Final = 2**63
_ABOUT_STREAMS: Final = kinds.ENDINGS | {
    kinds.STREAM_OPEN,
    kinds.STREAM_READY,
    kinds.STREAM_START,
    kinds.WRITE_GRANTED,
    kinds.WRITE_REVOKED,
    kinds.OWNERSHIP_TRANSFERRED,
}
_ABOUT_PAUSES: Final = frozenset({kinds.PAUSE, kinds.RESUME, kinds.SHUTDOWN, kinds.INVITE})
_WITH_AN_END: Final = frozenset({kinds.MCP_PROPOSAL, kinds.CAPABILITY_GRANT})
_HANDLERS: Final[dict[type, Callable[[Transition, Any], None]]] = {
    Start: timeouts.begin_epoch,
    Join: presence.join_connection,
    AttachOutputLog: presence.attach_output_log,
    Leave: presence.leave_connection,
    Receive: dispatch.receive_message,
    Post: dispatch.post_message,
    Poll: dispatch.poll_messages,
    ReportLoss: data.report_loss,
    Tick: timeouts.pass_tick,
    Checkpoint: presence.record_checkpoint,
    RefuseConnection: administration.record_refused_connection,
    Administer: administration.record_action,
}
