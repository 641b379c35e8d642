"""A walker: moves in a circle and streams its position ten times a second."""

import asyncio
import math

import msgspec

from mew.client import ConnectionLost, ProtocolError, Space, Stream

STEP_SECONDS = 0.1


class Position(msgspec.Struct):
    """The position of the walker, and the format of its stream."""

    x: float
    y: float


async def agent(space: Space) -> None:
    """Walk until the space ends. Continues a stream that it still owns, else opens a new one."""
    step = 0
    while True:
        try:
            stream = await positions_stream(space)
            while True:
                await stream.send(Position(round(math.cos(step / 20), 3), round(math.sin(step / 20), 3)))
                await asyncio.sleep(STEP_SECONDS)
                step += 1
        except (ConnectionLost, ProtocolError):
            await space.connected()
            await asyncio.sleep(STEP_SECONDS)


async def positions_stream(space: Space) -> Stream:
    """Return the stream from before the connection broke, or a new one."""
    for stream_id, entry in space.view.streams.items():
        if entry.owner == space.participant_id and entry.status == "live":
            return space.stream(stream_id)
    stream = await space.announce_stream([Position], desired_id="positions", description="the position of the walker")
    await stream.start()
    return stream
