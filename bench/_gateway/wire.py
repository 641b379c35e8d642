"""The bytes that clients send and receive: WebSocket with our joins and streams, and NATS' text protocol.

Builds and reads bytes. Opens nothing, waits for nothing.
"""

import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

PAYLOAD: Final = 100
"""Bytes of application data in a frame, without the header of the protocol."""
STAMP: Final = 8
TEXT, BINARY, CLOSE = 1, 2, 8
_KEY: Final = b"\xa5\x01\xff\x3c"
FILLER: Final = b"."


class Speech(NamedTuple):
    """A message of fixed size with a time stamp, as a client sends it and as readers receive it."""

    head: bytes
    tail: bytes
    mask: int
    """The mask of the bytes of the time stamp."""
    received: int
    """The bytes that each reader receives."""
    stamp_at: int
    """The offset of the time stamp in them."""

    def stamped(self, nanoseconds: int) -> bytes:
        """Return the message as sent, with this time stamp."""
        return self.head + (nanoseconds ^ self.mask).to_bytes(STAMP, "big") + self.tail


class Dialect(Protocol):
    """The protocol of one kind of server."""

    ready: bytes
    """A part of the first message that a joined client receives."""
    quiet: float
    """Seconds of silence after which the server sends nothing more by itself."""

    def hello(self, number: int) -> bytes:
        """Return the first message of the client with this number."""
        ...

    def reply(self, number: int) -> bytes:
        """Return its message after the answer to the upgrade; empty if it has none."""
        ...

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return the messages of a writer before its first frame, each with a part of the expected answer."""
        ...

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """Return the frame of this writer."""
        ...


def masked(payload: bytes, key: bytes = _KEY) -> bytes:
    """Return the masked payload, as a client must send it (RFC 6455 §5.3)."""
    cover = (key * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(cover, "big")).to_bytes(len(payload), "big")


def client_frame(opcode: int, payload: bytes) -> bytes:
    """Return a client's WebSocket frame."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
    return bytes((0x80 | opcode,)) + length + _KEY + masked(payload)


def server_frames(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Remove every complete frame of a server from the data, and return their opcodes and payloads."""
    at = 0
    while len(data) >= at + 2:
        size, begin = data[at + 1], at + 2
        if size == 126:
            size, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, begin = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if len(data) < begin + size:
            break
        yield data[at] & 15, bytes(data[begin : begin + size])
        at = begin + size
    del data[:at]


def upgrade(*headers: str) -> bytes:
    """Return a request to upgrade to WebSocket."""
    lines = [
        "GET / HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {b64encode(b'sixteen bytes...').decode()}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def websocket_speech(size: int, prefix: bytes = b"") -> Speech:
    """Return a binary message: the prefix, the time stamp, filler bytes."""
    sent = client_frame(BINARY, prefix + bytes(STAMP) + FILLER * (size - STAMP))
    at = len(sent) - size
    mask = int.from_bytes(sent[at : at + STAMP], "big")
    header = 2 if len(prefix) + size < 126 else 4
    return Speech(sent[:at], sent[at + STAMP :], mask, header + len(prefix) + size, header + len(prefix))


class PlainWebSocket:
    """A server that admits all clients and sends each message to all."""

    ready = b"\r\n\r\n"
    quiet = 0.3

    def hello(self, number: int) -> bytes:
        """Return the upgrade request."""
        return upgrade()

    def reply(self, number: int) -> bytes:
        """Return nothing: the client has joined."""
        return b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return nothing: a writer needs no preparation."""
        return []

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """Return the same frame for all writers."""
        return websocket_speech(size)


class Mew:
    """Our gateway: a client joins with a token, and writes to its own stream."""

    ready = b'"position":'  # near the end of a welcome
    quiet = 0.3

    def __init__(self, tokens: list[str], targets: tuple[str, ...] = (), *, by_message: bool = False) -> None:
        """Client n uses the n-th token. If targets are given, only they receive frames."""
        self._tokens = tokens
        self._targets = targets
        self._by_message = by_message

    def towards(self, *participants: str) -> "Mew":
        """Return the same with these targets."""
        return Mew(self._tokens, participants)

    def by_message(self) -> "Mew":
        """Return the same for clients that join like browsers: with a message after the upgrade, without a header."""
        return Mew(self._tokens, self._targets, by_message=True)

    def hello(self, number: int) -> bytes:
        """Return the upgrade request, with the token: then no join message is needed."""
        return upgrade() if self._by_message else upgrade(f"Authorization: Bearer {self._tokens[number]}")

    def reply(self, number: int) -> bytes:
        """Return the join message, unless the token was in the upgrade."""
        join = {"type": "join", "token": self._tokens[number]}
        return client_frame(TEXT, msgspec.json.encode(join)) if self._by_message else b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return the messages that announce a stream with an id of known length, and start it."""
        announce: dict[str, object] = {"formats": [{"id": "bytes"}], "desired_id": _stream(number)}
        if self._targets:
            announce["target"] = self._targets
        start = {"stream": {"stream_id": _stream(number)}}
        return [
            (envelope("stream/announce", announce), b'"stream/ready"'),
            (envelope("stream/start", start), b'"stream/start"'),
        ]

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """Return a raw frame on the client's stream."""
        return websocket_speech(size, f"#{_stream(number)}#".encode())


class Nats:
    """nats-server: all clients subscribe to everything below one subject."""

    ready = b"PONG"
    quiet = 3.0  # it pings each new client once, about two seconds after it connected

    def __init__(self, subject: str = "s.*") -> None:
        """Use this subject for all clients."""
        self._subject = subject

    def hello(self, number: int) -> bytes:
        """Return connect, subscribe, and a ping whose answer confirms both."""
        connect = 'CONNECT {"verbose":false,"pedantic":false,"echo":true}'
        return f"{connect}\r\nSUB {self._subject} 1\r\nPING\r\n".encode()

    def reply(self, number: int) -> bytes:
        """Return nothing: there is no upgrade."""
        return b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return nothing: a writer needs no preparation."""
        return []

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """Return a publication on the client's subject."""
        subject = f"s.{_stream(number)}"
        head, received = f"PUB {subject} {size}\r\n".encode(), f"MSG {subject} 1 {size}\r\n".encode()
        return Speech(head, FILLER * (size - STAMP) + b"\r\n", 0, len(received) + size + 2, len(received))


def _stream(number: int) -> str:
    return f"w{number:02}"


def envelope(kind: str, payload: object) -> bytes:
    """Return an envelope as a client sends it."""
    return client_frame(TEXT, msgspec.json.encode({"kind": kind, "payload": payload}))
