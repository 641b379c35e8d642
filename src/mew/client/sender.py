"""Sends envelopes: composes each one, sends it once, and waits for the answer.

Every envelope goes through `EnvelopeSender.post`. The gateway decides what may be sent.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec

from mew.client.dispatcher import Dispatcher
from mew.client.errors import InvalidEnvelope
from mew.client.pending import Accepts, PendingRequest, PendingRequests
from mew.client.session import ReconnectingSession
from mew.protocol import kinds, raw_json
from mew.protocol.envelope import Envelope, parse
from mew.protocol.errors import ProtocolError
from mew.protocol.streams import referenced_stream_id

Names = str | Sequence[str]
CLEANUP_SECONDS: Final = 2.0
"""Timeout in seconds for the last message of a cancelled call."""


class OutgoingEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope without an id."""

    kind: str
    payload: Any = None
    """An object, or a function that creates it when the envelope is sent."""
    to: Names = ()
    correlation_id: Names = ()
    context: Any = None
    proposal: Any = None
    """The proposal that it refers to, or the lifetime of a new proposal (protocol §3, Proposals)."""
    on_sent: Callable[[str], None] | None = None
    """Called with the envelope id immediately before the envelope is sent."""

    def encode(self, envelope_id: str) -> bytes:
        """Return the message to send. Raises `InvalidEnvelope` if it is nested too deeply."""
        payload = self.payload() if callable(self.payload) else self.payload
        fields: dict[str, Any] = {"id": envelope_id, "kind": self.kind}
        for name, value in (("to", self.to), ("correlation_id", self.correlation_id)):
            if value:
                fields[name] = [value] if isinstance(value, str) else list(value)
        if self.context is not None:
            fields["context"] = self.context
        if self.proposal is not None:
            fields["proposal"] = self.proposal
        fields["payload"] = {} if payload is None else payload
        return _checked(msgspec.json.encode(fields))


def _checked(message: bytes) -> bytes:
    """Return the message unless it is nested too deeply.

    The gateway cannot parse such a message, so its error would not have the id of the message.
    """
    try:
        if message.count(b"{") + message.count(b"[") > raw_json.MAX_NESTING:
            raw_json.decode_json(message)
    except raw_json.NotJSON as error:
        raise InvalidEnvelope(f"not an envelope: {error}") from None
    return message


_MARKER: Final = OutgoingEnvelope(kind=kinds.JOIN)


def _is_welcome(envelope: Envelope) -> bool:
    return envelope.kind == kinds.WELCOME and envelope.sender == kinds.GATEWAY


class EnvelopeSender:
    """Sends envelopes over the current connection."""

    def __init__(self, session: ReconnectingSession, dispatcher: Dispatcher, pending: PendingRequests) -> None:
        """Choose a random prefix, so that envelope ids are unique to this client."""
        self._session = session
        self._dispatcher = dispatcher
        self._pending = pending
        self._prefix = secrets.token_hex(5)
        self._numbers = count(1)

    async def post(self, draft: OutgoingEnvelope, accepts: Accepts | None = None) -> Envelope:
        """Send an envelope and wait for its echo, or for the answer for which `accepts` returns true."""
        return await self._post(draft, accepts, is_marker=False)

    async def flush(self) -> None:
        """Send a second join and wait for its welcome: it arrives after the answers to all earlier messages."""
        await self._post(_MARKER, _is_welcome, is_marker=True)

    def send_marker(self, marker_id: str) -> None:
        """Send a second join for which no caller waits."""
        if self._session.connection is not None:
            self._session.connection.send_raw(_MARKER.encode(marker_id))

    async def _post(self, draft: OutgoingEnvelope, accepts: Accepts | None, *, is_marker: bool) -> Envelope:
        connection = await self._session.writable()
        envelope_id = f"{self._prefix}-{next(self._numbers)}"
        message = draft.encode(envelope_id)
        pending = PendingRequest(envelope_id, draft.kind, message, accepts)
        if draft.on_sent is not None:
            draft.on_sent(envelope_id)
        if accepts is None and not self._is_answered(draft.kind, message):
            connection.send_raw(message)
            pending.future.cancel()
            return pending.sent(self._dispatcher.participant_id)
        self._pending.expect(pending, is_marker=is_marker)
        try:
            connection.send_raw(message)
            return await pending.future
        finally:
            self._pending.forget(pending)

    def _is_answered(self, kind: str, message: bytes) -> bool:
        """Whether the gateway answers if it accepts this: not heartbeats, nor data that only others receive."""
        if kind == kinds.STREAM_DATA and self._dispatcher.router.has_targets:
            with suppress(ProtocolError):
                route = self._dispatcher.router.route(str(referenced_stream_id(parse(message))))
                return route is None or route.echoes
        return kind != kinds.HEARTBEAT
