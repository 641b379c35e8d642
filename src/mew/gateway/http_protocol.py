"""The protocol of a new connection: HTTP, until the peer asks for an upgrade. An adapter for uvicorn.

Heads that are too large, too slow or malformed are refused here, and requests of pages and host names that are not
allowed. A request to upgrade goes to picows with every byte after its head. A closed connection leaves no reference
cycle, so its memory is freed without the garbage collector.
"""

import asyncio
import socket
import struct
from base64 import b64decode
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import httptools
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mew.gateway.connections import OpenConnection
from mew.gateway.exposure import Origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.app import refused
from mew.gateway.http.exchange import HSTS, KEY, AnswerHeaders, Exchange, GentleClose, credentials, exchange_of
from mew.gateway.websocket_protocol import UNADMITTED_MARGIN, Upgraded
from mew.protocol import JoinRequest, Refusal, raw_json
from mew.protocol.errors import InvalidRequest

HEADERS: Final = 100
KEY_BYTES: Final = 16
LINGER_SECONDS: Final = 1.0
PIPELINED: Final = 16
"""Requests that may wait for the answers to those before them. Each takes two kilobytes; further ones are not read."""
UNSENT_LOOKS: Final = 8
"""How often a peer that does not read is looked at before it is cut off."""
HURRIED_LOOKS: Final = 2
"""The same where others wait for its place."""
UNSENT_PROGRESS: Final = 64 * 1024
"""What it has to read in that time, if so much waits."""
SLICE: Final = 4096
"""So many bytes are parsed at a time. The parser does not say where in them a request ended."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})
_PICOWS_HEAD: Final = (
    b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
)
"""All that picows needs of a head. It would hang up without a word on one of 16 KiB, and keep what it reads."""


def upgrade_fault(method: str, version: str, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """What is wrong with a request to upgrade, as an HTTP status and a sentence (RFC 6455 §4.2.1)."""
    if method != "GET" or version != "1.1":
        return 400, "only a GET of HTTP/1.1 can be upgraded"
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        return 400, "a request to upgrade has no body"
    if headers.get(b"sec-websocket-version") != b"13":
        return 426, "the version of WebSocket spoken here is 13"
    try:
        key = b64decode(headers.get(b"sec-websocket-key", b""), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        return 400, "`Sec-WebSocket-Key` must be 16 bytes in base64"
    return None


class First(HttpToolsProtocol):
    """The protocol of every new connection: HTTP, until it asks for more."""

    _in_head = True
    _head_size = 0
    """Of what the parser has made out."""
    _raw_size = 0
    """Of what came in, a header not yet at its end included."""
    _deadline: asyncio.TimerHandle | None = None
    _deaf = False
    _too_much_behind = False
    """Whether more came with the head of an upgrade than may come before a join."""
    _answered: RequestResponseCycle | None = None
    """The request at hand; those behind it wait in the pipeline."""
    _unsent = 0
    """What waited to be sent when reading last made progress."""
    _unsent_looks = 0
    """How many looks have seen no progress since."""

    def __init__(
        self,
        gateway: Gateway,
        origins: Origins,
        config: uvicorn.Config,
        state: ServerState,
        connection: OpenConnection,
    ) -> None:
        """Serve this gateway."""
        super().__init__(config, state, {})
        self._gateway = gateway
        self._origins = origins
        self._connection = connection
        self._own_peer = connection.peer
        """`address:port` of the peer itself, which may be a proxy; empty on a Unix socket."""
        self._client_address = self._address = connection.peer.rpartition(":")[0]
        self._head_limit = gateway.config.unadmitted.http_head_bytes
        self._stranger: Refusal | None = None
        """Why the request at hand is not taken, wherever it goes."""

    # Time and size

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Connected: a request has to come soon.

        Not uvicorn's own: it asks the kernel for addresses that nobody reads, which costs more than all the rest.
        """
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = self.client = None
        self.scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._await(self._gateway.config.timeouts.handshake_seconds)

    def _await(self, seconds: float | None) -> None:
        """What is due next has to be here in so many seconds; None: nothing is due."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests wait for their answers")
        super().on_message_begin()
        self._head_size = 0

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)
        if len(self.headers) > HEADERS:
            self._head_size = self._head_limit
            self._count(1)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._head_limit:
            raise ValueError("the head is too large")

    def on_headers_complete(self) -> None:
        """The head is here; the body has more time."""
        self._in_head, self._raw_size = False, 0
        self._await(self._gateway.config.timeouts.idle_seconds)
        self._name_client()
        self._stranger = self._origins.refusal(self.headers)
        self.app = self.config.loaded_app
        if self._stranger is not None:
            self._log_refused(self._stranger.status, self._stranger)
            self._gateway.record_refusal(
                self._stranger, JoinRequest(), self._connection, "websocket" if self._should_upgrade() else "http"
            )
            # By way of uvicorn: requests are answered in their order.
            self.app = AnswerHeaders(refused(self._stranger), tls=self.scheme == "https")
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._share(self.cycle)

    def _name_client(self) -> None:
        """Where the request comes from: a trusted proxy says so for each of its requests."""
        self._client_address = client = self._gateway.proxies.client(self._address, self.headers)
        self._connection.peer = self._own_peer if client == self._address else client
        self._connection.host = client or self._own_peer

    def _share(self, cycle: RequestResponseCycle) -> None:
        """Tell the HTTP door of the connection, and let the answer reach a peer that still sends its body."""
        cycle.scope["state"][KEY] = Exchange(self._connection, cycle)
        if any(name in _BODY for name, _ in self.headers):
            cycle.transport = GentleClose(self.transport, self.hang_up, cycle)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """The request is here."""
        self._in_head = True
        self._await(None)
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Its turn has come."""
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A request is answered: what came of its body is no longer needed."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_complete:
            cycle.body = bytearray()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._await(None)
        if self._answered is not None:
            # uvicorn says so only to the latest request, which may still wait for its turn.
            self._answered.disconnected = True
            self._answered.message_event.set()
            exchange = exchange_of(self._answered.scope)
            if exchange is not None:
                exchange.lose()
        super().connection_lost(exc)
        self._release()
        self._connection.closed()

    def _release(self) -> None:
        """Give up what refers to this protocol in turn: requests that wait, and the parser."""
        self.pipeline.clear()
        self._answered = None
        self.parser = self.cycle = self.flow = self.scope = None  # type: ignore[assignment]

    # A peer that does not read

    def resume_writing(self) -> None:
        """Hardly anything waits to be sent."""
        self._unsent = 0
        super().resume_writing()

    def look_at_unsent(self, *, hurry: bool) -> None:
        """Called `UNSENT_LOOKS` times in `write_seconds`: cut off a peer that reads too little of its answers.

        Sooner in a `hurry`, because others wait for its place.
        """
        waiting = self.transport.get_write_buffer_size()
        if not waiting or not self._unsent or waiting <= self._unsent - UNSENT_PROGRESS:
            self._unsent, self._unsent_looks = waiting, 0
            return
        self._unsent_looks += 1
        if self._unsent_looks >= self._patience(hurry=hurry):
            reason = "it does not read its answers"
            self._gateway.refusals.write("connection cut off", self._connection, reason=reason, unsent=waiting)
            # Else the kernel keeps what was not read, and the connection with it, for minutes.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()

    def _patience(self, *, hurry: bool) -> float:
        """How many looks: with a valid token as long as silence may last."""
        times = self._gateway.config.timeouts
        if self._connection.admitted:
            return UNSENT_LOOKS * max(1.0, times.idle_seconds / times.write_seconds)
        return HURRIED_LOOKS if hurry else UNSENT_LOOKS

    # Bytes

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._deadline is None:
            self._await(self._gateway.config.timeouts.handshake_seconds)
        for start in range(0, len(data), SLICE):
            if not self._parse(data, start):
                return

    def _parse(self, data: bytes, start: int) -> bool:
        """Take a slice; whether there is to be another.

        A head that begins behind a whole request in the same packet is measured too, from the next slice on.
        """
        part = data[start : start + SLICE]
        self._raw_size += len(part) if self._in_head else 0
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            self._await_entry(data[start + upgrade.args[0] :])
            return False
        except httptools.HttpParserError:
            self._refuse_unread()
            return False
        if self._raw_size > self._head_limit:
            limit = f"{self._head_limit} bytes: see `gateway.limits.http_head_bytes`"
            self._refuse_head(431, f"the head of a request may have {limit}")
        return not self._deaf

    @property
    def _peer(self) -> str:
        """As it is logged."""
        return self._connection.peer

    def _refuse_unread(self) -> None:
        """The parser gave up, or was made to."""
        if len(self.pipeline) >= PIPELINED:
            reason = f"{PIPELINED} before them wait for their answers"
            self._gateway.refusals.write("requests not read", self._connection, reason=reason)
            self._end_with_answers()
        else:
            status = 400 if self._head_size <= self._head_limit else 431
            self._refuse_head(status, "this is no HTTP request that can be read")

    def _refuse_head(self, status: int, message: str) -> None:
        refusal = InvalidRequest(message)
        self._log_refused(status, refusal)
        if self._in_head and self._is_answering():
            self._end_with_answers()
        else:
            self._refuse(status, refusal)

    def _log_refused(self, status: int, refusal: Refusal) -> None:
        self._gateway.refusals.write(
            "request refused", self._connection, error=refusal.code, status=status, reason=refusal.message
        )

    def _end_with_answers(self) -> None:
        """Requests before this one still wait for their answers: they get them, and that is all."""
        self.cycle.keep_alive = False
        self._deaf = True
        self._await(None)

    def _refuse(self, status: int, refusal: Refusal) -> None:
        """Answer, and close once the peer has, or soon: closed over unread bytes, it might never see the answer."""
        body = raw_json.encode(refusal.payload())
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/json"]
        head += [f"content-length: {len(body)}", "connection: close"]
        head += ["cache-control: no-store", "x-content-type-options: nosniff"]
        head += [f"strict-transport-security: {HSTS}"] if self.scheme == "https" else []
        head += ["sec-websocket-version: 13"] if status == HTTPStatus.UPGRADE_REQUIRED else []
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.hang_up()

    def hang_up(self) -> None:
        """Close once the peer has, or soon; what it still sends is dropped."""
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._await(min(LINGER_SECONDS, self._gateway.config.timeouts.close_seconds))
        else:
            self.transport.close()

    # Handing over

    def _should_upgrade(self) -> bool:
        """Whether WebSocket is asked for; `Connection` may be a list, and given more than once."""
        asked = [value.lower() for name, value in self.headers if name == b"upgrade"]
        return asked == [b"websocket"] and any(
            token.strip().lower() == b"upgrade"
            for name, value in self.headers
            if name == b"connection"
            for token in value.split(b",")
        )

    def _await_entry(self, behind: bytes) -> None:
        """Behind a proxy the client's own address counts, now that it is known.

        What came behind the head is kept while it waits. It should have waited for the answer, so a token makes no
        difference: more than a join may have is refused.
        """
        self._deaf = True
        if len(behind) > self._gateway.config.unadmitted.join_bytes + UNADMITTED_MARGIN:
            self._too_much_behind, behind = True, b""
        self.transport.pause_reading()
        self._await(self._gateway.config.timeouts.handshake_seconds)
        self._connection.begin_again()

        def line_up_soon() -> None:
            self.loop.call_soon(self._line_up, behind)

        if not self._gateway.must_wait(self._connection, self._client_address, line_up_soon, self.transport.abort):
            self._line_up(behind)

    def _line_up(self, behind: bytes) -> None:
        """Where many come at once, a few are let in at a time: a join costs more the more there are."""
        self._gateway.entry.put(lambda: self._enter(behind))

    def _enter(self, behind: bytes) -> None:
        if not self.transport.is_closing():
            self._deaf = False
            self.transport.resume_reading()
            self._upgrade(behind)

    def _upgrade(self, behind: bytes) -> None:
        """Hand the connection over: who is coming, the head as picows wants it, and every byte behind it."""
        if self._is_answering():
            # An upgrade that is not ours (`h2c`) is ignored, as HTTP allows; one behind a request not yet answered
            # would mix two protocols on one wire. What is being answered is answered, and that is all.
            self._end_with_answers()
            return
        if self._stranger is not None:
            self._refuse(self._stranger.status, self._stranger)
            return
        headers = dict(self.headers)
        fault = upgrade_fault(self.scope["method"], self.parser.get_http_version(), headers)
        if fault is not None:
            self._refuse_head(*fault)
            return
        try:
            self._gateway.readiness.require()
        except Refusal as refusal:
            self._refuse(refusal.status, refusal)
            return
        self._await(None)
        self.connections.discard(self)
        protocol = Upgraded(self._gateway, self._connection, self._said())
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        self._release()
        protocol.data_received(_PICOWS_HEAD % headers[b"sec-websocket-key"] + behind)
        if self._too_much_behind:
            protocol.refuse_bytes()

    def _said(self) -> JoinRequest:
        """What the head says of who is coming; nothing, if it is to be refused."""
        if self._too_much_behind:
            return JoinRequest()
        authorization = next((value for name, value in self.headers if name == b"authorization"), b"")
        return credentials(self.url.decode("latin-1"), authorization.decode("latin-1"))

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete
