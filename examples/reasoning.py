"""An agent that thinks aloud: each step is a line of JSON on a stream, and all that it says belongs to one reasoning.

python examples/reasoning.py agent     thinks about a question, step by step
python examples/reasoning.py reader    follows, and reads what it came to
"""

import asyncio
from argparse import Namespace

import msgspec

import mew
from mew.view import SpaceView, StreamView
from roles import Arguments

QUESTION = "How much is 12 × 12?"
THOUGHTS = ("12 × 10 is 120", "12 × 2 is 24", "120 + 24 is 144")
CONCLUSION = "It is 144."


class Step(msgspec.Struct):
    """A step of a chain of thought."""

    number: int
    thought: str


async def think(options: Namespace) -> None:
    """The agent: steps for programs on a stream, thoughts for everybody as envelopes with one context."""
    async with mew.connect() as space:
        followers = space.envelopes("chat/acknowledge", to=space.participant_id)
        trace = await space.announce_stream([Step], desired_id="trace", on_owner_disconnect="close")
        print(f"{trace.stream_id} is announced; waiting for somebody who follows")
        await anext(followers)
        await trace.start()
        async with space.reasoning(QUESTION) as reasoning:
            for number, thought in enumerate(THOUGHTS, start=1):
                print(f"thinking: {thought}")
                await trace.send(Step(number, thought))
                await reasoning.say(thought)
                await asyncio.sleep(1 / options.rate)
            await reasoning.conclude(CONCLUSION)
        await trace.complete()
        print(f"concluded: {CONCLUSION}")


def traces_in(view: SpaceView) -> list[StreamView]:
    """Streams whose format is a step."""
    return [each for each in view.streams.values() if "Step" in [form["id"] for form in each.formats]]


async def follow(options: Namespace) -> None:
    """The reader: the steps as they come, and in the end the reasoning that they belong to."""
    async with mew.connect() as space:
        said = space.envelopes("reasoning/*")
        view = await space.wait_until(lambda view: bool(traces_in(view)))
        trace = traces_in(view)[-1]
        steps = space.frames(trace.stream_id, format=Step)
        await space.send("chat/acknowledge", to=trace.owner)  # we read from here on: it may begin
        async for step in steps:
            if step.value is not None:
                print(f"{trace.owner}, step {step.value.number}: {step.value.thought}")
        async for each in said:
            if each.kind in {"reasoning/start", "reasoning/conclusion"}:
                print(f"{each.kind}: {each.payload['message']}")
            if each.kind == "reasoning/conclusion":
                return


ROLES = {"agent": ("thinker", think), "reader": ("follower", follow)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=3.0, help="so many thoughts a second the agent has")
    arguments.play()
