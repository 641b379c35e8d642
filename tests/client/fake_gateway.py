"""A WebSocket server that performs a gateway's handshake and then runs the script of a test.

It knows the upgrade and one welcome. It can send what a real gateway never sends.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from typing import Final

from tests.gateway.raw import CONTINUATION, TEXT, length_of

WELCOME: Final = (
    b'{"protocol":"mew/v0.4","id":"e-1","ts":"2026-01-05T10:00:00.000000Z","from":"system:gateway","to":["alice"],'
    b'"kind":"system/welcome","payload":{"you":{"id":"alice","capabilities":[{"kind":"*"}]},"participants":[],'
    b'"active_streams":[],"position":7}}'
)
CHAT: Final = (
    b'{"protocol":"mew/v0.4","id":"e-2","ts":"2026-01-05T10:00:00.000000Z","from":"bob","kind":"chat",'
    b'"payload":{"text":"hello"}}'
)
MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]
"""What happens on an upgraded connection; the number counts the connections."""


def whole(payload: bytes, opcode: int = TEXT) -> bytes:
    """One frame of a server."""
    return bytes((0x80 | opcode,)) + length_of(len(payload), masked=False) + payload


def pieces(payload: bytes, *cuts: int, between: bytes = b"") -> bytes:
    """The message in several frames, with the bytes of `between` after each frame but the last."""
    ends = [*cuts, len(payload)]
    parts = [payload[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]
    frames = []
    for number, part in enumerate(parts):
        first = (0x80 if number == len(parts) - 1 else 0) | (CONTINUATION if number else TEXT)
        frames.append(bytes((first,)) + length_of(len(part), masked=False) + part)
    return between.join(frames)


@asynccontextmanager
async def faking(script: Script) -> AsyncIterator[str]:
    """Serve connections by the script; gives the address."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            (key,) = [line.partition(": ")[2] for line in head if line.lower().startswith("sec-websocket-key")]
            accept = b64encode(sha1(f"{key}{MAGIC}".encode()).digest())
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n")
            writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            await script(reader, writer, count)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await _all_gone()


async def await_close(reader: asyncio.StreamReader) -> None:
    """Read until the client closes the connection or disconnects; then close it too."""
    while data := await reader.read(65_536):
        if data[-8:-6] == b"\x88\x82":
            return


async def _all_gone() -> None:
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.001)
