"""What an answer over HTTP takes, and who pays for it: the holder of the token that asks.

Reads tokens by the lobby, and knows no endpoint.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from mew.gateway.gateway import Gateway
from mew.protocol import JoinRequest, Space
from mew.protocol.work import BYTES_PER_UNIT, MESSAGE_UNITS


class Bill(msgspec.Struct):
    """What an answer takes."""

    work: int = 0
    """Units, besides what every request takes."""
    size: int = 0
    """Bytes of the answer."""
    received: int = 0
    """Bytes of what was asked."""


@asynccontextmanager
async def paid(gateway: Gateway, space: Space, asked: JoinRequest) -> AsyncIterator[Bill]:
    """For what does not wait: refused while its asker owes something, and done when it may have its turn."""
    hub, bill = gateway.hubs[space.settings.space_id], Bill()
    payer = gateway.lobby.payer(asked)
    await hub.turns.share(payer)
    space.budgets.require(payer, space.settings.limits, hub.clock())
    try:
        with hub.turns.spending(payer):
            yield bill
    finally:
        work = MESSAGE_UNITS + bill.work + bill.size // BYTES_PER_UNIT
        space.charge(payer, hub.clock(), work=work, size=bill.size + bill.received)
