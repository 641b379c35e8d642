"""An agent that answers each message: `MEW_GATEWAY=ws://localhost:8080 MEW_TOKEN=… python examples/agent.py`."""

import asyncio
import contextlib

import mew


async def main() -> None:
    async with mew.connect() as space:
        async for chat in space.envelopes("chat", to=space.participant_id):
            await space.chat(f"You said: {chat.payload['text']}", to=chat.sender)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
