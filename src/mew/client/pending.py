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
from mew.protocol.envelope import Envelope, Stamp, read_object, receive
from mew.protocol.errors import ProtocolError
from mew.protocol.timestamps import SECOND

PATIENCE: Final = 5.0
"""Seconds without an answer after which the client sends a flush marker."""
IMPATIENCE: Final = 0.25
"""The same for kinds in `UNTOLD`, which may get no answer."""
TOO_LARGE: Final = 1009
LARGE: Final = 64 * 1024
"""Size in bytes. If the gateway closes with 1009, messages over this size are assumed to be too large."""
UNTOLD: Final = frozenset({kinds.KICK})
"""Kinds that get no answer if the participant to remove is not present: only a flush marker confirms them."""
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

    def sent(self, me: str) -> Envelope:
        """Return the envelope as sent, with the fields that the gateway would add."""
        values, fields = read_object(self.message)
        return receive(values, fields, Stamp(me, self.id, round(time.time() * SECOND)))

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
        self._pending: dict[str, PendingRequest] = {}
        self._markers: dict[str, int] = {}
        """The flush markers without an answer: how many messages were sent before each."""
        self._numbers = count(1)
        self._send_marker = send_marker
        self._timer: asyncio.TimerHandle | None = None
        self._too_quick: float | None = None
        """Loop time of the last rate limit error; None if there was none."""

    def expect(self, pending: PendingRequest, *, is_marker: bool = False) -> None:
        """Register a message that is about to be sent. A flush marker is a join of the client itself."""
        pending.number = next(self._numbers)
        self._pending[pending.id] = pending
        if is_marker:
            self._markers[pending.id] = pending.number
        patience = IMPATIENCE if pending.kind in UNTOLD else PATIENCE
        if self._timer is None or patience < PATIENCE:
            self._look_in(patience)

    def forget(self, pending: PendingRequest) -> None:
        """Remove a message that no caller waits for any more."""
        self._pending.pop(pending.id, None)

    def take(self, envelope: Envelope, me: str) -> bool:
        """Pass a received envelope to the messages that it echoes or answers.

        Returns whether it is the welcome for a flush marker: then it concerns only this client, not its program.
        """
        if envelope.sender == me:
            mine = self._pending.get(envelope.id)
            if mine is not None:
                mine.accepted = True
                if mine.accepts is None:
                    mine.finish(envelope)
        is_welcome = envelope.kind == kinds.WELCOME and envelope.sender == kinds.GATEWAY
        is_for_marker = False
        for cause in envelope.correlation_id:
            asked = self._pending.get(cause)
            if asked is not None:
                self._answer(asked, envelope)
            if is_welcome and cause in self._markers:
                is_for_marker = True
                self._passed(cause, me)
        return is_for_marker

    def knows(self, envelope: Envelope) -> bool:
        """Whether the envelope answers a pending message or a flush marker."""
        return any(cause in self._pending or cause in self._markers for cause in envelope.correlation_id)

    def _answer(self, asked: PendingRequest, envelope: Envelope) -> None:
        by_gateway = envelope.sender == kinds.GATEWAY
        if by_gateway and envelope.kind == kinds.ERROR:
            error = error_from_envelope(envelope)
            if isinstance(error, RateLimited):
                self._too_quick = asyncio.get_running_loop().time()
            asked.fail(error)
            return
        asked.accepted = asked.accepted or (by_gateway and asked.kind in kinds.CONSUMED)
        if self._accepts(asked, envelope):
            asked.finish(envelope)

    def _accepts(self, asked: PendingRequest, envelope: Envelope) -> bool:
        """Whether this is the answer. For kinds without an echo, any answer of the gateway counts."""
        if asked.accepts is None:
            return envelope.sender == kinds.GATEWAY and asked.kind in kinds.CONSUMED
        try:
            return asked.accepts(envelope)
        except Exception as error:  # an error in the caller's predicate: raise it in the caller
            asked.fail(error)
            return False

    # Flush markers

    def _look_in(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Send a flush marker if a message has waited too long; called periodically while messages are pending."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        waiting = [(now - each.since, each.kind in UNTOLD) for each in self._unaccepted()]
        if any(seconds >= (IMPATIENCE if untold else PATIENCE) for seconds, untold in waiting):
            number = next(self._numbers)
            self._markers[f"{MARKER}{number}"] = number
            self._send_marker(f"{MARKER}{number}")
        if self._pending:
            self._look_in(PATIENCE)

    def _unaccepted(self) -> list[PendingRequest]:
        return [each for each in self._pending.values() if not each.accepted]

    def _passed(self, marker_id: str, me: str) -> None:
        """Settle all messages sent before the marker: the gateway has handled them."""
        number = self._markers[marker_id]
        self._markers = {marker: other for marker, other in self._markers.items() if other > number}
        for each in self._unaccepted():
            if each.number < number:
                if each.kind in UNTOLD and not self._was_too_quick(each):
                    each.finish(each.sent(me))
                else:
                    each.fail(RateLimited("the gateway dropped it without a word: more messages than it takes"))

    def _was_too_quick(self, pending: PendingRequest) -> bool:
        """Whether it may have been dropped: the gateway reports at least one of its drops within a second."""
        return self._too_quick is not None and self._too_quick > pending.since - 1.0

    # The end

    def blame(self, error: ProtocolError) -> None:
        """Assign an error without a message id. A message that is too large to parse is found by its size."""
        if isinstance(error, MessageTooLarge):
            for each in self._unaccepted():
                if len(each.message) == error.parts.get("size"):
                    each.fail(error)

    def lose(self, closed: Closed, error: MewError, me: str) -> list[Envelope]:
        """Fail all pending messages after a disconnect.

        Returns the envelopes for which it is unknown whether the gateway accepted them.
        """
        if closed.code == TOO_LARGE:
            for each in self._unaccepted():
                if len(each.message) > LARGE:
                    each.fail(MessageTooLarge(f"{each.kind} of {len(each.message)} bytes: {closed}"))
        pending, self._pending, self._markers = self._pending, {}, {}
        self.stop()
        unconfirmed = []
        for each in pending.values():
            if each.future.done():
                continue
            if not each.accepted:
                with suppress(ProtocolError):  # an invalid envelope was not accepted
                    unconfirmed.append(each.sent(me))
            if isinstance(error, ConnectionLost):
                each.fail(ConnectionLost(f"{error}; {_fate(each)}", unconfirmed=not each.accepted, code=error.code))
            else:
                each.fail(error)
        return unconfirmed

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _fate(pending: PendingRequest) -> str:
    taken = "was taken, its answer will not come" if pending.accepted else "may have been taken or not"
    return f"{pending.kind} {pending.id!r} {taken}"
