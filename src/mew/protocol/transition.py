"""The records and effects that one command has produced so far, in order.

Pure. Handlers check first, then record, relay and send. Nothing is rolled back.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mew.protocol import kinds, raw_json, records
from mew.protocol.authorization import decide
from mew.protocol.capabilities import Decision
from mew.protocol.envelope import Envelope, Stamp, compose
from mew.protocol.errors import CapabilityViolation, ProtocolError
from mew.protocol.interface import EVERYONE, Audience, CapabilityChecked, Deliver, Effect, HttpAnswer
from mew.protocol.records import Record
from mew.protocol.streams import StreamEntry
from mew.protocol.work import Work

if TYPE_CHECKING:
    from mew.protocol.space import SpaceCore


class GatewayMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope from the gateway itself, before it has an id and a time."""

    kind: str
    payload: bytes
    audience: Audience = EVERYONE
    to: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    """Ids of the envelopes that it answers."""
    stream: StreamEntry | None = None
    recorded: bytes | None = None
    """The payload to record, if the sent payload contains a token."""


class Transition:
    """The effects of one command, collected while it is handled."""

    __slots__ = (
        "_apply",
        "answer_fields",
        "effects",
        "matched_capability",
        "now",
        "refusal",
        "sent_bytes",
        "space",
        "work",
    )

    def __init__(self, space: "SpaceCore", now: int, apply: Callable[[Record], None]) -> None:
        """Start without any effects. `apply` receives each record: that of a space applies it to the space."""
        self.space = space
        self.now = now
        self._apply = apply
        self.effects: list[Effect] = []
        self.work = Work()
        """Work done so far, in addition to the fixed work for every message."""
        self.sent_bytes = 0
        """Bytes of the envelopes that the gateway itself has sent."""
        self.matched_capability: str | None = None
        """The capability that allowed the current envelope."""
        self.answer_fields: dict[str, Any] = {}
        """Fields of the HTTP response in addition to id and time."""
        self.refusal: ProtocolError | None = None
        """Error for the HTTP response, if the sender receives a protocol envelope instead of an error."""

    def require_capability(self, envelope: Envelope) -> None:
        """Raise `CapabilityViolation`, with the nearest miss, if no capability allows the envelope.

        Adds a `CapabilityChecked` effect with the decision.
        """
        decision = decide(self.space, envelope, self.work)
        self.effects.append(CapabilityChecked(envelope.id, envelope.sender, envelope.kind, decision))
        if not decision.allowed:
            raise self._violation(envelope, decision)
        self.matched_capability = decision.matched

    def _violation(self, envelope: Envelope, decision: Decision) -> CapabilityViolation:
        capabilities = self.space.capabilities(envelope.sender)
        return CapabilityViolation(
            f"{envelope.sender!r} may not send {envelope.kind!r}: {decision.reason}",
            attempted_kind=envelope.kind,
            your_capabilities=[capability.pattern for _, capability in capabilities.sourced],
        )

    def all_checked(self) -> None:
        """Mark the end of the checks: everything after this takes effect, as a record does. A dry run stops here."""

    def record(self, event: str, participant: str, **columns: Any) -> Record:
        """Write a record and apply it. Return the record."""
        record = Record(self.space.state.position + 1, self.now, event, participant, **columns)
        self._apply(record)
        self.effects.append(record)
        return record

    def relay(self, envelope: Envelope, audience: Audience = EVERYONE, **columns: Any) -> None:
        """Record the envelope of a participant and relay it."""
        message = envelope.encode()
        self._record_envelope(records.ENVELOPE, envelope, message, columns)
        self.effects.append(Deliver(audience, envelope.kind, envelope.id, message))

    def consume(self, envelope: Envelope, **columns: Any) -> None:
        """Record the envelope of a participant that is carried out but not relayed."""
        self._record_envelope(records.CONSUMED, envelope, envelope.encode(), columns)

    def _record_envelope(self, event: str, envelope: Envelope, message: bytes, columns: dict[str, Any]) -> None:
        record = Record(
            self.space.state.position + 1,
            self.now,
            event,
            envelope.sender,
            envelope.kind,
            envelope.id,
            size=len(message),
            payload=message,
            capability=self.matched_capability,
            **columns,
        )
        self._apply(record)
        self.effects.append(record)

    def emit(self, message: GatewayMessage, event: str = records.ENVELOPE, **columns: Any) -> None:
        """Record an envelope from the gateway and send it."""
        stamp = Stamp(kinds.GATEWAY, self.space.new_id(), self.now)
        text = _compose(message, message.payload, stamp)
        self.sent_bytes += len(text)
        own_columns: dict[str, Any] = {
            "participant": kinds.GATEWAY,
            "kind": message.kind,
            "envelope_id": stamp.new_id,
            "stream_id": None if message.stream is None else message.stream.stream_id,
            "size": len(text),
            "payload": text if message.recorded is None else _compose(message, message.recorded, stamp),
        }
        self.record(event, **{**own_columns, **columns})
        self.effects.append(Deliver(message.audience, message.kind, stamp.new_id, text))

    def send_error(
        self, audience: Audience, participant: str, refusal: ProtocolError, correlation_id: tuple[str, ...] = ()
    ) -> None:
        """Send `system/error` (protocol §6). The rejection has its own record."""
        message = GatewayMessage(
            kind=kinds.ERROR, payload=raw_json.encode_json(refusal.payload()), to=(participant,), cause=correlation_id
        )
        stamp = Stamp(kinds.GATEWAY, self.space.new_id(), self.now)
        text = _compose(message, message.payload, stamp)
        self.sent_bytes += len(text)
        self.effects.append(Deliver(audience, kinds.ERROR, stamp.new_id, text))

    def emit_for_stream(self, stream: StreamEntry, kind: str, cause: tuple[str, ...], **payload: Any) -> None:
        """Send all participants an envelope about a stream. Fields that are None are left out."""
        fields = {name: value for name, value in payload.items() if value is not None}
        reference = {"stream_id": stream.stream_id, "namespace": stream.namespace}
        text = raw_json.encode_json({"stream_id": stream.stream_id, **fields, "stream": reference})
        self.emit(GatewayMessage(kind=kind, payload=text, cause=cause, stream=stream), reason=payload.get("reason"))

    def answer(self, envelope_id: str, ts: str) -> None:
        """Answer a `Post` that was carried out."""
        if self.refusal is not None:
            self.effects.append(HttpAnswer(self.refusal.payload(), self.refusal))
            return
        self.effects.append(
            HttpAnswer({"id": envelope_id, "status": "accepted", **self.answer_fields, "timestamp": ts})
        )


def _compose(message: GatewayMessage, payload: bytes, stamp: Stamp) -> bytes:
    context = None if message.stream is None else message.stream.namespace
    return compose(message.kind, payload, stamp, to=message.to, correlation_id=message.cause, context=context)
