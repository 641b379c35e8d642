"""Sends standard input to a stream: splits it into pieces, numbers them and posts them.

The HTTP API accepts no raw frames (protocol §5), so each piece is a `stream/data`. This module must not send a piece
twice, and must not skip one silently.
"""

import base64
import select
import struct
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec

from mew.cli.common.errors import Unreachable, UsageError
from mew.cli.common.http_client import ApiError, GatewayClient

if TYPE_CHECKING:
    from mew.cli.participate.stream import ChunkOptions


IDLE_SECONDS: Final = 20.0
"""Seconds of silence before a heartbeat: a participant is present if it sent something within a minute."""
MAX_PIECE_BYTES: Final = 16 * 2**20
"""Maximum bytes of a piece. The gateway may accept less."""
TRIES: Final = 8
_LENGTH: Final = struct.Struct(">I")
_BUSY_SECONDS: Final = 0.05


def read_pieces(
    source: IO[bytes], cut: "ChunkOptions", idle: Callable[[], None], *, idle_seconds: float = IDLE_SECONDS
) -> Iterator[Any]:
    """Yield each piece of the input as the content of a `stream/data`. Raises `UsageError` for invalid input.

    Calls `idle` after `idle_seconds` without input.
    """
    if cut.chunk < 1 or cut.chunk > MAX_PIECE_BYTES:
        raise UsageError(f"--chunk: expected 1 to {MAX_PIECE_BYTES} bytes")
    if sum((cut.binary, cut.length_prefixed, cut.json_lines)) > 1:
        raise UsageError("give only one of --binary, --length-prefixed and --json-lines")
    parts = _parts(source, idle, idle_seconds)
    if cut.binary:
        yield from map(packed, _chunks(parts, cut.chunk))
    elif cut.length_prefixed:
        yield from map(packed, _prefixed(parts))
    else:
        read = _value if cut.json_lines else _text
        for number, line in enumerate(_lines(parts), 1):
            yield read(number, line)


def packed(data: bytes) -> dict[str, str]:
    """Return bytes as the content of a `stream/data`, with the same fields as a frame in an `output_log`."""
    return {"encoding": "base64", "data": base64.b64encode(data).decode()}


def unpacked(content: bytes) -> bytes | None:
    """Return the bytes in such a content, given as JSON text; None for any other content."""
    try:
        return msgspec.json.decode(content, type=_Packed).data
    except msgspec.MsgspecError:
        return None


class _Packed(msgspec.Struct, forbid_unknown_fields=True):
    encoding: Literal["base64"]
    data: bytes


def _text(number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UsageError(f"line {number} is not UTF-8: send bytes with --binary") from None


def _value(number: int, line: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"line {number} is not JSON: {error}") from None
    return msgspec.Raw(line)


def _parts(source: IO[bytes], idle: Callable[[], None], idle_seconds: float) -> Iterator[bytes]:
    """Yield input as soon as it arrives."""
    from os import read

    number = source.fileno()
    while True:
        try:
            ready = select.select([number], [], [], idle_seconds)[0]
        except ValueError:
            ready = [number]
        if not ready:
            idle()
            continue
        part = read(number, 64 * 2**10)
        if not part:
            return
        yield part


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
        if len(rest) > MAX_PIECE_BYTES:
            raise UsageError(f"a line is longer than {MAX_PIECE_BYTES} bytes: send bytes with --binary")
    if rest:
        yield rest


def _chunks(parts: Iterator[bytes], chunk: int) -> Iterator[bytes]:
    buffer = bytearray()
    for part in parts:
        buffer += part
        while len(buffer) >= chunk:
            yield bytes(buffer[:chunk])
            del buffer[:chunk]
    if buffer:
        yield bytes(buffer)


def _prefixed(parts: Iterator[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for part in parts:
        buffer += part
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > MAX_PIECE_BYTES:
                raise UsageError(f"a piece has {length} bytes, more than {MAX_PIECE_BYTES}: is each length four bytes?")
            if len(buffer) < _LENGTH.size + length:
                break
            yield bytes(buffer[_LENGTH.size : _LENGTH.size + length])
            del buffer[: _LENGTH.size + length]
    if buffer:
        raise UsageError("standard input ended in the middle of a piece")


class Feed:
    """Writes to one stream as one participant."""

    def __init__(self, client: GatewayClient, participant: str, stream_id: str, format_id: str | None) -> None:
        """Start at sequence 0. If the gateway expects another number, it reports it."""
        self._client = client
        self._participant = participant
        self._stream_id = stream_id
        self._format = {} if format_id is None else {"format_id": format_id}
        self._sequence = 0
        self.count = 0

    def send(self, content: Any) -> None:
        """Send a piece once. If an answer is lost, the sequence number shows whether the piece was accepted."""
        lost = False
        for _ in range(TRIES):
            try:
                self._client.post(self._participant, self._envelope(content))
                break
            except ApiError as refusal:
                last = refusal.parts.get("last_sequence")
                if refusal.error == "rate_limited":
                    time.sleep(_BUSY_SECONDS)
                elif refusal.error != "sequence_out_of_order" or not isinstance(last, int):
                    raise
                elif lost and last == self._sequence:
                    break
                else:
                    self._sequence = last + 1
            except Unreachable:
                # The gateway closes idle connections. The next try opens a new one, or fails.
                if lost:
                    raise
                lost = True
        else:
            raise Unreachable(f"{self._stream_id}: a piece could not be sent in {TRIES} tries")
        self._sequence += 1
        self.count += 1

    def _envelope(self, content: Any) -> dict[str, Any]:
        stream = {"stream_id": self._stream_id, "sequence": self._sequence}
        return {"kind": "stream/data", "payload": {**stream, **self._format, "content": content}}

    def stay(self) -> None:
        """Send a heartbeat while there is no input."""
        self._client.close()
        self._client.post(self._participant, {"kind": "system/heartbeat"})

    def sent(self) -> dict[str, Any]:
        """Return a summary of what was sent."""
        return {"stream_id": self._stream_id, "sent": self.count, "last_sequence": self._sequence - 1}
