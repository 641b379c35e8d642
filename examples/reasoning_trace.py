"""An agent thinks aloud: its chain of thought is a stream of JSON lines, and its steps are a reasoning context.
`MEW_GATEWAY=ws://localhost:8080 MEW_TOKEN_AGENT=… MEW_TOKEN_READER=… python examples/reasoning_trace.py`
"""

import asyncio
import os

import msgspec

from mew.client import Space, connect


class Step(msgspec.Struct):
    number: int
    thought: str


async def think(space: Space) -> None:
    trace = await space.open_stream(description="Chain-of-thought reasoning", formats=[Step], format="jsonl")
    async with space.reasoning("How much is 12 × 12?") as reasoning:
        for number, thought in enumerate(("12 × 10 is 120", "12 × 2 is 24", "120 + 24 is 144")):
            await trace.send(Step(number, thought))
            await reasoning.say(thought)
        await reasoning.conclude("It is 144.")
    await trace.complete()


async def main() -> None:
    url, tokens = os.environ["MEW_GATEWAY"], [os.environ[f"MEW_TOKEN_{name}"] for name in ("AGENT", "READER")]
    async with connect(url, token=tokens[0]) as agent, connect(url, token=tokens[1]) as reader:
        steps, said = reader.frames(format=Step), reader.envelopes("reasoning/*")
        await think(agent)
        print(*[(await anext(steps)).value for _ in range(3)], sep="\n")
        print(*[(await anext(said)).payload["message"] for _ in range(5)], sep="\n")


asyncio.run(main())
