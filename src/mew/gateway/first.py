"""What a new connection speaks: HTTP, until it asks to be upgraded.

uvicorn answers requests; heads that are too large, too slow or wrong are refused here, and so is what comes from a page
or by a name that is not served. A request to upgrade is handed over to picows with every byte behind its head.
"""

import asyncio
from base64 import b64decode
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mew.gateway.gateway import Gateway
from mew.gateway.http import refused
from mew.gateway.operator_log import address, log
from mew.gateway.origins import Origins
from mew.gateway.upgraded import Upgraded
from mew.protocol import Refusal, jsontext
from mew.protocol.errors import InvalidRequest

HEAD_BYTES: Final = 64 * 1024
HEADERS: Final = 100
PICOWS_HEAD_BYTES: Final = 16 * 1024
"""picows hangs up without a word on a larger one."""
KEY_BYTES: Final = 16
LINGER_SECONDS: Final = 1.0
_KEPT: Final = frozenset({b"upgrade", b"sec-websocket-version", b"sec-websocket-key", b"authorization"})


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

    def __init__(self, gateway: Gateway, origins: Origins, config: uvicorn.Config, state: ServerState) -> None:
        """Serve this gateway."""
        super().__init__(config, state, {})
        self._gateway = gateway
        self._origins = origins
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
            self._head_size = HEAD_BYTES
            self._count(1)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_BYTES:
            raise ValueError("the head is too large")

    def on_headers_complete(self) -> None:
        """The head is here; the body has more time."""
        self._in_head, self._raw_size = False, 0
        self._await(self._gateway.config.timeouts.idle_seconds)
        peer = self.transport.get_extra_info("peername")
        self.scope["client"] = peer and peer[:2]  # refused requests are recorded with it
        self._stranger = self._origins.refusal(self.headers)
        self.app = self.config.loaded_app
        if self._stranger is not None:
            log.info("request refused", status=self._stranger.status, reason=self._stranger.message, peer=self._peer)
            self.app = refused(self._stranger)  # by way of uvicorn: requests are answered in their order
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is here."""
        self._in_head = True
        self._await(None)
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._await(None)
        super().connection_lost(exc)

    # Bytes

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._deadline is None:
            self._await(self._gateway.config.timeouts.handshake_seconds)
        self._raw_size += len(data) if self._in_head else 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._await_entry(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse_head(400 if self._head_size <= HEAD_BYTES else 431, "this is no HTTP request that can be read")
        else:
            if self._raw_size > HEAD_BYTES:
                self._refuse_head(431, f"the head of a request may have {HEAD_BYTES} bytes")

    @property
    def _peer(self) -> str:
        """Asked of the kernel only for those who are refused."""
        return address(self.transport.get_extra_info("peername"))

    def _refuse_head(self, status: int, message: str) -> None:
        log.info("request refused", status=status, reason=message, peer=self._peer)
        self._refuse(status, InvalidRequest(message))

    def _refuse(self, status: int, refusal: Refusal) -> None:
        """Answer, and close once the peer has, or soon: closed over unread bytes, it might never see the answer."""
        body = jsontext.encode(refusal.payload())
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/json"]
        head += [f"content-length: {len(body)}", "connection: close"]
        head += ["sec-websocket-version: 13"] if status == HTTPStatus.UPGRADE_REQUIRED else []
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
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
        """Where many come at once, a few are let in at a time: a join costs more the more there are."""
        self._deaf = True
        self.transport.pause_reading()
        self._gateway.entry.put(lambda: self._enter(behind))

    def _enter(self, behind: bytes) -> None:
        if not self.transport.is_closing():
            self._deaf = False
            self.transport.resume_reading()
            self._upgrade(behind)

    def _upgrade(self, behind: bytes) -> None:
        """Hand the connection over, with the head as picows wants it and every byte behind it."""
        if self._is_answering():
            # An upgrade that is not ours (`h2c`) is ignored, as HTTP allows; one behind a request not yet answered
            # would mix two protocols on one wire. What is being answered is answered, and that is all.
            self.cycle.keep_alive = False
            self._deaf = True
            return
        if self._stranger is not None:
            self._refuse(self._stranger.status, self._stranger)
            return
        fault = upgrade_fault(self.scope["method"], self.parser.get_http_version(), dict(self.headers))
        if fault is not None:
            self._refuse_head(*fault)
            return
        try:
            self._gateway.readiness.require()
        except Refusal as refusal:
            self._refuse(refusal.status, refusal)
            return
        head = b"".join([b"GET ", self.url, b" HTTP/1.1\r\n", *self._headers_for_picows()])
        if len(head) >= PICOWS_HEAD_BYTES:
            self._refuse_head(431, f"the head of a request to upgrade may have {PICOWS_HEAD_BYTES} bytes")
            return
        self._await(None)
        self.connections.discard(self)
        protocol = Upgraded(self._gateway)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        self.parser = self.flow = self.scope = None  # type: ignore[assignment]
        protocol.data_received(head + b"\r\n" + behind)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _headers_for_picows(self) -> Iterator[bytes]:
        """What is read of them; it is kept as long as the socket. Firefox says `Connection: keep-alive, Upgrade`."""
        yield b"connection: Upgrade\r\n"
        for name, value in self.headers:
            if name in _KEPT:
                yield b"%b: %b\r\n" % (name, value)
