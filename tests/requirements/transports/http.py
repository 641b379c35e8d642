"""The HTTP transport: participants that post and poll at a real gateway on a real port. The test sets the time.

Joining is a first poll. An error is the answer to a post; a test reads it like the `system/error` of a socket, but the
answer has only the code and the parts. Each participant polls before its presence would end. To leave, it stops
polling, which takes a minute.

A frame cannot be posted, and a close code cannot be polled. A participant named by `@pytest.mark.sockets(...)` has a
socket for its frames and for what it receives, and still posts. Observers and anonymous participants have no
participant's token, so they use a socket.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from mew.protocol.timestamps import SECOND
from mew.testing import Client, Message
from tests.requirements.transports.http_requests import HttpAnswer, messages_of
from tests.requirements.transports.message_reader import Reader
from tests.requirements.transports.websocket import SocketClient, WebsocketSpace

STATUS = {
    "invalid_envelope": 400,
    "invalid_request": 400,
    "invalid_format": 400,
    "invalid_operation": 400,
    "reserved_kind": 400,
    "unknown_format": 400,
    "schema_violation": 400,
    "target_not_found": 400,
    "capability_violation": 403,
    "unauthorized": 403,
    "unauthorized_stream_write": 403,
    "paused": 403,
    "approval_required": 403,
    "space_not_found": 404,
    "stream_not_found": 404,
    "participant_not_found": 404,
    "stream_not_live": 409,
    "sequence_out_of_order": 409,
    "already_exists": 409,
    "proposal_closed": 409,
    "proposal_mismatch": 409,
    "message_too_large": 413,
    "rate_limited": 429,
    "quota_exceeded": 429,
}
"""Fields of an error that answers a request with a token (protocol §5)."""
MARGIN_SECONDS = 1
"""A participant polls this long before its presence would end."""
MOST_POLLS = 2_000


def refusal_of(answer: HttpAnswer) -> list[Message]:
    """The answer in place of a socket's `system/error`, if it was an error."""
    if answer.refusal is None:
        return []
    assert answer.status == STATUS[answer.body["error"]], answer
    assert answer.raw == msgspec.json.encode(answer.body), "an answer is compact"
    return [Message(b'{"kind":"system/error","payload":' + answer.raw + b"}")]


class PollingClient(Reader):
    """A participant with an HTTP presence."""

    def __init__(self, space: "HttpSpace", participant: str, token: str, kind: str | None) -> None:
        super().__init__(participant)
        self.participant = participant
        self.asks = True
        self.asked_at = space.now
        self._space = space
        self._token = token
        self._in_space = "" if kind is None else f"space={kind}&"
        self._is_back = True

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        assert not message.startswith(b"#"), f"a frame cannot be posted: mark the test, sockets({self.connection!r})"
        answer = self._ask("POST", f"{messages_of(self.connection)}?{self._in_space}", message)
        if answer.refusal is not None:
            self._look()  # everything before it
            self._unread += refusal_of(answer)

    def catch_up(self) -> None:
        """Poll. After a rejection nothing more arrives; `closed` is the HTTP status, in place of a close code."""
        if not self.asks:
            return
        since = self._space.numbers.get(self.connection, 0)
        answer = self._ask("GET", f"{messages_of(self.connection)}?{self._in_space}since={since}")
        if answer.refusal is not None:
            self.asks = False
            self.closed = answer.status
            self._unread += refusal_of(answer)
            return
        mail = answer.mail
        assert self._is_back or not mail.dropped, f"{mail.dropped} messages were dropped"
        self._is_back = False
        self._space.numbers[self.connection] = mail.next
        for message in mail.messages:
            self.read(bytes(message))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> HttpAnswer:
        self.asked_at = self._space.now
        return self._space.ask(method, path, self._token, body)

    def leave(self) -> None:
        """Stop polling until the presence has ended."""
        self._look()
        self.asks = False
        self._space.outlast(self)


class PostingClient(SocketClient):
    """A participant with a socket for frames and for what it receives. It posts everything else."""

    _space: "HttpSpace"

    def __init__(self, space: "HttpSpace", participant: str) -> None:
        super().__init__(space, participant)

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        if message.startswith(b"#"):
            super().send_bytes(message, text=text)
            return
        self._unread += refusal_of(self._space.post(self.connection, message))


class HttpSpace(WebsocketSpace):
    """A space whose participants post and poll, with the interface of `MemorySpace`."""

    def __init__(self, *, sockets: Collection[str] = (), **configuration: Any) -> None:
        super().__init__(**configuration)
        self._sockets_of = sockets
        self._polling: list[PollingClient] = []
        self.numbers: dict[str, int] = {}
        """The position from which each participant polls next, also when it returns later."""

    def stop(self) -> None:
        super().stop()
        assert self.asker.requests, "nothing was posted or polled: name the transports that can show this"

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        identity = None if token is None else self.tokens.identify(token)
        if token is None or identity is None or identity.observer:
            return super().connect(token=token, space=space)
        if identity.participant in self._sockets_of:
            return self.open_socket(PostingClient(self, identity.participant), token, space)
        assert all(not member.asks for member in self._polling if member.connection == identity.participant), (
            f"{identity.participant} polls already: over HTTP there is nothing to take over"
        )
        client = PollingClient(self, identity.participant, token, space)
        self._polling.append(client)
        client.catch_up()
        return client

    def advance(self, seconds: float) -> None:
        """Let time pass. Participants poll before their presence would end."""
        longest = self.settings.http_presence_seconds - MARGIN_SECONDS
        while polling := [member for member in self._polling if member.asks]:
            assert seconds / longest < MOST_POLLS, (
                "it would take too many polls: name the transports that can show this"
            )
            for member in polling:
                member.catch_up()
            if seconds <= longest:
                break
            super().advance(longest)
            seconds -= longest
        super().advance(seconds)

    def outlast(self, client: PollingClient) -> None:
        """Let the rest of a client's presence pass."""
        since = (self.now - client.asked_at) / SECOND
        self.advance(self.settings.http_presence_seconds - since)
