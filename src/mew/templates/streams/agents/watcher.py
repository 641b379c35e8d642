"""A watcher: reads every stream of positions, and reports periodically in the chat."""

import msgspec

from mew.client import Space, StreamGap
from mew.client.errors import ConnectionLost, DecodeError, ProtocolError

REPORT_EVERY = 50
"""Number of positions between two reports."""


class Position(msgspec.Struct):
    """A position. The name of the class identifies the format, which is the same as that of the walker."""

    x: float
    y: float


async def agent(space: Space) -> None:
    """Watch until the space ends."""
    received = missed = 0

    def count(gap: StreamGap) -> None:
        nonlocal missed
        missed += gap.frames

    async for frame in space.frames(format=Position, on_gap=count):
        try:
            at = frame.value
        except DecodeError:
            continue
        received += 1
        if at is not None and received % REPORT_EVERY == 1:
            try:
                await space.chat(f"{frame.stream_id}: {received} seen, {missed} missed, now at ({at.x}, {at.y})")
            except (ConnectionLost, ProtocolError):
                await space.connected()
