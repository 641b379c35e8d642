"""The process that `bench.sdk` measures: a program that uses the SDK and reports its resource use.

`python -m bench._sdk receive|send|slow <address> <token> <frames> [asyncio|uvloop]`. It reports on standard output, a
line of JSON for each step. The parent process decides what it reads, and when.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import uvloop

import mew
from bench._gateway.machine import resident_bytes
from mew.client import Space, StreamGap

STEP: Final = 10_000
PAYLOAD: Final = b"." * 100
SLOW_SECONDS: Final = 0.001


def tell(**what: Any) -> None:
    """Print a report for the parent process."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def receive(space: Space, count: int) -> None:
    """Read all frames, as a program does."""
    frames = space.frames()
    tell(ready=True)
    await anext(frames)
    read, started, cpu = 1, time.monotonic(), time.process_time()
    async for frame in frames:
        read += 1
        if not read % STEP:
            tell(read=read, size=len(frame.data))
        if read + frames.missed == count:
            break
    tell(read=read, missed=frames.missed, seconds=time.monotonic() - started, cpu=time.process_time() - cpu)


async def send(space: Space, count: int) -> None:
    """Write frames for another participant."""
    await space.wait_until(lambda view: "p0" in view.participants)
    stream = await space.open_stream(target=["p0"])
    tell(ready=True)
    started, cpu = time.monotonic(), time.process_time()
    for _ in range(count):
        await stream.send(PAYLOAD)
    used = time.process_time() - cpu
    await space.chat("done")
    tell(sent=count, seconds=time.monotonic() - started, cpu=used)


async def slow(space: Space, count: int) -> None:
    """Read much more slowly than frames arrive. All other frames must be reported as gaps."""
    lost = {"queue": 0, "gateway": 0, "connection": 0}

    def on_gap(gap: StreamGap) -> None:
        lost[gap.cause] += gap.frames

    frames = space.frames(on_gap=on_gap)
    tell(ready=True)
    read, steps, step, memory = 0, 0, max(STEP, count // 200), []
    async for _ in frames:
        read += 1
        await asyncio.sleep(SLOW_SECONDS)
        carried = next(iter(space.view.streams.values())).frames
        if carried // step > steps:
            steps = carried // step
            memory.append(resident_bytes(os.getpid()))
            tell(read=carried)
        if read + sum(lost.values()) == count:
            break
    tell(read=read, lost=lost, memory=memory)


WORK: Final[dict[str, Callable[[Space, int], Coroutine[Any, Any, None]]]] = {
    "receive": receive,
    "send": send,
    "slow": slow,
}


async def main(work: str, url: str, token: str, count: int) -> None:
    """Join and run the task."""
    async with mew.connect(url, space="bench", token=token) as space:
        await WORK[work](space, count)


if __name__ == "__main__":
    _, work, url, token, count, loop = sys.argv
    runner = uvloop.run if loop == "uvloop" else asyncio.run
    runner(main(work, url, token, int(count)))
