"""One WebSocket connection to a gateway, from its upgrade to its close.

It knows WebSocket and no envelopes: received messages are passed on as bytes. `session` joins the space and reconnects.
"""

import asyncio
import logging
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from picows import WSError, WSFrame, WSListener, WSMsgType, WSTransport

from mew._internal.picows_protocol import LocalTransport, WSProtocol, picows_arguments
from mew._internal.unix_sockets import UntrustedSocket, connect_to_socket, path_of
from mew.client.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable


NORMAL_CLOSURE: Final = 1000
PROTOCOL_ERROR_CLOSURE: Final = 1002
SENDABLE_CLOSE_CODES: Final = frozenset((1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)))
"""The codes that are allowed in a close frame (RFC 6455 §7.4)."""
ABNORMAL_CLOSURE: Final = 1006
"""The code of a connection that ends without a close frame (RFC 6455 §7.1.5); never sent."""
CLOSE_TIMEOUT: Final = 2.0
"""Timeout in seconds for the gateway to complete the close handshake."""
LOCAL_SECONDS: Final = 5.0
"""Timeout in seconds for connecting to a Unix socket, which normally succeeds or fails immediately."""
MAX_FRAME_BYTES: Final = 2**30
READ_BUFFER_BYTES: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 128 * 1024
"""Kernel receive buffer in bytes. It is delivered in one batch, so it must fit into every queue."""
_TEXT: Final = WSMsgType.TEXT
_BINARY: Final = WSMsgType.BINARY
_SCHEMES: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
_log = logging.getLogger("mew.client")


class GatewayUrl(msgspec.Struct, frozen=True):
    """The address of a gateway."""

    host: str
    port: int
    authority: str
    path: str
    tls: ssl.SSLContext | bool | None = None
    file: Path | None = None
    """The path of the Unix socket; None for TCP."""

    @property
    def name(self) -> str:
        """The address to show in messages."""
        return self.authority if self.file is None else str(self.file)

    @classmethod
    def parse(cls, url: str, context: ssl.SSLContext | None = None) -> "GatewayUrl":
        """Parse a URL: `ws://`, `wss://`, `http://`, `https://`, or `unix:` with the path of a socket.

        Raises `ValueError` if it is not a valid address.
        """
        if (file := path_of(url)) is not None:
            return cls(host="localhost", port=0, authority="localhost", path="/", file=file)
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or parts.hostname is None:
            raise ValueError(f"{url!r} is no address of a gateway: it begins with ws:// or wss://")
        secure = parts.scheme in {"wss", "https"}
        query = f"?{parts.query}" if parts.query else ""
        return cls(
            host=parts.hostname,
            port=parts.port or _SCHEMES[parts.scheme],
            authority=parts.netloc.rpartition("@")[2],
            path=(parts.path or "/") + query,
            tls=(context or True) if secure else None,
        )


class Closed(msgspec.Struct, frozen=True):
    """How a connection ended."""

    code: int
    reason: str = ""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return "the connection broke" + reason if self.code == ABNORMAL_CLOSURE else f"closed with {self.code}{reason}"


class OnFrame(Protocol):
    """A callback for raw frames."""

    def __call__(self, message: bytes, *, text: bool) -> object:
        """Take the message as received; `text` is true for a text message."""
        ...


def _ignore(*_: Any, **__: Any) -> None:
    """Ignore a call: the placeholder while no callback is set."""


