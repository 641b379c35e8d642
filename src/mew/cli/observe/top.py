"""What participants send and streams carry, as tables for people.

Writes nothing. Names of others are shown without what could move a cursor.
"""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mew.cli.journal_text import printable, size
from mew.cli.rates import ParticipantRates, Rates, StreamRates

_PEOPLE: Final = ("participant", "envelopes/s", "frames/s", "bytes/s", "last")
_STREAMS: Final = ("stream", "owner", "writers", "frames/s", "bytes/s", "total", "status")
_NUMBERS: Final = frozenset({"envelopes/s", "frames/s", "bytes/s", "total"})
_MOST: Final = 200
"""Rows of a table: the busiest."""


def _heading(rates: Rates) -> str:
    envelopes = sum(each.envelopes for each in rates.participants)
    frames = sum(each.frames or 0 for each in rates.streams)
    missed = f", {rates.missed:,.0f}/s too fast to count" if rates.missed else ""
    present = sum(each.present for each in rates.participants)
    return (
        f"{present} present, {len(rates.streams)} open streams: {envelopes:,.1f} envelopes/s, {frames:,.1f} frames/s, "
        f"{size(round(rates.bytes))}/s{missed}"
    )


def _person(rates: ParticipantRates) -> tuple[str, ...]:
    name = rates.id if rates.present else f"{rates.id} (gone)"
    shown = (f"{rates.envelopes:,.1f}", f"{rates.frames:,.1f}", size(round(rates.bytes)), rates.last_kind or "-")
    return tuple(map(printable, (name, *shown)))


def _stream(rates: StreamRates) -> tuple[str, ...]:
    owner = rates.owner if rates.owner_connected else f"{rates.owner} (away)"
    others = ", ".join(each for each in rates.writers if each != rates.owner) or "-"
    flow = "?" if rates.frames is None else f"{rates.frames:,.1f}"
    amount = "?" if rates.bytes is None else size(round(rates.bytes))
    return tuple(map(printable, (rates.stream_id, owner, others, flow, amount, f"{rates.total:,}", rates.status)))


def _rows(rates: Rates) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The busiest first."""
    people = sorted(rates.participants, key=lambda each: -(each.envelopes + each.frames))[:_MOST]
    streams = sorted(rates.streams, key=lambda each: -(each.frames or 0))[:_MOST]
    return list(map(_person, people)), list(map(_stream, streams))


def tables(rates: Rates) -> RenderableType:
    """For a terminal."""
    people, streams = _rows(rates)
    return Group(
        Text(f"{rates.ts[11:19]}  {_heading(rates)}", style="bold"), _table(_PEOPLE, people), _table(_STREAMS, streams)
    )


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        # Text, not a string: what somebody is called is no markup.
        table.add_row(*map(Text, row))
    return table


def plain(rates: Rates) -> str:
    """For everything else: aligned text."""
    people, streams = _rows(rates)
    return "\n".join([f"{rates.ts} {_heading(rates)}", *_aligned(_PEOPLE, people), *_aligned(_STREAMS, streams)])


def _aligned(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    every = [tuple(columns), *rows]
    widths = [max(len(row[number]) for row in every) for number in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every
    ]
