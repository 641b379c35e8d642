"""The protocol of a new connection: HTTP/1.1, until the peer requests an upgrade. An adapter for uvicorn.

It rejects request heads that are too large, too slow or malformed, and requests with a disallowed `Origin` or `Host`.
It hands an upgrade request to picows, with every byte after the head. A closed connection leaves no reference cycle, so
its memory is freed without the garbage collector. A contract test compares the parts of uvicorn that are used here with
the installed version.
"""

import asyncio
import socket
import ssl
import struct
from base64 import b64decode
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mew.config.models import TLS
from mew.gateway.connections import OpenConnection
from mew.gateway.exposure import Origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.app import refused
from mew.gateway.http.exchange import HSTS, KEY, AnswerHeaders, Exchange, GentleClose, credentials, exchange_of
from mew.gateway.websocket_protocol import UNADMITTED_MARGIN, WebSocketProtocol
from mew.protocol import JoinRequest, ProtocolError, raw_json
from mew.protocol.errors import InvalidRequest

_MAX_HEADERS: Final = 100
KEY_BYTES: Final = 16
LINGER_SECONDS: Final = 1.0
PIPELINED: Final = 16
"""Maximum number of requests that wait for earlier answers. Each takes two kilobytes; further ones are not read."""
UNSENT_CHECKS: Final = 8
"""Number of checks without progress after which a peer that does not read its answers is disconnected."""
HURRIED_UNSENT_CHECKS: Final = 2
"""The same number while other connections wait for a free place."""
UNSENT_PROGRESS: Final = 64 * 1024
"""Bytes that such a peer must read in that time, if that much is queued."""
_PARSED_BYTES: Final = 4096
"""Number of bytes parsed at a time. The parser does not report where in them a request ended."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})
_PICOWS_HEAD: Final = (
    b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
)
"""The minimal head for picows. On a head of 16 KiB, picows would disconnect silently. It also stores the head."""


def upgrade_fault(method: str, version: str, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Return the HTTP status and message for an invalid upgrade request, or None if it is valid (RFC 6455 §4.2.1)."""
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


