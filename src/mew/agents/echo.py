"""The echo: repeats the chat messages of other participants.

It answers only chat messages.
"""

from typing import Final

from mew.agents.replies import log_missed, reply
from mew.client import Participant, Space, Subscription
from mew.client.mcp.server import McpService
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

ECHO_PREFIX: Final = "Echo: "


async def echo(space: Space) -> None:
    """Echo every chat of other participants until the space ends or the agent is shut down."""
    participant = Participant(instructions="Send a chat, and it is sent back.")
    chats = space.envelopes(kinds.CHAT, on_overflow=log_missed)
    service = McpService(space, participant, controls=participant)
    await service.run(_answer_all(space, participant, chats))


async def _answer_all(space: Space, participant: Participant, chats: Subscription[Envelope]) -> None:
    async for chat in chats:
        if chat.sender != space.participant_id and not _is_echo(chat):
            await participant.wait_until_resumed()
            await reply(space, f"{ECHO_PREFIX}{chat.payload['text']}", chat)


def _is_echo(chat: Envelope) -> bool:
    """Return whether another echo sent this chat: two echoes would answer each other endlessly."""
    return bool(chat.correlation_id) and str(chat.payload["text"]).startswith(ECHO_PREFIX)
