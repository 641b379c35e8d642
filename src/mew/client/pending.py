"""Requests in flight: each was sent once, and waits for its echo or its answer.

The gateway answers every message, in order: it echoes or answers an accepted one, and sends `system/error` for a
rejected one. Messages over the rate limit are the exception: only some of them are answered. If a request waits too
long, the client sends a flush marker, which is a second join. When its welcome arrives, every earlier request without
an answer has been dropped.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from mew.client.connection import Closed
from mew.client.errors import ConnectionLost, MessageTooLarge, MewError, RateLimited, error_from_envelope
from mew.protocol import kinds
from mew.protocol.envelope import Envelope, Stamp, read_object, stamp_envelope
from mew.protocol.errors import ProtocolError
from mew.protocol.timestamps import SECOND

MARKER_SECONDS: Final = 5.0
"""Seconds without an answer after which the client sends a flush marker."""
UNCONFIRMED_SECONDS: Final = 0.25
"""The same for the kinds in `UNCONFIRMED_KINDS`."""
UNCONFIRMED_KINDS: Final = frozenset({kinds.KICK})
"""Kinds that get no answer if the participant to remove is not present: only a flush marker confirms them."""
TOO_LARGE: Final = 1009
"""Close code for a message that is too large."""
LARGE: Final = 64 * 1024
"""Size in bytes. If the gateway closes with 1009, messages over this size are assumed to be too large."""
MARKER: Final = "flush-"
"""Start of the ids of flush markers that no caller waits for."""
Accepts = Callable[[Envelope], bool]


class PendingRequest:
    """One sent message that waits for its answer."""

    __slots__ = ("accepted", "accepts", "future", "id", "kind", "message", "number", "since")

    def __init__(self, envelope_id: str, kind: str, message: bytes, accepts: Accepts | None) -> None:
        """Wait for the answer for which `accepts` returns true; None: wait until the message is accepted."""
        loop = asyncio.get_running_loop()
        self.id = envelope_id
        self.kind = kind
        self.message = message
        self.accepts = accepts
        self.accepted = False
        """Whether the gateway has accepted the message."""
        self.future: asyncio.Future[Envelope] = loop.create_future()
        self.since = loop.time()
        self.number = 0

    def sent(self, participant_id: str) -> Envelope:
        """Return the envelope as sent, with the fields that the gateway would add."""
        values, fields = read_object(self.message)
        return stamp_envelope(values, fields, Stamp(participant_id, self.id, round(time.time() * SECOND)))

    def finish(self, envelope: Envelope) -> None:
        """Complete the request with its answer."""
        if not self.future.done():
            self.future.set_result(envelope)

    def fail(self, error: Exception) -> None:
        """Fail the request with an error."""
        if not self.future.done():
            self.future.set_exception(error)


class PendingRequests:
    """The table of sent messages without an answer."""

    def __init__(self, send_marker: Callable[[str], None]) -> None:
        """Start with an empty table. `send_marker` sends a join with the id that it receives."""
        self._requests: dict[str, PendingRequest] = {}
        self._markers: dict[str, int] = {}
        """The flush markers without an answer: how many messages were sent before each."""
        self._numbers = count(1)
        self._send_marker = send_marker
        self._timer: asyncio.TimerHandle | None = None
        self._rate_limited_at: float | None = None
        """Loop time of the last rate limit error; None if there was none."""

    def expect(self, request: PendingRequest, *, is_marker: bool = False) -> None:
        """Register a message that is about to be sent. A flush marker is a join of the client itself."""
        request.number = next(self._numbers)
        self._requests[request.id] = request
        if is_marker:
            self._markers[request.id] = request.number
        seconds = _marker_seconds(request)
        if self._timer is None or seconds < MARKER_SECONDS:
            self._start_timer(seconds)

    def forget(self, request: PendingRequest) -> None:
        """Remove a message that no caller waits for any more."""
        self._requests.pop(request.id, None)

    def resolve(self, envelope: Envelope, participant_id: str) -> bool:
        """Pass a received envelope to the messages that it echoes or answers.

        Returns whether it is the welcome for a flush marker: then it concerns only this client, not its program.
        """
        if envelope.sender == participant_id:
            echoed = self._requests.get(envelope.id)
            if echoed is not None:
                echoed.accepted = True
                if echoed.accepts is None:
                    echoed.finish(envelope)
        is_welcome = envelope.kind == kinds.WELCOME and envelope.sender == kinds.GATEWAY
        is_for_marker = False
        for cause in envelope.correlation_id:
            request = self._requests.get(cause)
            if request is not None:
                self._answer(request, envelope)
            if is_welcome and cause in self._markers:
                is_for_marker = True
                self._settle(cause, participant_id)
        return is_for_marker

    def is_answer(self, envelope: Envelope) -> bool:
        """Whether the envelope answers a pending message or a flush marker."""
        return any(cause in self._requests or cause in self._markers for cause in envelope.correlation_id)

    def _answer(self, request: PendingRequest, envelope: Envelope) -> None:
        by_gateway = envelope.sender == kinds.GATEWAY
        if by_gateway and envelope.kind == kinds.ERROR:
            error = error_from_envelope(envelope)
            if isinstance(error, RateLimited):
                self._rate_limited_at = asyncio.get_running_loop().time()
            request.fail(error)
            return
        request.accepted = request.accepted or (by_gateway and request.kind in kinds.CONSUMED_KINDS)
        if self._accepts(request, envelope):
            request.finish(envelope)

    def _accepts(self, request: PendingRequest, envelope: Envelope) -> bool:
        """Whether this is the answer. For kinds without an echo, any answer of the gateway counts."""
        if request.accepts is None:
            return envelope.sender == kinds.GATEWAY and request.kind in kinds.CONSUMED_KINDS
        try:
            return request.accepts(envelope)
        except Exception as error:  # an error in the caller's predicate: raise it in the caller
            request.fail(error)
            return False

    # Flush markers

    def _start_timer(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        """Send a flush marker if a message has waited too long; called periodically while messages are pending."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        if any(now - request.since >= _marker_seconds(request) for request in self._unaccepted()):
            number = next(self._numbers)
            self._markers[f"{MARKER}{number}"] = number
            self._send_marker(f"{MARKER}{number}")
        if self._requests:
            self._start_timer(MARKER_SECONDS)

    def _unaccepted(self) -> list[PendingRequest]:
        return [request for request in self._requests.values() if not request.accepted]

    def _settle(self, marker_id: str, participant_id: str) -> None:
        """Settle all messages sent before the marker: the gateway has handled them."""
        number = self._markers[marker_id]
        self._markers = {marker: other for marker, other in self._markers.items() if other > number}
        for request in self._unaccepted():
            if request.number < number:
                if request.kind in UNCONFIRMED_KINDS and not self._may_be_dropped(request):
                    request.finish(request.sent(participant_id))
                else:
                    message = "the gateway dropped the message without an answer: too many messages at a time"
                    request.fail(RateLimited(message))

    def _may_be_dropped(self, request: PendingRequest) -> bool:
        """Whether the gateway may have dropped it: it reports at least one dropped message within a second."""
        return self._rate_limited_at is not None and self._rate_limited_at > request.since - 1.0

    # The end

    def fail_oversized(self, error: ProtocolError) -> None:
        """Assign an error without a message id. A message that is too large to parse is found by its size."""
        if isinstance(error, MessageTooLarge):
            for request in self._unaccepted():
                if len(request.message) == error.parts.get("size"):
                    request.fail(error)

    def connection_lost(self, closed: Closed, error: MewError, participant_id: str) -> list[Envelope]:
        """Fail all pending messages after a disconnect.

        Returns the envelopes for which it is unknown whether the gateway accepted them.
        """
        if closed.code == TOO_LARGE:
            for request in self._unaccepted():
                if len(request.message) > LARGE:
                    request.fail(MessageTooLarge(f"{request.kind} of {len(request.message)} bytes: {closed}"))
        requests, self._requests, self._markers = self._requests, {}, {}
        self.stop()
        unconfirmed = []
        for request in requests.values():
            if request.future.done():
                continue
            if not request.accepted:
                with suppress(ProtocolError):  # an invalid envelope was not accepted
                    unconfirmed.append(request.sent(participant_id))
            if isinstance(error, ConnectionLost):
                message = f"{error}; {_outcome(request)}"
                request.fail(ConnectionLost(message, unconfirmed=not request.accepted, code=error.code))
            else:
                request.fail(error)
        return unconfirmed

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _marker_seconds(request: PendingRequest) -> float:
    return UNCONFIRMED_SECONDS if request.kind in UNCONFIRMED_KINDS else MARKER_SECONDS


def _outcome(request: PendingRequest) -> str:
    outcome = "was accepted, but its answer is lost" if request.accepted else "may have been accepted or not"
    return f"{request.kind} {request.id!r} {outcome}"
