"""A cat that five processes share: sixty positions a second, in hands that change.

    python examples/movement.py server       opens the stream, lends it to player1, and gives it away later
    python examples/movement.py player1      is allowed to write, steers, and drops out without a goodbye
    python examples/movement.py player2      tries to move a cat that is not its own
    python examples/movement.py ai-agent     is given the stream, goes on, and ends it
    python examples/movement.py spectator    comes late, sees who may write what, reads a little, and leaves

Each in a process of its own, in any order: they wait for each other. `--malformed 5` has a writer send five frames that
are no position, and `--lose 20` has the agent skip twenty numbers, as if frames had been lost: the tables of
`mew pipeline run` show both.
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
NO_POSITIONS = (b"meow", b'{"x": 1.0}', b'{"x": "left", "y": 0.5}', b"\xff\xfe", b"[1.0, 2.0]")
"""What `--malformed` sends: not JSON, a member too few, a text for a number, not even text, the wrong shape."""


class Position(msgspec.Struct):
    """Where the cat is. The type is the stream's format: everybody is told its JSON Schema."""

    x: float
    y: float


def now() -> Position:
    """The cat walks in circles, by the clock: whoever takes it over finds it where the last one left it."""
    return Position(x=round(5 * math.cos(time.time()), 3), y=round(5 * math.sin(time.time()), 3))


async def ticks(seconds: float = math.inf) -> AsyncIterator[int]:
    """Sixty times a second, for so long."""
    loop = asyncio.get_running_loop()
    began, tick = loop.time(), 0
    while tick < seconds * HZ:
        yield tick
        tick += 1
        await asyncio.sleep(began + tick / HZ - loop.time())


def cat_in(view: SpaceView) -> str | None:
    """The stream that the cat's positions flow on; the last, where the game was played before."""
    live = [each for each in view.streams.values() if each.status == "live" and each.owner_connected]
    return next((each.stream_id for each in reversed(live) if each.entry.get("intent") == "cat"), None)


async def find_cat(space: Space) -> Stream:
    """Wait until there is a cat. Who comes late knows it from the welcome, without asking."""
    stream_id = cat_in(await space.wait_until(lambda view: cat_in(view) is not None))
    assert stream_id is not None
    return space.stream(stream_id)


async def walk_until(space: Space, cat: Stream, came: Callable[[SpaceView], bool]) -> None:
    """Write positions until the space is as it should be."""
    async for _ in ticks():
        if came(space.view):
            return
        await cat.send(now())


async def serve(options: Namespace) -> None:
    """The character server: it owns the cat, until it gives it away."""
    async with mew.connect() as space:
        cat = await space.announce_stream([Position], desired_id="cat", intent="cat", metadata={"hz": HZ})
        await cat.start()
        print(f"{cat.stream_id} is live, {HZ} positions a second; the first player may have it")
        await walk_until(space, cat, lambda view: "player1" in view.participants)
        granted = await cat.grant("player1", reason="takes the controls")
        print(f"{cat.stream_id} may be written by {' and '.join(granted.payload['authorized_writers'])}")
        await space.wait_until(lambda view: "player1" not in view.participants)
        print("player1 dropped out; until somebody else comes, the cat walks by itself")
        await walk_until(space, cat, lambda view: "ai-agent" in view.participants)
        handed = await cat.transfer("ai-agent", reason="player1 dropped out")
        print(f"{cat.stream_id} went from {handed.payload['previous_owner']} to {handed.payload['new_owner']}")
        await space.wait_until(lambda view: cat.stream_id not in view.streams)
        print(f"{cat.stream_id} has ended")


