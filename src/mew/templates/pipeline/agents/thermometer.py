"""A thermometer: streams a measurement every second."""

import asyncio
import random
import time

from mew.client import ConnectionLost, ProtocolError, Space, Stream

SECONDS = 1.0


MEASUREMENT = {
    "id": "measurement",
    "mime_type": "application/json",
    "schema": {
        "type": "object",
        "properties": {"celsius": {"type": "number"}, "at": {"type": "number"}},
        "required": ["celsius", "at"],
    },
}
"""The format of the stream. Its properties become columns of a table."""


async def agent(space: Space) -> None:
    """Send a measurement every second as `stream/data`, which is numbered and validated against the format."""
    celsius = 20.0
    while True:
        try:
            stream = await temperature_stream(space)
            while True:
                celsius += random.uniform(-0.1, 0.1)
                await stream.send_data({"celsius": round(celsius, 2), "at": round(time.time(), 3)})
                await asyncio.sleep(SECONDS)
        except (ConnectionLost, ProtocolError):
            await space.connected()
            await asyncio.sleep(SECONDS)


async def temperature_stream(space: Space) -> Stream:
    """Return the stream from before the connection broke, or a new one."""
    for stream_id, entry in space.view.streams.items():
        if entry.owner == space.participant_id and entry.status == "live":
            return space.stream(stream_id)
    stream = await space.announce_stream(
        [MEASUREMENT], desired_id="temperature", description="the temperature", validate=True
    )
    await stream.start()
    return stream
