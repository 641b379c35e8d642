"""A watcher: it reads every stream of positions, and periodically reports what it saw."""

import msgspec

from mew.client import Space, StreamGap
from mew.client.errors import ConnectionLost, DecodeError, ProtocolError

EVERY = 50
"""So many positions are worth a word."""


class Position(msgspec.Struct):
    """A position, in the same format as the walker's: its name identifies it."""

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
        if at is not None and received % EVERY == 1:
            try:
                await space.chat(f"{frame.stream_id}: {received} seen, {missed} missed, now at ({at.x}, {at.y})")
            except (ConnectionLost, ProtocolError):
                await space.connected()
