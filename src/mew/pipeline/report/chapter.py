"""The values of a report's chapter: rows, plots, bars and cards about one space, for the template to print.

It has no markup. Texts of participants stay as they are: the template escapes them.
"""

from collections.abc import Sequence
from typing import Any, Final

from mew.pipeline.report.gathering import ReportData, Series
from mew.pipeline.report.plots import Plot, PlotLine, Plots
from mew.pipeline.report.rendering import clock, format_duration, size
from mew.pipeline.report.ribbon import ribbon, strips
from mew.pipeline.report.scope import SECOND

TITLES: Final = (
    "What happened when",
    "How much flowed",
    "Who owned which stream",
    "What was lost",
    "Who did how much",
    "Conversations",
    "Frames that were not as promised",
    "Can the record be trusted?",
)
OWNERS: Final = 500
"""Rows of the table of owners."""
_OUTCOMES: Final = ("fulfilled", "rejected", "withdrawn", "cancelled", "expired", "open")
_REASONS: Final = {
    "not_json": "not JSON",
    "schema": "does not fit its schema",
    "not_utf8": "not text (UTF-8)",
    "length": "wrong length",
    "unknown_format": "names a format that was not declared",
    "bad_record": "cannot be read at all",
}


def chapter(number: int, figures: ReportData, plots: Plots) -> dict[str, Any]:
    """Everything that the chapter of a space shows, by the names of its template."""
    return {
        "number": number,
        "figures": figures,
        "cards": _cards(figures),
        "presence": plots.over_time("Participants present and streams live", "steps", "", figures.presence),
        "messages": plots.over_time(f"Messages per {_unit(figures.messages)}", "lines", "", figures.messages),
        "events": [
            (clock(time), who, what, subject, why, position)
            for time, position, what, who, subject, why in figures.events.rows
        ],
        **_flow(figures, plots),
        **_ownership(figures),
        **_losses(figures, plots),
        **_activity(figures),
        **_conversations(figures, plots),
        **_quarantine(figures),
    }


def _unit(values: Series) -> str:
    """The time that a point covers, as a unit."""
    return {1: "second", 60: "minute", 3600: "hour", 86_400: "day"}.get(
        values.step, format_duration(values.step * SECOND)
    )


def _cards(figures: ReportData) -> list[tuple[str, str, str]]:
    """The whole in a few numbers: value, meaning, colour."""
    totals = figures.totals
    wrong = sum(row[2] for row in figures.audit)
    cards = [
        (f"{totals['participants']:,}", "participants: people, agents and tools that were here", ""),
        (f"{totals['envelopes']:,}", "messages accepted", ""),
        (f"{totals['refused']:,}", "messages refused, because their sender was not allowed or they were malformed", ""),
        (f"{totals['streams']:,}", "streams: channels of continuous data", ""),
        (f"{totals['frames']:,}", f"frames on them, {size(totals['bytes'])} in all", ""),
        (f"{totals['missing']:,}", "frames that senders numbered and that never arrived", ""),
        (f"{totals['dropped']:,}", "deliveries that readers missed, as reported to them", ""),
        (f"{totals['quarantined']:,}", "frames that are not what their stream promised", ""),
    ]
    if figures.audit:
        verdict, state = ("passed", "good") if not wrong else (f"{wrong:,} wrong", "bad")
        cards.append((verdict, f"audit: {len(figures.audit)} checks of the record", state))
    return cards


def _flow(figures: ReportData, plots: Plots) -> dict[str, Any]:
    """How much flowed on which stream."""
    rows = [
        (stream, owner, "open" if is_open else "ended", frames, size(amount), size(peak, "/s"), invalid, missing)
        for stream, owner, is_open, frames, amount, peak, invalid, missing in figures.streams.rows
    ]
    has_flow = figures.streams.rows and figures.totals["frames"]
    flow = plots.over_time("Data per second, by stream", "lines", "B/s", figures.flow) if has_flow else None
    return {"flow": flow, "streams": rows}


