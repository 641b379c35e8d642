"""A server of tools: `MEW_URL=ws://localhost:8080 MEW_TOKEN=… python examples/tool_server.py`."""

import asyncio
import os

import mew

participant = mew.Participant()


@participant.tool
def add(a: float, b: float) -> float:
    """The sum of two numbers."""
    return a + b


asyncio.run(participant.run_forever(os.environ["MEW_URL"], token=os.environ["MEW_TOKEN"]))
