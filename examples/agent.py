"""An agent that answers whoever speaks to it: `MEW_URL=ws://localhost:8080 MEW_TOKEN=… python examples/agent.py`."""

import asyncio
import os

import mew


async def main() -> None:
    async with mew.connect(os.environ["MEW_URL"], token=os.environ["MEW_TOKEN"]) as space:
        async for chat in space.envelopes("chat", to=space.me):
            await space.chat(f"You said: {chat.payload['text']}", to=chat.sender)


asyncio.run(main())
