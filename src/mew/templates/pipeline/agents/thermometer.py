"""A thermometer: it streams a measurement every second."""

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
"""The format of the stream: its properties become columns."""


async def agent(space: Space) -> None:
    """Measure for ever, as `stream/data`: each is numbered, checked against its format, and a row of a table."""
    celsius = 20.0
    while True:
        try:
            stream = await own_stream(space)
            while True:
                celsius += random.uniform(-0.1, 0.1)
                await stream.send_data({"celsius": round(celsius, 2), "at": round(time.time(), 3)})
                await asyncio.sleep(SECONDS)
        except (ConnectionLost, ProtocolError):
            await space.connected()
            await asyncio.sleep(SECONDS)


async def own_stream(space: Space) -> Stream:
    """The stream that we had before the connection broke, else a new one."""
    for stream_id, entry in space.view.streams.items():
        if entry.owner == space.me and entry.status == "live":
            return space.stream(stream_id)
    stream = await space.announce_stream(
        [MEASUREMENT], desired_id="temperature", description="how warm it is", validate=True
    )
    await stream.start()
    return stream
