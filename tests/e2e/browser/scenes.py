"""A space with something in it: what the pictures of the documentation show, and several tests look at."""

import asyncio
import math
from typing import Any, Final

from mew.client import Space
from mew.client.errors import MewError
from tests.e2e.browser.harness import Cast

POSITION: Final[dict[str, Any]] = {
    "id": "position",
    "description": "Where a character is, in metres",
    "mime_type": "application/json",
    "schema": {
        "type": "object",
        "properties": {
            "x": {"type": "number", "minimum": -50, "maximum": 50, "description": "east"},
            "y": {"type": "number", "minimum": -50, "maximum": 50, "description": "north"},
            "speed": {"type": "number", "minimum": 0},
            "mood": {"enum": ["calm", "curious", "hungry"]},
            "holding": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x", "y"],
    },
}
PROPOSAL: Final = {
    "method": "tools/call",
    "params": {"name": "delete_file", "arguments": {"path": "notes/old.md", "because": "it is empty"}},
}


class Scene:
    """Alice's and Carol's streams, Bob's wishes."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.alice, self.bob, self.carol = (cast.join(who) for who in ("alice", "bob", "carol"))

    def play(self) -> None:
        self.cast.do(self._play())

    async def _play(self) -> None:
        alice, bob, carol = self.alice, self.bob, self.carol
        await alice.chat("Good morning. The cat is yours to steer, Carol, as soon as it has eaten.")
        self.cat = await alice.announce_stream([POSITION], description="The cat, ten times a second", desired_id="cat")
        self.writer = self.cat
        await self.cat.start()
        self.talk = await carol.open_stream(description="What is said in the room", content_type="text/plain")
        self.camera = await carol.open_stream(description="Thumbnails of the camera", content_type="image/jpeg")
        await carol.announce_stream([{"id": "depth"}], description="A depth map, not started yet")
        await self.talks(bob, carol)
        await bob.send("mcp/proposal", PROPOSAL, to="carol")
        await bob.send("mcp/proposal", {"method": "tools/call", "params": {"name": "feed", "arguments": {"grams": 40}}})
        await self._refused(bob)
        await self.cat.grant("carol", "to steer")
        await self.cat.grant("bob", "to help")
        for space in (bob, carol):
            await space.wait_until(lambda view: view.may_write("cat"))

    async def talks(self, bob: Space, carol: Space) -> None:
        request = await bob.send("mcp/request", {"method": "tools/list"}, to="carol")
        tools = [{"name": "delete_file"}, {"name": "feed"}]
        await carol.send("mcp/response", {"result": {"tools": tools}}, to="bob", correlation_id=request.id)
        begun = await carol.send("reasoning/start", {"message": "Is the cat hungry?"})
        thought = {"message": "It looks at the bowl."}
        await carol.send("reasoning/thought", thought, correlation_id=begun.id)
        await carol.send("reasoning/conclusion", {"message": "Yes."}, correlation_id=begun.id)

    async def hand_over(self) -> None:
        """Carol, who may write already, continues where Alice stops, and owns the cat from then on."""
        self.writer = self.carol.stream("cat")
        await self.cat.transfer("carol", "it has eaten")

    async def _refused(self, bob: Space) -> None:
        """Bob may neither call tools nor write without write access."""
        try:
            await bob.send("mcp/request", {"method": "tools/call", "params": {"name": "feed"}}, to="carol")
        except MewError:
            return
        raise AssertionError("Bob was let through")

    async def chatter(self) -> None:
        """A conversation that lasts for a while, until cancelled."""
        while True:
            await self.talks(self.bob, self.carol)
            await asyncio.sleep(1.1)
            await self.alice.chat("It sits by the window now.", to="carol")
            await asyncio.sleep(0.8)
            await self._refused(self.bob)
            await asyncio.sleep(1.3)
            await self.carol.chat("I see it.", to="alice")
            await asyncio.sleep(0.9)

    async def run(self, *, per_second: int = 10) -> None:
        """Frames, until cancelled."""
        step = 0
        while True:
            at = step / per_second
            position = {
                "x": round(20 * math.sin(at / 3), 3),
                "y": round(12 * math.cos(at / 2), 3),
                "speed": round(abs(3 * math.sin(at)), 3),
                "mood": ("calm", "curious", "hungry")[int(at / 5) % 3],
                "holding": ["a ball"],
            }
            await self.writer.send(position)
            if step % 4 == 0:
                await self.talk.send(f"{step // 4:>4}: a sentence about the cat\n")
            if step % 3 == 0:
                await self.camera.send(bytes((step + index * 7) % 256 for index in range(300)))
            step += 1
            await asyncio.sleep(1 / per_second)
