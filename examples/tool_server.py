"""A tool server: `MEW_GATEWAY=ws://localhost:8080 MEW_TOKEN=… python examples/tool_server.py`."""

import asyncio

import mew


def add(a: float, b: float) -> float:
    """The sum of two numbers."""
    return a + b


participant = mew.Participant()
participant.tool(add)
asyncio.run(participant.run_forever())
