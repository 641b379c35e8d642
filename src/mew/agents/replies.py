"""What an agent says to somebody: a chat that names what it answers, said once.

It waits while there is no connection. What becomes of it is not its affair: the agent goes on.
"""

import asyncio
import logging
from typing import Final

from mew.client import ConnectionLost, Refused, Space
from mew.client.errors import RateLimited
from mew.client.sender import Draft
from mew.protocol import kinds
from mew.protocol.envelope import Envelope

AGAIN: Final = 0.5
"""Seconds after which a chat that came too soon is said again."""

log = logging.getLogger("mew.agents")


async def say(space: Space, text: str, about: Envelope) -> None:
    """Answer an envelope by chat; what was surely not taken is said again, as soon as it can be."""
    draft = Draft(kind=kinds.CHAT, payload={"text": text}, to=about.sender, correlation_id=about.id)
    while True:
        try:
            await space.post(draft)
            return
        except RateLimited:
            await asyncio.sleep(AGAIN)
        except Refused as refused:
            log.warning("the answer to %s was refused: %s", about.id, refused)
            return
        except ConnectionLost as lost:
            if lost.unconfirmed:
                log.warning("the answer to %s may be lost: %s", about.id, lost)
                return
            await space.connected()


def missed(count: int) -> None:
    """Envelopes came faster than they could be answered."""
    log.warning("%d came faster than they were answered, and were lost", count)
