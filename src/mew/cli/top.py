"""`mew top`: who sends how much, and which streams flow, as it happens.

Must not take over anybody's socket, and must not count anything itself.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from mew.cli.given import BadValue, as_json
from mew.cli.reach import DIRECTORY, Reach, Way, look_by_socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mew.cli.rates import Counting, Rates
    from mew.client import Space

SHORTEST: Final = 0.05
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def top(
    *,
    interval: Annotated[float, Parameter(alias="-i")] = 1.0,
    once: _Flag = False,
    reach: Reach = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Show, every second, what each participant sends and what each stream carries.

    On a terminal it is one table that changes; elsewhere a table for each interval. It looks as an observer does.

    Parameters
    ----------
    interval
        Seconds from one look to the next.
    once
        One interval, and end.
    json
        A line of JSON for each interval.
    """
    if interval < SHORTEST:
        raise BadValue(f"--interval: at least {SHORTEST} seconds")
    from mew.cli.stream_watch import run

    return run(_show(look_by_socket(reach), interval, once=once, json=json))


async def _show(way: Way, interval: float, *, once: bool, json: bool) -> int:
    from mew.cli.top_text import plain, tables

    with ExitStack() as stack:
        live = None
        if sys.stdout.isatty() and not json and not once:
            from rich.live import Live

            live = stack.enter_context(Live(auto_refresh=False, screen=True))
        async with aclosing(_rates(way, interval)) as looks:
            async for rates in looks:
                if json:
                    print(as_json(rates), flush=True)
                elif live is not None:
                    live.update(tables(rates), refresh=True)
                else:
                    print(plain(rates), flush=True)
                if once:
                    break
    return 0


async def _rates(way: Way, interval: float) -> "AsyncGenerator[Rates, None]":
    from mew.cli.rates import Counting
    from mew.client import connect
    from mew.protocol.times import rfc3339

    async with AsyncExitStack() as stack:
        space = await stack.enter_async_context(connect(way.socket_url, space=way.space, token=way.token))
        counting = Counting(space.view)
        task = asyncio.create_task(_count(space, counting), name="counting")
        stack.callback(task.cancel)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), interval)
                return
            yield counting.look(space.view, rfc3339(int(time.time() * 1_000_000)))


async def _count(space: "Space", counting: "Counting") -> None:
    """Count until the space is over; raises why."""

    def missed(count: int) -> None:
        counting.missed += count

    async for message in space.messages(on_missed=missed):
        counting.take(message, space.lanes.known)
