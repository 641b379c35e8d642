"""A call as text, word by word as it is heard; who comes late is told what it reads.
`MEW_GATEWAY=ws://localhost:8080 MEW_TOKEN_SPEAKER=… MEW_TOKEN_READER=… python examples/transcript.py`
"""

import asyncio
import os

from mew.client import Space, Stream, connect

LINES = "utf8-newline-delimited"
HEARD = "Can you hear me?\nThe door to the garden is open.\nI am going in.\n"


async def speak(stream: Stream) -> None:
    for word in HEARD.split(" "):
        await stream.send(f"{word} ")
    await stream.complete()


async def read(space: Space) -> None:
    (found,) = [stream for stream in space.view.streams.values() if stream.entry.get("format") == LINES]
    about, line = found.entry["metadata"], ""
    async for frame in space.frames(found.stream_id):
        *lines, line = (line + frame.data.decode()).split("\n")
        for each in lines:
            print(f"{about['speaker']} ({about['language']}): {each.strip()}")


async def main() -> None:
    url, tokens = os.environ["MEW_GATEWAY"], [os.environ[f"MEW_TOKEN_{name}"] for name in ("SPEAKER", "READER")]
    async with connect(url, token=tokens[0]) as speaker:
        about = {"speaker": speaker.me, "language": "en-US"}
        call = await speaker.open_stream(content_type="text/plain", format=LINES, metadata=about)
        async with connect(url, token=tokens[1]) as reader:
            await asyncio.gather(read(reader), speak(call))  # in this order: frames are read from now on


asyncio.run(main())
