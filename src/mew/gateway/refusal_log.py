"""The lines of the operator's log that strangers cause: few, however many are refused, and with exact counts.

Decides nothing about a refusal, and knows nothing of the journal.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from mew.gateway.connections import OpenConnection
from mew.gateway.operator_log import log
from mew.protocol.administration import RefusedConnections

LOOK_SECONDS: Final = 1.0
SOURCES: Final = 64
"""Pairs of a source and a reason that are kept apart; the journal keeps more of them."""


class RefusalLog:
    """One line for the first refusal of a source with a reason, then one with a count every ten seconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` tells microseconds."""
        self._clock = clock
        self._counted = RefusedConnections(SOURCES)
        self._looking: asyncio.TimerHandle | None = None

    def write(self, event: str, connection: OpenConnection | None, *, error: str | None = None, **details: Any) -> None:
        """Log this, or count it; at the level `debug` each has a line."""
        peer, source = ("", "") if connection is None else (connection.peer, connection.source)
        details |= {"peer": peer} if error is None else {"error": error, "peer": peer}
        what = event if error is None else f"{event}: {error}"
        if self._counted.admit(source, what, self._clock()):
            log.info(event, **details)
        else:
            log.debug(event, **details)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Log what is due; a gateway that refuses nothing has no timer."""
        self.write_counted()
        again = bool(self._counted)
        self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look) if again else None

    def write_counted(self, *, early: bool = False) -> None:
        """Log the counts that are due; `early`: all of them."""
        for source, what, count in self._counted.due(self._clock(), early=early):
            log.info("repeated", what=what, peer=source, count=count)

    def close(self) -> None:
        """Log what is counted, because the gateway ends here."""
        if self._looking is not None:
            self._looking.cancel()
        self.write_counted(early=True)
