"""A gateway on a real port, and a client that writes and reads the bytes of WebSocket and HTTP itself.

A test uses no library for either protocol, so that it can send what a library would never send.
"""

import asyncio
import socket
import ssl
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
import trustme
import uvloop

from mew.config.loader import load_config
from mew.config.models import TLS, GatewayConfig, SpaceConfig
from mew.config.tokens import TokenStore
from mew.gateway.gateway import USUAL_OPTIONS, Gateway, GatewayOptions
from mew.gateway.server import GatewayServer
from mew.journal import JournalSettings
from mew.protocol import Tokens
from mew.testing import MemoryTokens, settings

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
PATIENCE: Final = 10.0
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY: Final = b64encode(b"sixteen bytes...").decode()
UPGRADE: Final = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}
ANYTHING: Final = [{"kind": "*"}]
NO_JOURNAL: Final = JournalSettings(enabled=False)
"""Most tests have another subject."""
MASK: Final = b"\xa5\x01\xff\x3c"


class Running:
    """A gateway that runs on its own event loop, in its own thread."""

    def __init__(self, config: GatewayConfig, tokens: Tokens, options: GatewayOptions = USUAL_OPTIONS) -> None:
        self.config, self.tokens, self._options = config, tokens, options
        self.faults: list[dict[str, Any]] = []
        """Errors on the event loop that no caller received."""
        self.loop = uvloop.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self._thread = threading.Thread(target=self.loop.run_forever, name="gateway under test", daemon=True)
        self._thread.start()
        self.do(self._start())

    async def _start(self) -> None:
        self.gateway = Gateway(self.config, self.tokens, options=self._options)
        self.server = GatewayServer(self.gateway)
        self.server.bind()
        await self.server.start()

    @property
    def port(self) -> int:
        return self.server.port

    def token(self, participant: str) -> str:
        return self.tokens.issue(self.config.spaces[0].settings.space_id, participant)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this on the gateway's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def ask(self, question: Callable[[Gateway], T]) -> T:
        """The answer to a question about the gateway, evaluated on its event loop."""

        async def answer() -> T:
            return question(self.gateway)

        return self.do(answer())

    def until(self, question: Callable[[Gateway], T]) -> T:
        """Repeat the question until the answer is true."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(question)
            if answer:
                return answer
            assert time.monotonic() < deadline, "the condition was never true"

    def stopping(self) -> "Future[None]":
        """Begin to stop; the result is there when it has stopped."""
        return asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop)

    def stop(self) -> None:
        """Stop the gateway, and check that no error was left unhandled."""
        self.stopping().result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()
        assert self.faults == []


@contextmanager
def running(
    directory: Path, space: Mapping[str, Any] | None = None, *, work: GatewayOptions = USUAL_OPTIONS, **options: Any
) -> Iterator[Running]:
    """A gateway with this configuration and these limits of its work, and a space with these settings."""
    space_settings = settings(
        **{"participants": {"alice": ANYTHING, "bob": ANYTHING, "carol": ANYTHING}, **(space or {})}
    )
    tokens = MemoryTokens()
    for participant in space_settings.participants:
        tokens.issue(space_settings.space_id, participant)
    file = directory / "space.yaml"
    journal = options.pop("journal", NO_JOURNAL)
    configured = SpaceConfig(
        settings=space_settings, directory=directory, file=file, name="a laboratory", journal=journal
    )
    with started(GatewayConfig(**{"port": 0, "spaces": (configured,), **options}), tokens, work) as gateway:
        yield gateway


@contextmanager
def running_from(file: Path, **environ: str) -> Iterator[Running]:
    """A gateway as `mew gateway start` starts it: from a space.yaml and this environment, on a free port."""
    config = load_config([file], environ=environ).listening_on(port=0)
    spaces = tuple(msgspec.structs.replace(space, journal=NO_JOURNAL) for space in config.spaces)
    config = msgspec.structs.replace(config, spaces=spaces)
    with started(config, TokenStore(config.spaces, environ=environ)) as gateway:
        yield gateway


@contextmanager
def started(config: GatewayConfig, tokens: Tokens, options: GatewayOptions = USUAL_OPTIONS) -> Iterator[Running]:
    """A gateway from its start to its regular stop."""
    gateway = Running(config, tokens, options)
    try:
        yield gateway
    finally:
        gateway.stop()


def tls_of(directory: Path) -> tuple[TLS, ssl.SSLContext]:
    """A certificate for localhost in this folder, and an SSL context of a client that trusts it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(certificate), append=True)
    issued.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return TLS(certificate=certificate, key=key), trust


class Frame(msgspec.Struct, frozen=True):
    """A received frame."""

    opcode: int
    payload: bytes = b""
    fin: bool = True

    @property
    def code(self) -> int | None:
        """The code of a close frame."""
        return int.from_bytes(self.payload[:2], "big") if self.payload else None


class Answer(msgspec.Struct, frozen=True):
    """The answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def length_of(size: int, form: Literal[7, 16, 64] | None = None, *, masked: bool = True) -> bytes:
    """The second byte of a frame and its extended length; `form` may select more bits than necessary."""
    bit = 0x80 if masked else 0
    if form == 7 or (form is None and size < 126):
        return bytes((bit | size,))
    if form == 16 or (form is None and size < 65536):
        return struct.pack(">BH", bit | 126, size)
    return struct.pack(">BQ", bit | 127, size)


def masked(payload: bytes, mask: bytes = MASK) -> bytes:
    """The masked payload."""
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    size = len(payload)
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0, mask: bytes = MASK) -> bytes:
    """A client's frame; `reserved` are the three bits as a number."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    return bytes((first,)) + length_of(len(payload)) + mask + masked(payload, mask)


