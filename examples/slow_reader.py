"""A reader that is too slow, and learns exactly how many frames it missed.

    python examples/slow_reader.py reader    is busy for some seconds, and does not read its socket
    python examples/slow_reader.py camera    writes more pictures in this time than the gateway queues for a reader

The gateway has a queue for each reader, of `gateway.limits.data_queue_bytes` in space.yaml. When it is full, the oldest
frames are dropped. Neither the writer nor other readers become slower. The table `reader_gaps` of `mew pipeline run`
shows the loss.
"""

import time
from argparse import Namespace

import mew
from mew.client import StreamGap
from roles import Arguments

PICTURE = bytes(range(256)) * 256  # 64 KiB


async def film(options: Namespace) -> None:
    """The camera writes pictures for one reader, as fast as its own socket accepts them."""
    async with mew.connect() as space:
        ready = space.envelopes("chat/acknowledge", sender="slow-reader")
        await space.wait_until(lambda view: "slow-reader" in view.participants)
        stream = await space.open_stream(target=["slow-reader"], content_type="image/x-noise", description="pictures")
        await anext(ready)
        print(f"camera writes {options.pictures} pictures of {len(PICTURE) // 1024} KiB")
        for _ in range(options.pictures):
            await stream.send(PICTURE)
        await stream.complete()
        print("camera is done: the slow reader did not delay it")


async def read(options: Namespace) -> None:
    """The slow reader gets a report of the gap at the position where the frames are missing."""

    def report(gap: StreamGap) -> None:
        print(f"slow-reader missed {gap.frames} pictures: the {gap.cause} dropped them")

    async with mew.connect() as space:
        opened = await space.wait_for(
            lambda envelope: (
                envelope.kind == "stream/open" and space.participant_id in envelope.payload.get("target", ())
            )
        )
        pictures = space.frames(opened.payload["stream_id"], on_gap=report)
        await space.send("chat/acknowledge", to="camera")
        print(f"slow-reader is busy for {options.seconds:g} s")
        time.sleep(options.seconds)  # never do this in a coroutine: it blocks the whole program
        received = [picture async for picture in pictures]
        print(f"slow-reader received {len(received)} of {len(received) + pictures.missed} pictures")


ROLES = {"camera": ("camera", film), "reader": ("slow-reader", read)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--pictures", type=int, default=64, help="number of pictures that the camera writes")
    arguments.add_argument("--seconds", type=float, default=2.0, help="how many seconds the reader is busy")
    arguments.play()
