"""The checks of an incoming message, in order, and the table of handlers by kind (protocol §1).

Pure. The first check that fails determines the error. A rejected envelope is recorded with its header and the digest
of its payload, so that rejections take little space in the journal.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Session, is_join
from mew.protocol.envelope import Envelope, Stamp, check_content, check_lists, given_id, read_object, stamp_envelope
from mew.protocol.errors import (
    CapabilityViolation,
    InvalidEnvelope,
    InvalidRequest,
    MessageTooLarge,
    Paused,
    ProtocolError,
    QuotaExceeded,
    RateLimited,
    ReservedKind,
)
from mew.protocol.frames import is_frame
from mew.protocol.handlers import data, membership, ownership, presence, proposals, streams, timeouts
from mew.protocol.interface import Close, HttpAnswer, OneConnection, Poll, Post, Receive, Recipients
from mew.protocol.limits import Bucket
from mew.protocol.timestamps import rfc3339
from mew.protocol.transition import Transition
from mew.protocol.work import BYTES_PER_UNIT, CONTAINERS_PER_UNIT, JOIN_UNITS, MESSAGE_UNITS

HEAD_BYTES: Final = 1024
"""Number of leading payload bytes that are kept."""
FIELD_BYTES: Final = 1024
"""Header fields with more bytes than this are left out."""
DETAILED_PER_SECOND: Final = 4
"""Rejected envelopes per second and sender that are recorded with header and head. Others: only code and size."""
DETAILED_BURST: Final = 64
_HEADER: Final = frozenset({"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context"})


def shortened_envelope(envelope: Envelope) -> bytes:
    """Return the form in which a rejected envelope is recorded.

    It has the header fields, and the size, digest and first bytes of the payload.
    """
    fields = {name: text for name, text in envelope.fields.items() if name in _HEADER and len(text) <= FIELD_BYTES}
    payload = envelope.fields.get("payload")
    if payload is not None:
        digest = {
            "bytes": len(payload),
            "sha256": sha256(payload).hexdigest(),
            "head": payload[:HEAD_BYTES].decode("utf-8", "ignore"),
        }
        fields["payload"] = raw_json.encode_json(digest)
    return raw_json.join_json(fields)


class RefusalDetails:
    """Decides which rejected envelopes are recorded in detail: those of senders that are rejected rarely.

    The limits outlive connections, so that a reconnect gives no new burst. A sender is removed when its burst is full.
    """

    def __init__(self) -> None:
        """Start with an empty table."""
        self._buckets: dict[str, Bucket] = {}

    def admit(self, sender: str, now: int) -> bool:
        """Whether one more rejected envelope of this sender is recorded in detail."""
        bucket = self._buckets.get(sender)
        if bucket is None:
            bucket = self._buckets[sender] = Bucket(DETAILED_PER_SECOND, DETAILED_BURST, now)
        return bucket.spend(now)

    def forget(self, now: int) -> None:
        """Remove senders that may use their full burst again."""
        for sender, bucket in list(self._buckets.items()):
            bucket.fill(now)
            if bucket.is_full:
                del self._buckets[sender]


MAX_FIELDS: Final = 1_024
"""Maximum number of top-level fields in one message."""
REGISTER_REFUSED: Final = "system/register is reserved for the gateway. Use capability/grant instead."


def receive_message(transition: Transition, command: Receive) -> None:
    """Handle a message from a socket. Messages from a replaced socket are dropped (protocol §2)."""
    session = transition.space.sessions.get(command.connection)
    if session is None:
        return
    transition.space.pass_time(transition.now)
    timeouts.end_due(transition)
    if is_frame(command.message):
        data.receive_frame(transition, session, command)
        return
    incoming = IncomingMessage(transition, session.participant, command.message)
    try:
        incoming.carry_out(session)
    except ProtocolError as refusal:
        incoming.reject(refusal, f"#{session.participant}" if session.observer else session.participant)
        _send_refusal(transition, session, incoming, refusal)
    incoming.charge(session)


def post_message(transition: Transition, command: Post) -> None:
    """Handle a message sent over HTTP: same rules, plus a response (protocol §5)."""
    incoming = IncomingMessage(transition, command.participant, command.message)
    session: Session | None = None
    try:
        session = presence.ensure_present(transition, command.participant, command.peer)
        transition.space.pass_time(transition.now)
        timeouts.end_due(transition)
        incoming.refuse_frame()
        incoming.carry_out(session)
    except ProtocolError as refusal:
        incoming.reject(refusal, command.participant)
        if incoming.kind == kinds.REGISTER:
            audience = Recipients((command.participant,))
            transition.send_error(audience, command.participant, refusal, incoming.correlation_id)
        transition.effects.append(HttpAnswer(refusal.payload(), refusal.bare()))
        incoming.charge(session)
        return
    incoming.charge(session)
    envelope = incoming.envelope
    if envelope is None:
        transition.answer(transition.space.new_id(), rfc3339(transition.now))
    else:
        transition.answer(envelope.id, envelope.ts)


def poll_messages(transition: Transition, command: Poll) -> None:
    """Handle a poll over HTTP, which also makes the participant present (protocol §5)."""
    space = transition.space
    try:
        space.budgets.require(command.participant, space.settings.limits, transition.now)
        presence.ensure_present(transition, command.participant, command.peer)
        space.charge(command.participant, transition.now, work=MESSAGE_UNITS, size=0)
    except ProtocolError as refusal:
        transition.effects.append(HttpAnswer(refusal.payload(), refusal.bare()))


class IncomingMessage:
    """One message during its checks. Keeps what is known about the message in case a check fails."""

    def __init__(self, transition: Transition, sender: str, message: bytes) -> None:
        """Start with an unparsed message."""
        self.transition = transition
        self.sender = sender
        self.message = message
        self.envelope: Envelope | None = None
        self.values: dict[str, Any] = {}
        self._units = 0

    @property
    def units(self) -> int:
        """Units of work spent on the message; 0 if it was rejected before any work."""
        return self._units and self._units + self.transition.work.units

    @property
    def kind(self) -> Any:
        """The `kind` as sent; it may be any JSON value."""
        return self.values.get("kind")

    @property
    def correlation_id(self) -> tuple[str, ...]:
        """The id to correlate an error with; empty if the message has no usable id."""
        return given_id(self.values) if self.envelope is None else (self.envelope.id,)

    def refuse_frame(self) -> None:
        """Raise `InvalidEnvelope` for a frame: HTTP has no opcodes to preserve (protocol §5)."""
        if is_frame(self.message):
            raise InvalidEnvelope("frames cannot be posted; send `stream/data`")

    def carry_out(self, session: Session, *, counted: bool = True) -> None:
        """Check and handle the message. With `counted=False` it does not use up the sender's rate."""
        transition, space = self.transition, self.transition.space
        if len(self.message) > space.settings.limits.message_bytes:
            raise MessageTooLarge.of_size(len(self.message), space.settings.limits.message_bytes)
        if counted:
            space.require_rates(session, transition.now)
        self._units = MESSAGE_UNITS + len(self.message) // BYTES_PER_UNIT
        self.values, fields = self._read()
        if is_join(self.values):
            self._units += JOIN_UNITS
            self._check_size(kinds.JOIN)
            presence.rejoin(transition, session, self.values, self.correlation_id)
            return
        check_lists(self.values)
        envelope = stamp_envelope(self.values, fields, Stamp(self.sender, space.new_id(), transition.now))
        self.envelope = envelope
        self._check(envelope, session)
        _HANDLERS.get(envelope.kind, _relay)(transition, envelope)

    def _read(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Parse the message, or raise `InvalidEnvelope` if it is too complex to parse."""
        try:
            containers, slow_units = raw_json.count_parts(self.message)
        except raw_json.NotJSON as error:
            raise InvalidEnvelope(f"too complex to parse: {error}") from None
        self._units += containers // CONTAINERS_PER_UNIT + slow_units
        return read_object(self.message, most_fields=MAX_FIELDS, containers=containers)

    def _check_size(self, kind: str) -> None:
        """Raise `QuotaExceeded` if a message that the gateway acts on is too large (protocol, Limits)."""
        limits = self.transition.space.settings.limits
        most = limits.heartbeat_bytes if kind == kinds.HEARTBEAT else limits.control_message_bytes
        if len(self.message) > most and (kind == kinds.HEARTBEAT or kind in kinds.ACTED_ON):
            raise QuotaExceeded(f"a {kind!r} may have {most} bytes; this one has {len(self.message)}")

    def charge(self, session: Session | None) -> None:
        """Charge the sender for the message and for everything that the gateway sent because of it."""
        if session is not None and self._units:
            sent_bytes = self.transition.sent_bytes
            work = self.units + sent_bytes // BYTES_PER_UNIT
            self.transition.space.charge(
                session.payer, self.transition.now, work=work, size=len(self.message) + sent_bytes
            )

    def _check(self, envelope: Envelope, session: Session) -> None:
        """Check validity, `system/register`, reserved kinds, pauses and capabilities, in this order."""
        space, kind = self.transition.space, envelope.kind
        claimed = self.values.get("from")
        if space.settings.strict_from and claimed is not None and claimed != self.sender:
            raise InvalidEnvelope(f"`from` is {claimed!r}, but you are {self.sender!r}")
        check_content(envelope)
        self._check_size(kind)
        if kind == kinds.REGISTER:
            raise InvalidRequest(REGISTER_REFUSED)
        if kinds.is_reserved_kind(kind):
            raise ReservedKind(f"{kind!r} is sent by the gateway alone", attempted_kind=kind)
        if session.observer and kind != kinds.HEARTBEAT:
            raise CapabilityViolation("an observer cannot send messages", attempted_kind=kind, your_capabilities=[])
        if kind == kinds.MCP_WITHDRAW and proposals.is_own_withdrawal(space.state, envelope, self.transition.now):
            return
        if kind not in kinds.ALLOWED_WHILE_PAUSED and space.is_muted(self.sender):
            raise Paused(f"{self.sender!r} is paused", attempted_kind=kind)
        if kind not in kinds.NO_CAPABILITY:
            self.transition.require_capability(envelope)

    def reject(self, refusal: ProtocolError, sender: str) -> None:
        """Record the rejection.

        For an envelope, the header is recorded. For other text, only the size is recorded: it may contain a token.
        If a sender is rejected repeatedly, its further records have only code and size.
        """
        envelope = self.envelope
        details: dict[str, Any] = {}
        if self.correlation_id and self.transition.space.refusal_details.admit(sender, self.transition.now):
            details["envelope_id"] = self.correlation_id[0]
            if envelope is not None:
                details |= {"kind": envelope.kind, "payload": shortened_envelope(envelope)}
        self.transition.record(records.REJECTED, self.sender, reason=refusal.code, size=len(self.message), **details)


def _send_refusal(transition: Transition, session: Session, incoming: IncomingMessage, refusal: ProtocolError) -> None:
    """Send the error to the socket of a rejected message. Close the socket if the error requires it."""
    if isinstance(refusal, RateLimited):
        suppressed = transition.space.throttle(session.allowance).admit("", refusal.code, transition.now)
        if suppressed is None:
            return
        if suppressed:
            refusal.parts["suppressed"] = suppressed
    transition.send_error(OneConnection(session.connection), session.participant, refusal, incoming.correlation_id)
    if refusal.close_code is not None:
        transition.effects.append(Close(session.connection, refusal.close_code, refusal.code))
        presence.remove_connection(transition, session, reason=refusal.code)


def _relay(transition: Transition, envelope: Envelope) -> None:
    if envelope.kind.startswith("stream/"):
        streams.relay_about_stream(transition, envelope)
    else:
        transition.relay(envelope)


def _heartbeat(transition: Transition, envelope: Envelope) -> None:
    transition.consume(envelope)


_HANDLERS: Final[dict[str, Callable[[Transition, Envelope], None]]] = {
    kinds.HEARTBEAT: _heartbeat,
    kinds.CAPABILITY_GRANT: membership.grant_capabilities,
    kinds.CAPABILITY_REVOKE: membership.revoke_capabilities,
    kinds.INVITE: membership.invite_participant,
    kinds.KICK: membership.kick_participant,
    kinds.PAUSE: membership.pause_participants,
    kinds.MCP_PROPOSAL: proposals.open_proposal,
    kinds.MCP_REQUEST: proposals.relay_request,
    kinds.MCP_RESPONSE: proposals.relay_response,
    kinds.MCP_REJECT: proposals.reject_proposal,
    kinds.MCP_WITHDRAW: proposals.withdraw_proposal,
    kinds.MCP_APPROVE: proposals.approve_proposal,
    kinds.STREAM_REQUEST: streams.request_stream,
    kinds.STREAM_ANNOUNCE: streams.announce_stream,
    kinds.STREAM_START: streams.start_stream,
    kinds.STREAM_CLOSE: streams.close_stream,
    kinds.STREAM_COMPLETE: streams.complete_stream,
    kinds.STREAM_ERROR: streams.fail_stream,
    kinds.STREAM_DATA: data.receive_data,
    kinds.GRANT_WRITE: ownership.grant_write,
    kinds.REVOKE_WRITE: ownership.revoke_write,
    kinds.TRANSFER_OWNERSHIP: ownership.transfer_ownership,
}