def unmasked(opcode: int, payload: bytes = b"") -> bytes:
    """A frame that no client may send."""
    return bytes((0x80 | opcode,)) + length_of(len(payload), masked=False) + payload


def fragments(opcode: int, *parts: bytes) -> list[bytes]:
    """One message in several frames."""
    last = len(parts) - 1
    return [frame(CONTINUATION if n else opcode, part, fin=n == last) for n, part in enumerate(parts)]


def closing(code: int | None = None, reason: bytes = b"") -> bytes:
    """A close frame."""
    return frame(CLOSE, b"" if code is None else struct.pack(">H", code) + reason)


def head(path: str, headers: Mapping[str, str | None], method: str = "GET") -> bytes:
    """The head of a request; a header that is None is left out."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(path: str = "/", **headers: str | None) -> bytes:
    """An upgrade request; keywords such as `Sec_WebSocket_Key` replace the usual headers."""
    return head(path, {**UPGRADE, **{name.replace("_", "-"): value for name, value in headers.items()}})


class Raw:
    """A connection on which the test chooses every byte."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, buffer: int = 0):
        connected = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        connected.settimeout(PATIENCE)
        if buffer:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connected.connect((host, port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected if tls is None else tls.wrap_socket(connected, server_hostname="localhost")
        self._unread = bytearray()

    def send(self, *parts: bytes) -> None:
        """Send everything with one call."""
        self.socket.sendall(b"".join(parts))

    def chop(self, data: bytes) -> None:
        """Send byte by byte, each in a separate packet if the kernel allows it."""
        for n in range(len(data)):
            self.socket.sendall(data[n : n + 1])

    def _more(self) -> bool:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        self._unread += data
        if not data:
            self.socket.close()
        return bool(data)

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            if not self._more():
                raise EOFError(f"the gateway disconnected; unread: {bytes(self._unread)!r}")
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def rest(self) -> bytes:
        """Everything until the gateway disconnects."""
        while self._more():
            pass
        return self._take(len(self._unread))

    def answer(self) -> Answer:
        """The answer to a request."""
        while b"\r\n\r\n" not in self._unread:
            if not self._more():
                raise EOFError(f"no answer, only {bytes(self._unread)!r}")
        first, *lines = self._take(self._unread.index(b"\r\n\r\n") + 4).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        return Answer(int(first.split(" ")[1]), headers, self._take(int(headers.get("content-length", "0"))))

    def frame(self) -> Frame:
        """The next frame. Frames of a server are never masked and have no reserved bits."""
        first, size = self._take(2)
        assert first & 0x70 == 0
        assert size & 0x80 == 0
        if size == 126:
            (size,) = struct.unpack(">H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._take(8))
        return Frame(first & 15, self._take(size), bool(first & 0x80))

    def envelope(self, kind: str) -> dict[str, Any]:
        """The next envelope of this kind; others are skipped."""
        while True:
            received = self.frame()
            assert received.opcode != CLOSE, f"closed with {received.code} instead of {kind}"
            if received.opcode == TEXT and not received.payload.startswith(b"#"):
                envelope: dict[str, Any] = msgspec.json.decode(received.payload)
                if envelope["kind"] == kind:
                    return envelope

    def envelopes(self, last: str) -> list[dict[str, Any]]:
        """Every envelope before the first chat with this text. Nothing else may come."""
        envelopes: list[dict[str, Any]] = []
        while True:
            received = self.frame()
            assert received.opcode == TEXT, received
            assert not received.payload.startswith(b"#"), received
            envelopes.append(msgspec.json.decode(received.payload))
            if envelopes[-1]["kind"] == "chat" and envelopes[-1]["payload"]["text"] == last:
                return envelopes[:-1]

    def echo(self) -> Frame:
        """The next frame that is no envelope."""
        while True:
            received = self.frame()
            if received.opcode != TEXT or received.payload.startswith(b"#"):
                return received

    def closed(self) -> int | None:
        """The code with which the gateway closes. Only envelopes may come before it, and nothing after it."""
        received = self.echo()
        assert received.opcode == CLOSE, received
        with suppress(OSError):  # after a protocol error, the gateway may disconnect without waiting for the answer
            self.send(closing(received.code))
        assert self.rest() == b""
        return received.code

    def say(self, **envelope: Any) -> None:
        """Send an envelope."""
        self.send(frame(TEXT, msgspec.json.encode(envelope)))

    def ask(self, method: str, path: str, token: str | None = None, body: Any = None) -> Answer:
        """Send an HTTP request with a JSON body, and return the answer."""
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = {
            "Host": "localhost",
            "Authorization": None if token is None else f"Bearer {token}",
            "Content-Type": None if body is None else "application/json",
            "Content-Length": str(len(sent)),
        }
        self.send(head(path, headers, method), sent)
        return self.answer()

    def open_stream(self) -> bytes:
        """Open a stream; return the prefix of its frames."""
        self.say(kind="stream/announce", payload={"formats": [{"id": "bytes"}], "desired_id": "echo"})
        stream = self.envelope("stream/ready")["payload"]["stream"]
        self.say(kind="stream/start", payload={"stream": stream})
        self.envelope("stream/start")
        return b"#%b#" % stream["stream_id"].encode()

    def close(self) -> None:
        """Disconnect without a close frame."""
        self.socket.close()


def joined(gateway: Running, participant: str = "alice", **options: Any) -> Raw:
    """A client that has joined and received its welcome."""
    client = Raw(gateway.port, **options)
    client.send(upgrade("/any/path", Authorization=f"Bearer {gateway.token(participant)}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    return client
