"""`mew top`: a live table of a space's participants and streams, with their rates."""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mew.cli.common.errors import UsageError
from mew.cli.common.io import as_json
from mew.cli.common.render import human_size, printable
from mew.cli.common.target import DIRECTORY, GatewayTarget, TargetOptions, observer_socket_target
from mew.cli.observe.rates import ParticipantRates, Rates, StreamRates

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mew.cli.observe.rates import RateCounter
    from mew.client import Space


MIN_INTERVAL: Final = 0.05
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def top_command(
    *,
    interval: Annotated[float, Parameter(alias="-i")] = 1.0,
    once: _Flag = False,
    options: TargetOptions = DIRECTORY,
    json: _Flag = False,
) -> int:
    """Show the rates of participants and streams, updated every second.

    On a terminal, one table is updated; elsewhere, each interval is printed. The command uses an observer token.

    Parameters
    ----------
    interval
        Seconds between updates; by default 1.
    once
        Stop after one interval.
    json
        Print one line of JSON per interval.
    """
    if interval < MIN_INTERVAL:
        raise UsageError(f"--interval: expected at least {MIN_INTERVAL} seconds, not {interval:g}")
    return asyncio.run(_show(observer_socket_target(options), interval, once=once, json=json))


async def _show(target: GatewayTarget, interval: float, *, once: bool, json: bool) -> int:

    with ExitStack() as stack:
        live = None
        if sys.stdout.isatty() and not json and not once:
            from rich.live import Live

            live = stack.enter_context(Live(auto_refresh=False, screen=True))
        async with aclosing(_rates(target, interval)) as looks:
            async for rates in looks:
                if json:
                    print(as_json(rates), flush=True)
                elif live is not None:
                    live.update(rates_tables(rates), refresh=True)
                else:
                    print(rates_lines(rates), flush=True)
                if once:
                    break
    return 0


async def _rates(target: GatewayTarget, interval: float) -> "AsyncGenerator[Rates, None]":
    from mew.cli.observe.rates import RateCounter
    from mew.client import connect
    from mew.protocol.timestamps import rfc3339

    async with AsyncExitStack() as stack:
        space = await stack.enter_async_context(connect(target.socket_url, space=target.space, token=target.token))
        counting = RateCounter(space.view)
        task = asyncio.create_task(_count(space, counting), name="counting")
        stack.callback(task.cancel)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), interval)
                return
            yield counting.look(space.view, rfc3339(int(time.time() * 1_000_000)))


async def _count(space: "Space", counting: "RateCounter") -> None:
    """Count until the connection ends. Raises the reason."""

    def missed(count: int) -> None:
        counting.missed += count

    async for message in space.messages(on_overflow=missed):
        counting.take(message, space.router.uncounted_view)


_PEOPLE: Final = ("participant", "envelopes/s", "frames/s", "bytes/s", "last")
_STREAMS: Final = ("stream", "owner", "writers", "frames/s", "bytes/s", "total", "status")
_NUMBERS: Final = frozenset({"envelopes/s", "frames/s", "bytes/s", "total"})
_MAX_ROWS: Final = 200
"""Maximum rows of a table: those with the highest rates are shown."""


def _heading(rates: Rates) -> str:
    envelopes = sum(participant.envelopes for participant in rates.participants)
    frames = sum(stream.frames or 0 for stream in rates.streams)
    missed = f", {rates.missed:,.0f}/s too fast to count" if rates.missed else ""
    present = sum(participant.present for participant in rates.participants)
    return (
        f"{present} present, {len(rates.streams)} open streams: {envelopes:,.1f} envelopes/s, {frames:,.1f} frames/s, "
        f"{human_size(round(rates.bytes))}/s{missed}"
    )


def _person(rates: ParticipantRates) -> tuple[str, ...]:
    name = rates.id if rates.present else f"{rates.id} (left)"
    columns = (
        f"{rates.envelopes:,.1f}",
        f"{rates.frames:,.1f}",
        human_size(round(rates.bytes)),
        rates.last_kind or "-",
    )
    return tuple(map(printable, (name, *columns)))


def _stream(rates: StreamRates) -> tuple[str, ...]:
    owner = rates.owner if rates.owner_connected else f"{rates.owner} (away)"
    others = ", ".join(writer for writer in rates.writers if writer != rates.owner) or "-"
    flow = "?" if rates.frames is None else f"{rates.frames:,.1f}"
    amount = "?" if rates.bytes is None else human_size(round(rates.bytes))
    return tuple(map(printable, (rates.stream_id, owner, others, flow, amount, f"{rates.total:,}", rates.status)))


def _rows(rates: Rates) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the rows, those with the highest rates first."""
    people = sorted(rates.participants, key=lambda participant: -(participant.envelopes + participant.frames))[
        :_MAX_ROWS
    ]
    streams = sorted(rates.streams, key=lambda stream: -(stream.frames or 0))[:_MAX_ROWS]
    return list(map(_person, people)), list(map(_stream, streams))


def rates_tables(rates: Rates) -> RenderableType:
    """Return the tables for a terminal."""
    people, streams = _rows(rates)
    return Group(
        Text(f"{rates.ts[11:19]}  {_heading(rates)}", style="bold"), _table(_PEOPLE, people), _table(_STREAMS, streams)
    )


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        # Text, not a string: a participant's name must not be parsed as markup.
        table.add_row(*map(Text, row))
    return table


def rates_lines(rates: Rates) -> str:
    """Return the tables as aligned text."""
    people, streams = _rows(rates)
    return "\n".join([f"{rates.ts} {_heading(rates)}", *_aligned(_PEOPLE, people), *_aligned(_STREAMS, streams)])


def _aligned(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    every = [tuple(columns), *rows]
    widths = [max(len(row[number]) for row in every) for number in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every
    ]
