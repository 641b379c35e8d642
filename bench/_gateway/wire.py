"""What clients say and hear, byte for byte: WebSocket, our joins and streams on it, and NATS' text protocol.

Builds and reads bytes. Opens nothing, waits for nothing.
"""

import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

PAYLOAD: Final = 100
"""Bytes of application data in a frame; what a protocol adds to say where it belongs comes on top."""
STAMP: Final = 8
TEXT, BINARY, CLOSE = 1, 2, 8
_KEY: Final = b"\xa5\x01\xff\x3c"
FILLER: Final = b"."


class Speech(NamedTuple):
    """A message of fixed size with a time in it, as a client sends it and as readers get it."""

    head: bytes
    tail: bytes
    mask: int
    """What covers the time."""
    received: int
    """Bytes that each reader gets."""
    stamp_at: int
    """Where in them the time is."""

    def stamped(self, nanoseconds: int) -> bytes:
        """The message as sent, with this time in it."""
        return self.head + (nanoseconds ^ self.mask).to_bytes(STAMP, "big") + self.tail


class Dialect(Protocol):
    """How to talk to one kind of server."""

    ready: bytes
    """Part of what a client hears once it is let in."""
    quiet: float
    """Seconds of silence after which it no longer receives unrequested messages."""

    def hello(self, number: int) -> bytes:
        """What the client of this number says first."""
        ...

    def reply(self, number: int) -> bytes:
        """What it says once its upgrade is answered; empty where it waits to be let in."""
        ...

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """What a writer says before its first frame, each with a part of the answer it waits for."""
        ...

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """A frame of this writer."""
        ...


def masked(payload: bytes, key: bytes = _KEY) -> bytes:
    """The payload under a mask, as a client must send it (RFC 6455 §5.3)."""
    cover = (key * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(cover, "big")).to_bytes(len(payload), "big")


def client_frame(opcode: int, payload: bytes) -> bytes:
    """A client's WebSocket frame."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
    return bytes((0x80 | opcode,)) + length + _KEY + masked(payload)


def server_frames(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take every complete frame of a server off the data: its opcode and its payload."""
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
    """A request to upgrade to WebSocket."""
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
    """A binary message: the prefix, the time, filler."""
    sent = client_frame(BINARY, prefix + bytes(STAMP) + FILLER * (size - STAMP))
    at = len(sent) - size
    mask = int.from_bytes(sent[at : at + STAMP], "big")
    header = 2 if len(prefix) + size < 126 else 4
    return Speech(sent[:at], sent[at + STAMP :], mask, header + len(prefix) + size, header + len(prefix))


class PlainWebSocket:
    """A server that admits every client and sends everything to all."""

    ready = b"\r\n\r\n"
    quiet = 0.3

    def hello(self, number: int) -> bytes:
        """The upgrade is all."""
        return upgrade()

    def reply(self, number: int) -> bytes:
        """It is in."""
        return b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Nothing to open."""
        return []

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """The same for all."""
        return websocket_speech(size)


class Mew:
    """Our gateway: a client joins with a token and writes to its own stream."""

    ready = b'"position":'  # the last word of a welcome
    quiet = 0.3

    def __init__(self, tokens: list[str], targets: tuple[str, ...] = (), *, by_message: bool = False) -> None:
        """Client n holds the n-th token; frames go to the targets only, where there are any."""
        self._tokens = tokens
        self._targets = targets
        self._by_message = by_message

    def towards(self, *participants: str) -> "Mew":
        """The same, with frames for these only."""
        return Mew(self._tokens, participants)

    def by_message(self) -> "Mew":
        """The same, but they join as browsers do: by a message behind the upgrade, without a header."""
        return Mew(self._tokens, self._targets, by_message=True)

    def hello(self, number: int) -> bytes:
        """With the token in the upgrade the welcome comes without another word."""
        return upgrade() if self._by_message else upgrade(f"Authorization: Bearer {self._tokens[number]}")

    def reply(self, number: int) -> bytes:
        """The join, unless it was in the upgrade."""
        join = {"type": "join", "token": self._tokens[number]}
        return client_frame(TEXT, msgspec.json.encode(join)) if self._by_message else b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Announce a stream under a name of known length, and start it."""
        announce: dict[str, object] = {"formats": [{"id": "bytes"}], "desired_id": _stream(number)}
        if self._targets:
            announce["target"] = self._targets
        start = {"stream": {"stream_id": _stream(number)}}
        return [
            (envelope("stream/announce", announce), b'"stream/ready"'),
            (envelope("stream/start", start), b'"stream/start"'),
        ]

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """A raw frame on the client's stream."""
        return websocket_speech(size, f"#{_stream(number)}#".encode())


class Nats:
    """nats-server: every client subscribes to everything below one subject."""

    ready = b"PONG"
    quiet = 3.0  # it pings each new client once, about two seconds after it came

    def __init__(self, subject: str = "s.*") -> None:
        """The subject that every client subscribes to."""
        self._subject = subject

    def hello(self, number: int) -> bytes:
        """Connect, subscribe, and ask for a sign that both are done."""
        connect = 'CONNECT {"verbose":false,"pedantic":false,"echo":true}'
        return f"{connect}\r\nSUB {self._subject} 1\r\nPING\r\n".encode()

    def reply(self, number: int) -> bytes:
        """There is no upgrade."""
        return b""

    def opening(self, number: int) -> list[tuple[bytes, bytes]]:
        """Nothing to open."""
        return []

    def speech(self, number: int, size: int = PAYLOAD) -> Speech:
        """A publication on the client's subject."""
        subject = f"s.{_stream(number)}"
        head, received = f"PUB {subject} {size}\r\n".encode(), f"MSG {subject} 1 {size}\r\n".encode()
        return Speech(head, FILLER * (size - STAMP) + b"\r\n", 0, len(received) + size + 2, len(received))


def _stream(number: int) -> str:
    return f"w{number:02}"


def envelope(kind: str, payload: object) -> bytes:
    """An envelope as a client sends it."""
    return client_frame(TEXT, msgspec.json.encode({"kind": kind, "payload": payload}))
