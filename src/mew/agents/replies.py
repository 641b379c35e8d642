"""Sends an agent's replies: a chat that refers to the envelope it answers, delivered at most once.

Sending waits while there is no connection. A failed reply is only logged, and the agent continues.
"""

import asyncio
import logging
from typing import Final

from mew.client import ConnectionLost, ProtocolError, Space
from mew.client.errors import RateLimited
from mew.client.sender import OutgoingEnvelope
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

_RETRY_SECONDS: Final = 0.5
"""Seconds to wait before a rate-limited chat is sent again."""

agent_log = logging.getLogger("mew.agents")


async def reply(space: Space, text: str, about: Envelope) -> None:
    """Answer an envelope by chat. The chat is sent again only if it was certainly not accepted."""
    draft = OutgoingEnvelope(kind=kinds.CHAT, payload={"text": text}, to=about.sender, correlation_id=about.id)
    while True:
        try:
            await space.post(draft)
            return
        except RateLimited:
            await asyncio.sleep(_RETRY_SECONDS)
        except ProtocolError as refused:
            agent_log.warning("the answer to %s was rejected: %s", about.id, refused)
            return
        except ConnectionLost as lost:
            if lost.unconfirmed:
                agent_log.warning("the answer to %s may be lost: %s", about.id, lost)
                return
            await space.connected()


def log_missed(count: int) -> None:
    """Log that envelopes were lost because they arrived faster than they were answered."""
    agent_log.warning("%d messages were lost: they arrived faster than they were answered", count)
