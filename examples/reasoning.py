"""An agent that publishes its reasoning: each step as JSON on a stream, and as envelopes with one context.

python examples/reasoning.py agent     answers a question, step by step
python examples/reasoning.py reader    prints the steps and the conclusion
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
    """The agent sends its steps to a stream for programs, and its thoughts as envelopes for all participants."""
    async with mew.connect() as space:
        followers = space.envelopes("chat/acknowledge", to=space.participant_id)
        trace = await space.announce_stream([Step], desired_id="trace", on_owner_disconnect="close")
        print(f"{trace.stream_id} is announced; waiting for a reader")
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
    """Return the streams whose format is a step."""
    return [stream for stream in view.streams.values() if "Step" in [form["id"] for form in stream.formats]]


async def follow(options: Namespace) -> None:
    """The reader prints the steps as they arrive, and then the question and the conclusion."""
    async with mew.connect() as space:
        envelopes = space.envelopes("reasoning/*")
        view = await space.wait_until(lambda view: bool(traces_in(view)))
        trace = traces_in(view)[-1]
        steps = space.frames(trace.stream_id, format=Step)
        await space.send("chat/acknowledge", to=trace.owner)  # subscribed: the agent may start
        async for step in steps:
            if step.value is not None:
                print(f"{trace.owner}, step {step.value.number}: {step.value.thought}")
        async for envelope in envelopes:
            if envelope.kind in {"reasoning/start", "reasoning/conclusion"}:
                print(f"{envelope.kind}: {envelope.payload['message']}")
            if envelope.kind == "reasoning/conclusion":
                return


ROLES = {"agent": ("thinker", think), "reader": ("follower", follow)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--rate", type=float, default=3.0, help="thoughts per second")
    arguments.play()
