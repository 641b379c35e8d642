"""A game: a player writes where its cat is, sixty times a second, and a spectator sees it move.
`MEW_GATEWAY=ws://localhost:8080 MEW_TOKEN_PLAYER=… MEW_TOKEN_SPECTATOR=… python examples/positions.py`
"""

import asyncio
import os

import msgspec

from mew.client import Space, connect


class Position(msgspec.Struct):
    x: float
    y: float


async def play(space: Space) -> None:
    cat = await space.announce_stream([Position], desired_id="cat")
    await cat.start()
    for step in range(30):
        await cat.send(Position(x=step / 10, y=0.5))
        await asyncio.sleep(1 / 60)


async def watch(space: Space) -> None:
    async for frame in space.frames(format=Position, on_gap=lambda gap: print(f"missed {gap.frames} positions")):
        print(f"{frame.stream_id} is at {frame.value}")


async def main() -> None:
    url, tokens = os.environ["MEW_GATEWAY"], [os.environ[f"MEW_TOKEN_{name}"] for name in ("PLAYER", "SPECTATOR")]
    async with connect(url, token=tokens[0]) as player, connect(url, token=tokens[1]) as spectator:
        watching = asyncio.create_task(watch(spectator))
        await play(player)
        watching.cancel()


asyncio.run(main())
