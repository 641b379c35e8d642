"""A reader that does not keep up, and is told to the frame what it missed.

    python examples/slow_reader.py reader    is busy with something else for a while, and does not read its socket
    python examples/slow_reader.py camera    writes pictures meanwhile, more than the gateway keeps for anybody

The gateway keeps so much for each reader (`gateway.limits.data_queue_bytes` in space.yaml), then lets the oldest go.
Nobody else is slowed down, least of all who writes. `mew pipeline run` has the loss in its table `reader_gaps`.
"""

import time
from argparse import Namespace

import mew
from mew.client import StreamGap
from roles import Arguments

PICTURE = bytes(range(256)) * 256  # 64 KiB that no eye would take for a cat


async def film(options: Namespace) -> None:
    """The camera: pictures for the reader alone, as many as the socket takes."""
    async with mew.connect() as space:
        ready = space.envelopes("chat/acknowledge", sender="slow-reader")
        await space.wait_until(lambda view: "slow-reader" in view.participants)
        stream = await space.open_stream(target=["slow-reader"], content_type="image/x-noise", description="pictures")
        await anext(ready)
        print(f"camera writes {options.pictures} pictures of {len(PICTURE) // 1024} KiB")
        for _ in range(options.pictures):
            await stream.send(PICTURE)
        await stream.complete()
        print("camera is done: who reads slowly does not hold it up")


async def read(options: Namespace) -> None:
    """The slow reader: what it was not given is counted at the place where it is missing."""

    def tell(gap: StreamGap) -> None:
        print(f"slow-reader missed {gap.frames} pictures: the {gap.cause} let them go")

    async with mew.connect() as space:
        opened = await space.wait_for(
            lambda each: each.kind == "stream/open" and space.participant_id in each.payload.get("target", ())
        )
        pictures = space.frames(opened.payload["stream_id"], on_gap=tell)
        await space.send("chat/acknowledge", to="camera")
        print(f"slow-reader is busy for {options.seconds:g} s")
        time.sleep(options.seconds)  # what nobody should do in a coroutine: the whole program stands still
        seen = [picture async for picture in pictures]
        print(f"slow-reader saw {len(seen)} pictures of {len(seen) + pictures.missed}")


ROLES = {"camera": ("camera", film), "reader": ("slow-reader", read)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--pictures", type=int, default=64, help="so many the camera writes")
    arguments.add_argument("--seconds", type=float, default=2.0, help="so long the reader is busy")
    arguments.play()