def malformed_at(options: Namespace) -> dict[int, bytes]:
    """At which ticks something goes out that is no position: `--malformed`, spread over the whole time."""
    all_ticks, count = max(1, round(options.seconds * HZ)), options.malformed
    return {(n * all_ticks) // count: NO_POSITIONS[n % len(NO_POSITIONS)] for n in range(count)}


async def play(options: Namespace) -> None:
    """A player: it writes as long as it may, and is gone from one moment to the next."""
    async with mew.connect(reconnect=False) as space:
        cat = await find_cat(space)
        await space.wait_until(lambda view: view.may_write(cat.stream_id))
        print(f"player1 may write to {cat.stream_id}, and steers")
        malformed = malformed_at(options)
        async for tick in ticks(options.seconds):
            await cat.send(malformed.get(tick, now()))  # a frame: no number, no answer, no cost
        connection = space.connection
        assert connection is not None
        await connection.ping()  # the gateway has all of it
        print("player1 drops out" + (f": {len(malformed)} frames were no positions" if malformed else ""))
        connection.abort("as if somebody had pulled the plug")


async def intrude(options: Namespace) -> None:
    """Another player: nobody lent it the cat, so the gateway takes nothing from it."""
    async with mew.connect() as space:
        events, cat = space.events(), await find_cat(space)
        assert cat.view is not None
        assert space.connection is not None
        print(f"{cat.stream_id} may be written by {' and '.join(cat.view.writers)}; player2 tries all the same")
        for attempt in (cat.send_data(Position(99, 99)), cat.grant(space.participant_id)):
            try:
                await attempt
            except ProtocolError as refused:
                print(f"player2 is refused: {refused}")
        # `cat.send` would not even try: the SDK knows who may write. These are the bytes that it would send.
        space.connection.send_raw(f'#{cat.stream_id}#{{"x":99,"y":99}}'.encode())
        async for event in events:
            if isinstance(event, MessageRefused):
                print(f"player2 is refused: {event.error}")
                return


async def take_over(options: Namespace) -> None:
    """The AI agent: it is given the cat, and numbers what it writes, so that what is lost can be counted."""
    async with mew.connect() as space:
        cat = await find_cat(space)
        await space.wait_until(lambda _: cat.view is not None and cat.view.owner == space.participant_id)
        print(f"ai-agent owns {cat.stream_id}, and steers")
        malformed, halfway = malformed_at(options), round(options.seconds * HZ) // 2
        async for tick in ticks(options.seconds):
            if tick == halfway and options.lose:
                space.sequences[cat.stream_id] = space.sequences.get(cat.stream_id, -1) + options.lose
                print(f"ai-agent loses {options.lose} positions")
            if tick in malformed:
                await cat.send(malformed[tick])
            await cat.send_data(now())  # an envelope: numbered, and answered
        await cat.complete()
        print("ai-agent is done" + (f": {len(malformed)} frames were no positions" if malformed else ""))


async def watch(options: Namespace) -> None:
    """A spectator: what it needs to know is in the welcome; then it reads what flows."""
    async with mew.connect() as space:
        cat = await find_cat(space)
        assert cat.view is not None
        forms = ", ".join(each["id"] for each in cat.view.formats)
        print(f"{cat.stream_id} is {cat.view.owner}'s and may be written by {' and '.join(cat.view.writers)};", end=" ")
        print(f"{cat.view.frames} frames of {forms} so far")
        frames, last = cat.frames(Position), None
        seen: Counter[str] = Counter()
        numbers: dict[str | None, int] = {}
        async for frame in frames:
            seen["frames"] += 1
            if frame.sequence is not None:
                seen["lost"] += frame.sequence - numbers.get(frame.sender, frame.sequence - 1) - 1
                numbers[frame.sender] = frame.sequence
            try:
                last = frame.value
            except errors.DecodeError:
                seen["malformed"] += 1
            if seen["frames"] == options.frames:
                break
        print(f"the cat was last seen at {last}")
        print(f"{seen['frames']} frames read, {seen['malformed']} of them no positions;", end=" ")
        print(f"{seen['lost']} lost on the way in, {frames.missed} on the way out")


ROLES = {
    "server": ("character-server", serve),
    "player1": ("player1", play),
    "player2": ("player2", intrude),
    "ai-agent": ("ai-agent", take_over),
    "spectator": ("spectator", watch),
}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--seconds", type=float, default=4.0, help="how long a player and the agent steer")
    arguments.add_argument("--malformed", type=int, default=0, help="so many frames of theirs are no positions")
    arguments.add_argument("--lose", type=int, default=0, help="so many positions the agent loses")
    arguments.add_argument("--frames", type=int, default=120, help="so many frames the spectator reads")
    arguments.play()