def _ownership(figures: ReportData) -> dict[str, Any]:
    """Who owned which stream when."""
    owners = [
        (stream, owner, clock(start), clock(end), format_duration(end - start))
        for stream, spans in figures.owned.rows
        for owner, start, end in spans
    ]
    return {"ribbon": ribbon(figures.owned.rows, figures.scope), "owners": owners}


def _losses(figures: ReportData, plots: Plots) -> dict[str, Any]:
    """What was lost on the way in and on the way out."""
    senders = [
        (stream, writer, count, missing, most, clock(first), clock(last))
        for stream, writer, count, missing, most, first, last in figures.sequence_gaps.rows
    ]
    readers = [
        (reader, stream, _reasons(why), count, dropped, most, clock(first), clock(last))
        for reader, stream, count, dropped, most, why, first, last in figures.reader_gaps.rows
    ]
    is_lost = bool(senders or readers)
    title = f"Frames lost per {_unit(figures.lost)}"
    lost = plots.over_time(title, "bars", "", figures.lost) if is_lost else None
    return {"lost": lost, "senders": senders, "readers": readers}


def _reasons(reasons: Sequence[str | None]) -> str:
    """A gap without a reason is that of a reader which did not keep up."""
    return ", ".join(reason or "too slow" for reason in reasons)


def _activity(figures: ReportData) -> dict[str, Any]:
    """Who did how much."""
    rows = [
        (who, mostly, envelopes, refusals, frames, size(amount))
        for who, envelopes, refusals, frames, amount, mostly in figures.participants.rows
    ]
    return {
        "strips": strips(figures.strips) if rows else None,
        "cell": format_duration(figures.strips.step * SECOND),
        "participants": rows,
    }


def _conversations(figures: ReportData, plots: Plots) -> dict[str, Any]:
    """What was asked, and the outcomes."""
    counts: dict[str, dict[str, int]] = {}
    for kind, outcome, count in figures.outcomes:
        counts.setdefault(kind, {})[outcome] = count
    outcomes = [name for name in _OUTCOMES if any(name in by_outcome for by_outcome in counts.values())]
    rows = [(kind, *(by_outcome.get(name, 0) for name in outcomes)) for kind, by_outcome in counts.items()]
    waited = [
        (kind, outcome, count, *(format_duration(span) for span in spans))
        for kind, outcome, count, *spans in figures.latencies
    ]
    dots = _dots(figures, plots) if figures.outcomes and figures.dots.rows else None
    return {"outcomes": outcomes, "outcome_rows": rows, "waited": waited, "dots": dots}


def _dots(figures: ReportData, plots: Plots) -> Any:
    rows = figures.dots.rows
    outcomes = [name for name in _OUTCOMES if any(row[1] == name for row in rows)]
    lines = [
        PlotLine(name, [max(took, 1) / SECOND if outcome == name else None for _, outcome, took in rows])
        for name in outcomes
    ]
    times = [time / SECOND for time, *_ in rows]
    title = "Time from the first message to the outcome, by when it began"
    return plots.figure(title, Plot("dots", "s", times, lines, log=True))


def _quarantine(figures: ReportData) -> dict[str, Any]:
    """Frames that were not what they should have been."""
    rows = [
        (stream, _REASONS.get(why, why), ", ".join(writers), count, clock(first), clock(last))
        for stream, why, count, writers, first, last in figures.quarantine.rows
    ]
    samples = [
        (stream, number, writer, why, detail, _preview(payload), size(whole))
        for stream, number, writer, why, detail, payload, whole in figures.samples
    ]
    return {"quarantine": rows, "samples": samples}


def _preview(payload: bytes) -> str:
    text = payload.decode("utf-8", errors="replace")
    return text if text.count("\N{REPLACEMENT CHARACTER}") * 8 <= len(text) else payload[:40].hex(" ")
