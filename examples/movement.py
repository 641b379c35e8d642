"""A stream of positions, sixty a second, that several processes write one after the other.

    python examples/movement.py server       opens the stream, lets player1 write, and transfers it later
    python examples/movement.py player1      receives write access, steers the cat, and disconnects without a close
    python examples/movement.py player2      tries to write without permission
    python examples/movement.py ai-agent     becomes the owner of the stream, writes to it, and ends it
    python examples/movement.py spectator    joins late, sees who may write, and reads some frames

Start each role in its own process, in any order: they wait for each other. With `--malformed 5` a writer sends five
frames that are not positions. With `--lose 20` the agent skips twenty sequence numbers, as if frames had been lost. The
tables of `mew pipeline run` show both.
"""

import asyncio
import math
import time
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec

import mew
from mew.client import MessageRefused, ProtocolError, Space, Stream, errors
from mew.view import SpaceView
from roles import Arguments

HZ = 60
MALFORMED = (b"meow", b'{"x": 1.0}', b'{"x": "left", "y": 0.5}', b"\xff\xfe", b"[1.0, 2.0]")
"""The frames of `--malformed`: not JSON, a missing field, text instead of a number, not UTF-8, a list."""


class Position(msgspec.Struct):
    """The position of the cat. The type is the format of the stream: each participant receives its JSON Schema."""

    x: float
    y: float


def position_now() -> Position:
    """Return a point on a circle. It depends on the clock only, so the next writer continues where the last stopped."""
    return Position(x=round(5 * math.cos(time.time()), 3), y=round(5 * math.sin(time.time()), 3))


async def ticks(seconds: float = math.inf) -> AsyncIterator[int]:
    """Yield sixty times a second."""
    loop = asyncio.get_running_loop()
    began, tick = loop.time(), 0
    while tick < seconds * HZ:
        yield tick
        tick += 1
        await asyncio.sleep(began + tick / HZ - loop.time())


def cat_in(view: SpaceView) -> str | None:
    """Return the id of the cat's stream; of the newest one, if an earlier game left another."""
    live = [stream for stream in view.streams.values() if stream.status == "live" and stream.owner_connected]
    return next((stream.stream_id for stream in reversed(live) if stream.entry.get("intent") == "cat"), None)


async def find_cat(space: Space) -> Stream:
    """Wait until the stream exists. A participant that joins late knows it from its welcome."""
    stream_id = cat_in(await space.wait_until(lambda view: cat_in(view) is not None))
    assert stream_id is not None
    return space.stream(stream_id)


async def walk_until(space: Space, cat: Stream, condition: Callable[[SpaceView], bool]) -> None:
    """Write positions until the view meets the condition."""
    async for _ in ticks():
        if condition(space.view):
            return
        await cat.send(position_now())


async def serve(options: Namespace) -> None:
    """The server owns the stream until it transfers it."""
    async with mew.connect() as space:
        cat = await space.announce_stream([Position], desired_id="cat", intent="cat", metadata={"hz": HZ})
        await cat.start()
        print(f"{cat.stream_id} is live, {HZ} positions a second; waiting for player1")
        await walk_until(space, cat, lambda view: "player1" in view.participants)
        granted = await cat.grant("player1", reason="takes the controls")
        print(f"{cat.stream_id} may be written by {' and '.join(granted.payload['authorized_writers'])}")
        await space.wait_until(lambda view: "player1" not in view.participants)
        print("player1 is disconnected; the server writes until ai-agent joins")
        await walk_until(space, cat, lambda view: "ai-agent" in view.participants)
        handed = await cat.transfer("ai-agent", reason="player1 is disconnected")
        print(
            f"{cat.stream_id} was transferred from {handed.payload['previous_owner']} to {handed.payload['new_owner']}"
        )
        await space.wait_until(lambda view: cat.stream_id not in view.streams)
        print(f"{cat.stream_id} has ended")


def malformed_at(options: Namespace) -> dict[int, bytes]:
    """Return the malformed frame for each tick that sends one, spread over the whole time."""
    all_ticks, count = max(1, round(options.seconds * HZ)), options.malformed
    return {(n * all_ticks) // count: MALFORMED[n % len(MALFORMED)] for n in range(count)}


async def play(options: Namespace) -> None:
    """A player writes for some seconds, and then loses its connection."""
    async with mew.connect(reconnect=False) as space:
        cat = await find_cat(space)
        await space.wait_until(lambda view: view.may_write(cat.stream_id))
        print(f"player1 may write to {cat.stream_id}")
        malformed = malformed_at(options)
        async for tick in ticks(options.seconds):
            await cat.send(malformed.get(tick, position_now()))  # a frame: no number and no answer
        await space.flush()  # the gateway has handled all frames
        print("player1 disconnects" + (f"; {len(malformed)} frames were malformed" if malformed else ""))
        assert space.connection is not None
        space.connection.abort("the network failed")


async def intrude(options: Namespace) -> None:
    """Another player has no write access, so the gateway rejects everything that it sends to the stream."""
    async with mew.connect() as space:
        events, cat = space.events(), await find_cat(space)
        assert cat.view is not None
        assert space.connection is not None
        print(f"{cat.stream_id} may be written by {' and '.join(cat.view.writers)}; player2 tries to write")
        for attempt in (cat.send_data(Position(99, 99)), cat.grant(space.participant_id)):
            try:
                await attempt
            except ProtocolError as refused:
                print(f"player2 is rejected: {refused}")
        # `cat.send` raises without sending, because the SDK knows the writers. So this sends the bytes of a frame.
        space.connection.send_raw(f'#{cat.stream_id}#{{"x":99,"y":99}}'.encode())
        async for event in events:
            if isinstance(event, MessageRefused):
                print(f"player2 is rejected: {event.error}")
                return


async def take_over(options: Namespace) -> None:
    """The AI agent becomes the owner. It writes numbered envelopes, so that a reader can count the lost ones."""
    async with mew.connect() as space:
        cat = await find_cat(space)
        await space.wait_until(lambda _: cat.view is not None and cat.view.owner == space.participant_id)
        print(f"ai-agent owns {cat.stream_id}")
        malformed, halfway = malformed_at(options), round(options.seconds * HZ) // 2
        async for tick in ticks(options.seconds):
            if tick == halfway and options.lose:
                space.sequences[cat.stream_id] = space.sequences.get(cat.stream_id, -1) + options.lose
                print(f"ai-agent skips {options.lose} positions")
            if tick in malformed:
                await cat.send(malformed[tick])
            await cat.send_data(position_now())  # an envelope: numbered and confirmed
        await cat.complete()
        print("ai-agent ended the stream" + (f"; {len(malformed)} frames were malformed" if malformed else ""))


async def watch(options: Namespace) -> None:
    """A spectator learns from its welcome who owns the stream, and then reads frames."""
    async with mew.connect() as space:
        cat = await find_cat(space)
        assert cat.view is not None
        formats = ", ".join(form["id"] for form in cat.view.formats)
        print(f"{cat.stream_id} is owned by {cat.view.owner}, written by {' and '.join(cat.view.writers)};", end=" ")
        print(f"{cat.view.frames} frames of {formats} so far")
        frames, last = cat.frames(Position), None
        counts: Counter[str] = Counter()
        numbers: dict[str | None, int] = {}
        async for frame in frames:
            counts["frames"] += 1
            if frame.sequence is not None:
                counts["lost"] += frame.sequence - numbers.get(frame.sender, frame.sequence - 1) - 1
                numbers[frame.sender] = frame.sequence
            try:
                last = frame.value
            except errors.DecodeError:
                counts["malformed"] += 1
            if counts["frames"] == options.frames:
                break
        print(f"the last position is {last}")
        print(f"{counts['frames']} frames read, {counts['malformed']} of them malformed;", end=" ")
        print(f"{counts['lost']} lost before the gateway, {frames.missed} after it")


ROLES = {
    "server": ("character-server", serve),
    "player1": ("player1", play),
    "player2": ("player2", intrude),
    "ai-agent": ("ai-agent", take_over),
    "spectator": ("spectator", watch),
}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--seconds", type=float, default=4.0, help="how many seconds a player and the agent write")
    arguments.add_argument("--malformed", type=int, default=0, help="number of malformed frames that they send")
    arguments.add_argument("--lose", type=int, default=0, help="number of positions that the agent skips")
    arguments.add_argument("--frames", type=int, default=120, help="number of frames that the spectator reads")
    arguments.play()