class HttpRuntime:
    """What the connections of one gateway share: the configuration of uvicorn, and the sets of what is open."""

    def __init__(self, app: ASGIApp, tls: TLS | None) -> None:
        """Answer requests with this application, without or with TLS."""
        self.config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",  # `HttpConnection` handles upgrades itself
            lifespan="off",
            log_config=None,
            access_log=False,
            ssl_certfile=None if tls is None else str(tls.certificate),
            ssl_keyfile=None if tls is None else str(tls.key),
        )
        self.config.load()
        self.state = ServerState()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of TLS; None without."""
        return self.config.ssl

    @property
    def connections(self) -> "list[HttpConnection]":
        """The open connections that use HTTP."""
        return [connection for connection in self.state.connections if isinstance(connection, HttpConnection)]

    @property
    def requests(self) -> int:
        """Number of requests that are being answered."""
        return len(self.state.tasks)


class HttpConnection(HttpToolsProtocol):
    """The protocol of every new connection: HTTP, until the peer requests an upgrade."""

    _in_head = True
    _head_size = 0
    """Size in bytes of the parsed parts of the head."""
    _raw_size = 0
    """Bytes received for the head, including an incomplete header."""
    _deadline: asyncio.TimerHandle | None = None
    _deaf = False
    _too_much_behind = False
    """Whether the bytes after an upgrade request exceed the limit for data before the join."""
    _answered: RequestResponseCycle | None = None
    """The request that is being answered; later requests wait in the pipeline."""
    _unsent = 0
    """Bytes that were queued for the peer when it last made progress."""
    _unsent_checks = 0
    """Number of checks without progress since then."""

    def __init__(
        self,
        gateway: Gateway,
        origins: Origins,
        runtime: HttpRuntime,
        connection: OpenConnection,
    ) -> None:
        """Create the protocol of a connection to this gateway."""
        super().__init__(runtime.config, runtime.state, {})
        self._gateway = gateway
        self._origins = origins
        self._connection = connection
        self._own_peer = connection.peer
        """`address:port` of the peer itself, which may be a proxy; `local` on a Unix socket."""
        self._client_address = self._address = connection.peer.rpartition(":")[0]
        self._head_limit = gateway.config.unadmitted.http_head_bytes
        self._stranger: ProtocolError | None = None
        """Why the current request is rejected, for HTTP and WebSocket alike; None if it is allowed."""

    # Time and size

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up the connection and start the handshake timeout.

        This replaces uvicorn's method, which queries the kernel for addresses that are never used. That query costs
        more than everything else here.
        """
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = self.client = None
        self.scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._await(self._gateway.config.timeouts.handshake_seconds)

    def _await(self, seconds: float | None) -> None:
        """Abort the connection after this many seconds unless called again; None cancels the timeout."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def on_message_begin(self) -> None:
        """Start a request; raise `ValueError` if too many requests wait for their answers."""
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests wait for their answers")
        super().on_message_begin()
        self._head_size = 0

    def on_url(self, url: bytes) -> None:
        """Count and store a part of the request target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count and store a complete header; too many headers exceed the head limit."""
        self._count(len(name) + len(value))
        super().on_header(name, value)
        if len(self.headers) > _MAX_HEADERS:
            self._head_size = self._head_limit
            self._count(1)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._head_limit:
            raise ValueError("the head is too large")

    def on_headers_complete(self) -> None:
        """Check the complete head and start the request; the longer idle timeout applies to the body."""
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
            # Reject through uvicorn, so that requests are answered in order.
            self.app = AnswerHeaders(refused(self._stranger), tls=self.scheme == "https")
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._share(self.cycle)

    def _name_client(self) -> None:
        """Set the client address of this request; a trusted proxy provides it in each request."""
        self._client_address = client = self._gateway.proxies.client(self._address, self.headers)
        self._connection.peer = self._own_peer if client == self._address else client
        self._connection.host = client or self._own_peer

    def _share(self, cycle: RequestResponseCycle) -> None:
        """Give the HTTP API access to the connection; let an early answer reach a peer that still sends its body."""
        cycle.scope["state"][KEY] = Exchange(self._connection, cycle)
        if any(name in _BODY for name, _ in self.headers):
            cycle.transport = GentleClose(self.transport, self.hang_up, cycle)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """Finish receiving a request and cancel the timeout."""
        self._in_head = True
        self._await(None)
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Start to answer a request."""
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Free the body of a request that has been answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_complete:
            cycle.body = bytearray()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the current request that the peer has disconnected, and release the connection."""
        self._await(None)
        if self._answered is not None:
            # uvicorn notifies only the latest request, which may still wait in the pipeline.
            self._answered.disconnected = True
            self._answered.message_event.set()
            exchange = exchange_of(self._answered.scope)
            if exchange is not None:
                exchange.lose()
        super().connection_lost(exc)
        self._release()
        self._connection.closed()

    def _release(self) -> None:
        """Drop the references to objects that refer back to this protocol: waiting requests and the parser."""
        self.pipeline.clear()
        self._answered = None
        self.parser = self.cycle = self.flow = self.scope = None  # type: ignore[assignment]

    # A peer that does not read

    def resume_writing(self) -> None:
        """Reset the progress check: the write buffer is nearly empty."""
        self._unsent = 0
        super().resume_writing()

    def check_unsent(self, *, hurry: bool) -> None:
        """Disconnect a peer that reads its answers too slowly. Called `UNSENT_CHECKS` times in `write_seconds`.

        With `hurry`, fewer checks are enough, because other connections wait for a free place.
        """
        waiting = self.transport.get_write_buffer_size()
        if not waiting or not self._unsent or waiting <= self._unsent - UNSENT_PROGRESS:
            self._unsent, self._unsent_checks = waiting, 0
            return
        self._unsent_checks += 1
        if self._unsent_checks >= self._patience(hurry=hurry):
            reason = "it does not read its answers"
            self._gateway.refusals.write("connection cut off", self._connection, reason=reason, unsent=waiting)
            # Without this, the kernel keeps the unread data and the connection for minutes.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()

    def _patience(self, *, hurry: bool) -> float:
        """Return the number of checks before the disconnect; with a valid token, `idle_seconds` applies."""
        times = self._gateway.config.timeouts
        if self._connection.admitted:
            return UNSENT_CHECKS * max(1.0, times.idle_seconds / times.write_seconds)
        return HURRIED_UNSENT_CHECKS if hurry else UNSENT_CHECKS

    # Bytes

    def data_received(self, data: bytes) -> None:
        """Parse received bytes slice by slice; start the handshake timeout if none is running."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._deadline is None:
            self._await(self._gateway.config.timeouts.handshake_seconds)
        for start in range(0, len(data), _PARSED_BYTES):
            if not self._parse(data, start):
                return

    def _parse(self, data: bytes, start: int) -> bool:
        """Parse one slice and return whether to continue with the next.

        A head that follows a complete request in the same packet is measured from the next slice on.
        """
        part = data[start : start + _PARSED_BYTES]
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
        """The peer as written to the log."""
        return self._connection.peer

    def _refuse_unread(self) -> None:
        """Reject input after the parser has failed or a callback has stopped it."""
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

    def _log_refused(self, status: int, refusal: ProtocolError) -> None:
        self._gateway.refusals.write(
            "request refused", self._connection, error=refusal.code, status=status, reason=refusal.message
        )

    def _end_with_answers(self) -> None:
        """Finish the answers to earlier requests, then close; no further request is read."""
        self.cycle.keep_alive = False
        self._deaf = True
        self._await(None)

    def _refuse(self, status: int, refusal: ProtocolError) -> None:
        """Send an error response and close gently: closing with unread bytes could discard the response."""
        body = raw_json.encode_json(refusal.payload())
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/json"]
        head += [f"content-length: {len(body)}", "connection: close"]
        head += ["cache-control: no-store", "x-content-type-options: nosniff"]
        head += [f"strict-transport-security: {HSTS}"] if self.scheme == "https" else []
        head += ["sec-websocket-version: 13"] if status == HTTPStatus.UPGRADE_REQUIRED else []
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.hang_up()

    def hang_up(self) -> None:
        """Stop sending, then close after the peer closes or after a short timeout; drop what it still sends."""
        self._deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._await(min(LINGER_SECONDS, self._gateway.config.timeouts.close_seconds))
        else:
            self.transport.close()

    # Handing over

    def _should_upgrade(self) -> bool:
        """Return whether WebSocket is requested; `Connection` may be a list and may occur more than once."""
        protocols = [value.lower() for name, value in self.headers if name == b"upgrade"]
        return protocols == [b"websocket"] and any(
            token.strip().lower() == b"upgrade"
            for name, value in self.headers
            if name == b"connection"
            for token in value.split(b",")
        )

    def _await_entry(self, behind: bytes) -> None:
        """Apply the limit per address to an upgrade; behind a proxy, the client's own address counts.

        Bytes after the head are kept while the connection waits. The client should have waited for the answer, so data
        above the limit for a join is rejected even with a valid token.
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
        """Queue the upgrade: a few are processed at a time, because a join costs more the more there are."""
        self._gateway.join_throttle.put(lambda: self._enter(behind))

    def _enter(self, behind: bytes) -> None:
        if not self.transport.is_closing():
            self._deaf = False
            self.transport.resume_reading()
            self._upgrade(behind)

    def _upgrade(self, behind: bytes) -> None:
        """Hand the connection to picows: the credentials, a minimal head and every byte after the head."""
        if self._is_answering():
            # An upgrade to another protocol (`h2c`) is ignored, as HTTP allows. An upgrade after an unanswered request
            # would mix two protocols on one connection. Only the current answers are completed.
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
        except ProtocolError as refusal:
            self._refuse(refusal.status, refusal)
            return
        self._await(None)
        self.connections.discard(self)
        protocol = WebSocketProtocol(self._gateway, self._connection, self._said())
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        self._release()
        protocol.data_received(_PICOWS_HEAD % headers[b"sec-websocket-key"] + behind)
        if self._too_much_behind:
            protocol.refuse_bytes()

    def _said(self) -> JoinRequest:
        """Return the credentials in the request head; empty if the request will be rejected."""
        if self._too_much_behind:
            return JoinRequest()
        authorization = next((value for name, value in self.headers if name == b"authorization"), b"")
        return credentials(self.url.decode("latin-1"), authorization.decode("latin-1"))

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete
