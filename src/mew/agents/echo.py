"""The echo: it says after everybody what they said.

It answers chat and nothing else.
"""

from typing import Final

from mew.agents.replies import missed, say
from mew.client import Participant, Space, Subscription
from mew.client.mcp.server import Service
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

BEGINNING: Final = "Echo: "


async def echo(space: Space) -> None:
    """Echo every chat of another participant, until the space ends or somebody shuts us down."""
    participant = Participant(instructions="Say something, and it comes back.")
    chats = space.envelopes(kinds.CHAT, on_missed=missed)
    service = Service(space, participant, controls=participant)
    await service.run(_answer_all(space, participant, chats))


async def _answer_all(space: Space, participant: Participant, chats: Subscription[Envelope]) -> None:
    async for chat in chats:
        if chat.sender != space.me and not _is_echo(chat):
            await participant.resumed()
            await say(space, f"{BEGINNING}{chat.payload['text']}", chat)


def _is_echo(chat: Envelope) -> bool:
    """Whether another echo says it: two of them would never come to an end."""
    return bool(chat.correlation_id) and str(chat.payload["text"]).startswith(BEGINNING)
