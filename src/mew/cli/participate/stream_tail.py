"""Streams as an observer sees them: the open streams, their rates and their contents.

This module must not send anything: an observer has no permission to send.
"""

import asyncio
import sys
import time
from typing import Any, Final, Literal

import msgspec

from mew.cli.common.errors import RequestRefused, one_line
from mew.cli.common.io import as_json, require_reader
from mew.cli.common.render import printable
from mew.cli.common.target import GatewayTarget
from mew.cli.participate.stream_feed import unpacked
from mew.client import Space, connect
from mew.client.frames import Frame, StreamGap, receives
from mew.client.subscriptions import Subscription
from mew.protocol.frames import frame_body

Form = Literal["raw", "json", "text"]
_POLL_SECONDS: Final = 1.0
"""Seconds between checks that standard output still has a reader."""
_COLUMNS: Final = ("stream", "owner", "writers", "status", "frames", "rate", "about")


def open_streams(target: GatewayTarget, interval: float) -> list[dict[str, Any]]:
    """Return the entry of each open stream, with its `rate` in frames per second.

    The gateway counts the frames, so the rates of targeted streams are correct too.
    """
    return asyncio.run(_open_streams(target, interval))


async def _open_streams(target: GatewayTarget, interval: float) -> list[dict[str, Any]]:
    before, began = await _entries(target), time.monotonic()
    if not interval or not before:
        return [{**entry, "rate": None} for entry in before]
    await asyncio.sleep(interval)
    after = await _entries(target)
    took = time.monotonic() - began
    frames = {entry["stream_id"]: entry["stream"]["frames"] for entry in before}
    return [
        {**entry, "rate": round((entry["stream"]["frames"] - frames.get(entry["stream_id"], 0)) / took, 2)}
        for entry in after
    ]


async def _entries(target: GatewayTarget) -> list[dict[str, Any]]:
    async with connect(target.socket_url, space=target.space, token=target.token, reconnect=False) as space:
        return [stream.entry for stream in space.view.streams.values()]


def stream_table(entries: list[dict[str, Any]]) -> str:
    """Return the streams as a table for people."""
    if not entries:
        return "no open streams"
    rows = [_COLUMNS, *map(_row, entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    stream, rate = entry["stream"], entry["rate"]
    owner = entry["owner"] + ("" if stream["owner_connected"] else " (away)")
    others = [writer for writer in entry["authorized_writers"] if writer != entry["owner"]]
    about = entry.get("description") or entry.get("intent") or entry.get("content_type") or ""
    columns = (
        entry["stream_id"],
        owner,
        ", ".join(others) or "-",
        stream["status"],
        f"{stream['frames']:,}",
        "-" if rate is None else f"{rate:,.1f}/s",
        str(about),
    )
    return tuple(map(printable, columns))


def print_stream(target: GatewayTarget, stream_id: str, form: Form, count: int | None) -> int:
    """Print a stream until it ends or `count` pieces were received."""
    return asyncio.run(_print_stream(target, stream_id, form, count))


async def _print_stream(target: GatewayTarget, stream_id: str, form: Form, count: int | None) -> int:
    if count is not None and count < 1:
        return 0
    async with connect(target.socket_url, space=target.space, token=target.token) as space:
        _require(space, stream_id)
        printing = asyncio.create_task(_print(space.frames(stream_id, on_gap=_tell_gap), form, count), name="printing")
        try:
            while not (await asyncio.wait([printing], timeout=_POLL_SECONDS))[0]:
                require_reader()
            printing.result()
        finally:
            printing.cancel()
    return 0


async def _print(frames: Subscription[Frame[Any]], form: Form, count: int | None) -> None:
    """Print frames until the stream ends or `count` frames were received."""
    left = count
    async for frame in frames:
        _write(frame, form)
        left = None if left is None else left - 1
        if left == 0:
            return


def _require(space: Space, stream_id: str) -> None:
    stream = space.view.streams.get(stream_id)
    if stream is None:
        known_ids = ", ".join(map(one_line, space.view.streams)) or "none"
        raise RequestRefused(f"there is no stream {one_line(stream_id)!r}; the open streams are: {known_ids}")
    if not receives(space.view, stream):
        targets = ", ".join(map(one_line, stream.entry["target"]))
        raise RequestRefused(f"{one_line(stream_id)} is sent only to {targets}: an observer does not receive it")


def _tell_gap(gap: StreamGap) -> None:
    print(f"mew: {gap.frames:,} frames are missing here ({gap.cause})", file=sys.stderr, flush=True)


def _write(frame: Frame[Any], form: Form) -> None:
    data = _bytes(frame)
    if form == "raw":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    print(_json(frame) if form == "json" else _line(frame, data), flush=True)


def _bytes(frame: Frame[Any]) -> bytes:
    """Return the data that was sent; for a `stream/data`, the bytes or the text that its content represents."""
    if frame.sender is None:
        return frame.data
    data = unpacked(frame.data)
    if data is not None:
        return data
    content = msgspec.json.decode(frame.data)
    return content.encode() if isinstance(content, str) else frame.data


def _line(frame: Frame[Any], data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex(" ", 4)
    return printable(text.removesuffix("\n"))


def _json(frame: Frame[Any]) -> str:
    if frame.sender is None:
        return as_json(frame_body(frame.stream_id, frame.data))
    fields: dict[str, Any] = {"stream_id": frame.stream_id, "from": frame.sender, "sequence": frame.sequence}
    if frame.format_id is not None:
        fields["format_id"] = frame.format_id
    return as_json({**fields, "content": msgspec.Raw(frame.data)})