class Connection(WSListener):
    """A WebSocket connection, with callbacks for received messages and the close."""

    def __init__(self) -> None:
        """Start unconnected; `open_connection` connects it."""
        super().__init__()
        self.on_envelope: Callable[[bytes], None] = _ignore
        self.on_frame: OnFrame = _ignore
        self.on_closed: Callable[[Closed], None] = _ignore
        self.paused = False
        """Whether the socket's write buffer is full."""
        self.closed: Closed | None = None
        """How the connection ended; None before."""
        self.is_open = False
        self._received_close: Closed | None = None
        self._has_received = True
        self._has_pinged = False
        self._timer: asyncio.TimerHandle | None = None
        self._fragments: bytearray | None = None
        self._fragments_text = True
        self._waiting: dict[asyncio.Future[None], bytes | None] = {}
        """Waiting futures, each with the payload of its pong, or None if it waits for a writable socket."""

    # Callbacks of picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Handle a completed upgrade."""
        self._transport = transport
        self._send = transport.send
        raw = transport.underlying_transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.is_open = True

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle a received frame; usually it is a complete message."""
        self._has_received = True
        kind = frame.msg_type
        if (kind is _BINARY or kind is _TEXT) and frame.fin:
            self.deliver(frame.get_payload_as_bytes(), text=kind is _TEXT)
        elif kind is _BINARY or kind is _TEXT:
            self._fragments, self._fragments_text = bytearray(frame.get_payload_as_bytes()), kind is _TEXT
        elif kind is WSMsgType.CONTINUATION and self._fragments is not None:
            self._fragments += frame.get_payload_as_bytes()
            if frame.fin:
                message, self._fragments = bytes(self._fragments), None
                self.deliver(message, text=self._fragments_text)
        elif kind is WSMsgType.PONG:
            self._wake(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CLOSE:
            self._answer_close(frame)

    def deliver(self, message: bytes, *, text: bool) -> None:
        """Pass a message to its callback. If the callback fails, log the error and abort the connection."""
        try:
            if message[:1] == b"#":
                self.on_frame(message, text=text)
            else:
                self.on_envelope(message)
        except Exception:
            # picows would log the error in its own format and discard it.
            _log.exception("a message of the gateway could not be handled")
            self.abort("a message of the gateway could not be handled")

    def _answer_close(self, frame: WSFrame) -> None:
        payload = frame.get_payload_as_bytes()
        code = int.from_bytes(payload[:2], "big") if payload else NORMAL_CLOSURE
        self._received_close = Closed(code, payload[2:].decode(errors="replace"))
        if not self._transport.is_close_frame_sent:
            self._send_close(code if code in SENDABLE_CLOSE_CODES else PROTOCOL_ERROR_CLOSURE)
        self._transport.disconnect()
        # The gateway may never read the data that is still queued: do not wait for it longer than this.
        self.watch(None)
        self._timer = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self.abort, "the gateway did not close it")

    def _send_close(self, code: Any) -> None:
        """Send a close frame. picows accepts any number as the code, despite its type hints."""
        self._transport.send_close(code)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Handle the end of the connection, regardless of which side closed it."""
        if self.closed is None:
            self.closed = self._received_close or Closed(ABNORMAL_CLOSURE)
        self.is_open = False
        self.watch(None)
        self._wake_all()
        on_closed, self.on_closed = self.on_closed, _ignore
        self.on_envelope = self.on_frame = _ignore
        on_closed(self.closed)

    def pause_writing(self) -> None:
        """Mark the socket as full."""
        self.paused = True

    def resume_writing(self) -> None:
        """Mark the socket as writable and wake the waiting senders."""
        self.paused = False
        self._wake(None)

    # Writing

    def send_raw(self, message: bytes, *, text: bool = True) -> None:
        """Send a message unchanged and immediately, even if the socket is full. After the end it is discarded."""
        if self.is_open:
            self._send(_TEXT if text else _BINARY, message)

    async def wait_writable(self) -> None:
        """Wait until the socket is writable. Raises `ConnectionLost` if the connection is closed."""
        while self.paused or not self.is_open:
            await self._wait(None)

    async def ping(self) -> float:
        """Return the round-trip time to the gateway in seconds. Raises `ConnectionLost` if the connection is closed."""
        payload, began = os.urandom(8), asyncio.get_running_loop().time()
        if self.is_open:
            self._transport.send_ping(payload)
        await self._wait(payload)
        return asyncio.get_running_loop().time() - began

    async def _wait(self, event: bytes | None) -> None:
        self._require_open()
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = event
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)
        self._require_open()

    def _require_open(self) -> None:
        if not self.is_open:
            raise ConnectionLost(str(self.closed or "not connected"))

    def _wake(self, event: bytes | None) -> None:
        for waiting, awaited in list(self._waiting.items()):
            if awaited == event and not waiting.done():
                waiting.set_result(None)

    def _wake_all(self) -> None:
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_result(None)

    # Heartbeat

    def watch(self, seconds: float | None) -> None:
        """Ping the gateway after `seconds` of silence, and abort after as many again. None: stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and self.is_open:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._check_silence, seconds)

    def _check_silence(self, seconds: float) -> None:
        if self._has_pinged and not self._has_received:
            self.abort(f"the gateway was silent for {2 * seconds:g} s")
            return
        self._has_pinged = not self._has_received
        if self._has_pinged:
            self._transport.send_ping(b"")
        self._has_received = False
        self.watch(seconds)

    # The end

    async def close(self) -> None:
        """Close with a close handshake. After `CLOSE_TIMEOUT` without an answer, abort."""
        try:
            if self.is_open and not self._transport.is_close_frame_sent:
                self._send_close(NORMAL_CLOSURE)
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.wait_closed()
        except TimeoutError:
            pass
        finally:
            self.abort("closed by this client")

    async def wait_closed(self) -> None:
        """Wait until the connection has ended. Protocol errors that picows reports are ignored by then."""
        with suppress(WSError):
            await self._transport.wait_disconnected()

    def abort(self, reason: str) -> None:
        """Close the connection immediately, without a close handshake."""
        if self.is_open:
            self.closed = self.closed or self._received_close or Closed(ABNORMAL_CLOSURE, reason)
            self._transport.disconnect(False)


class _LocalProtocol(WSProtocol):  # type: ignore[misc]
    """The picows protocol over a Unix socket."""

    __slots__ = ()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(LocalTransport(transport))


async def open_connection(address: GatewayUrl, connection: Connection) -> None:
    """Connect the socket and upgrade it to WebSocket. Raises `ConnectionLost` if that fails."""

    def listener(*_: Any) -> Connection:
        return connection

    arguments = picows_arguments(
        listener,
        _log,
        max_frame_size=MAX_FRAME_BYTES,
        read_buffer=READ_BUFFER_BYTES,
        authority=address.authority,
        path=address.path,
    )
    protocol = (WSProtocol if address.file is None else _LocalProtocol)(*arguments.values())
    loop = asyncio.get_running_loop()
    try:
        if address.file is None:
            await loop.create_connection(lambda: protocol, address.host, address.port, ssl=address.tls)
        else:
            await loop.create_unix_connection(lambda: protocol, sock=connect_to_socket(address.file, LOCAL_SECONDS))
        await protocol.wait_until_handshake_complete()
    except BaseException as error:  # a cancelled caller must not leave a socket open
        if protocol.transport is not None:
            protocol.transport.disconnect(False)
        if isinstance(error, OSError | WSError | UntrustedSocket):
            raise ConnectionLost(f"no connection to {address.name}: {error}") from error
        raise
    if not connection.is_open and connection.closed is None:
        raise ConnectionLost(f"no connection to {address.name}: the gateway closed it")
