"""The sections of a report about one space: a sentence of what is shown, the picture, the table.

Every word that participants wrote goes through `text`. An empty section says so.
"""

from collections.abc import Sequence
from typing import Final

from mew.pipeline.report.gathering import LINES, ReportData, Series, TruncatedList
from mew.pipeline.report.markup import (
    Html,
    clock,
    details,
    format_duration,
    join_html,
    note,
    size,
    table,
    text,
    text_whole,
)
from mew.pipeline.report.plots import Plot, PlotLine, Plots
from mew.pipeline.report.ribbon import ribbon, strips
from mew.pipeline.report.scope import SECOND

_OUTCOMES: Final = ("fulfilled", "rejected", "withdrawn", "cancelled", "expired", "open")


def paragraph(words: str) -> Html:
    """A paragraph of our own words."""
    return Html(f"<p>{text_whole(words)}</p>")


def empty_note(words: str) -> Html:
    """What is said where there is nothing."""
    return Html(f'<p class="none">{text_whole(words)}</p>')


def step_of(values: Series) -> str:
    """The resolution of a plot, as text."""
    return f"Each point covers {format_duration(values.step * SECOND)}."


def per(values: Series) -> str:
    """The time that a point covers, as a unit."""
    return {1: "second", 60: "minute", 3600: "hour", 86_400: "day"}.get(
        values.step, format_duration(values.step * SECOND)
    )


def cut_to(what: str, found: TruncatedList, order: str) -> Html:
    """A remark, where a list was cut."""
    if found.of <= len(found.rows):
        return Html("")
    return note(f"{len(found.rows):,} of {found.of:,} {what} are listed, {order}.")


def brief(figures: ReportData) -> Html:
    """The whole in a few numbers."""
    totals = figures.totals
    wrong = sum(row[2] for row in figures.audit)
    cards: list[tuple[str, str, str]] = [
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
        verdict = ("passed", "good") if not wrong else (f"{wrong:,} wrong", "bad")
        cards.append((verdict[0], f"audit: {len(figures.audit)} checks of the record", verdict[1]))
    items = join_html(
        Html(f'<li><b class="{state}">{text(value)}</b><span>{text_whole(words)}</span></li>')
        for value, words, state in cards
    )
    return Html(f'<ul class="cards">{items}</ul>')


def happened(figures: ReportData, plots: Plots) -> Html:
    """What happened when."""
    rows = [
        (clock(time), who, what, subject, why, position)
        for time, position, what, who, subject, why in figures.events.rows
    ]
    listed = (
        table(
            "Participants that joined and left, and the lifetime of streams",
            ["time (UTC)", "who", "did", "stream", "how or why", "position"],
            rows,
            left=5,
        )
        if rows
        else empty_note("In this time no participant joined or left, and no stream began or ended.")
    )
    return join_html(
        [
            paragraph("How many were here at a time, how much they said, and the moments at which something changed."),
            plots.over_time("Participants present and streams live", "steps", "", figures.presence),
            plots.over_time(f"Messages per {per(figures.messages)}", "lines", "", figures.messages),
            note(step_of(figures.messages)),
            listed,
            cut_to("changes", figures.events, "the earliest first"),
        ]
    )


def bandwidth(figures: ReportData, plots: Plots) -> Html:
    """How much flowed on which stream."""
    if not figures.streams.rows:
        return empty_note("There was no stream in this time, so nothing flowed.")
    rows = [
        (stream, owner, "open" if is_open else "ended", frames, size(amount), size(peak, "/s"), invalid, missing)
        for stream, owner, is_open, frames, amount, peak, invalid, missing in figures.streams.rows
    ]
    head = ["stream", "last owner", "now", "frames", "data", "busiest second", "not as promised", "left out"]
    drawn = (
        join_html(
            [
                plots.over_time("Data per second, by stream", "lines", "B/s", figures.flow),
                note(f"{step_of(figures.flow)} A point is the average over that time. {_drawn(figures)}"),
            ]
        )
        if figures.totals["frames"]
        else empty_note("Streams were open, but no frame was sent on any of them.")
    )
    return join_html(
        [
            paragraph(
                "A stream carries data continuously, in pieces called frames. A line is a stream; select a name "
                "below the plot to hide or show it."
            ),
            drawn,
            table("Streams, the busiest first", head, rows, left=3),
            cut_to("streams", figures.streams, "the busiest first"),
        ]
    )


def _drawn(figures: ReportData) -> str:
    if figures.streams.of <= LINES:
        return ""
    return f"The {LINES} busiest of {figures.streams.of:,} streams have a line each, the others one together."


def ownership(figures: ReportData) -> Html:
    """Who owned which stream when."""
    owned, scope = figures.owned, figures.scope
    if not owned.rows:
        return empty_note("There was no stream in this time that anybody could have owned.")
    rows = [
        (stream, owner, clock(start), clock(end), format_duration(end - start))
        for stream, spans in owned.rows
        for owner, start, end in spans
    ]
    listed = table("Owners of streams", ["stream", "owner", "from (UTC)", "to (UTC)", "for"], rows[:500], left=4)
    short = note(f"500 of {len(rows):,} rows are listed.") if len(rows) > 500 else Html("")
    return join_html(
        [
            paragraph(
                "Each stream has one owner at a time, who decides who else may write to it. A bar is the time of "
                "one owner; where the colour changes, the stream was handed on."
            ),
            ribbon(owned.rows, scope),
            cut_to("streams", owned, "the busiest first"),
            details("The same as a table", join_html([listed, short])),
        ]
    )


def gaps(figures: ReportData, plots: Plots) -> Html:
    """What was lost."""
    if not figures.sequence_gaps.rows and not figures.reader_gaps.rows:
        return empty_note(
            "Nothing is known to be lost: no sender skipped a number, and no missed frame was reported to a reader."
        )
    senders = [
        (stream, writer, count, missing, most, clock(first), clock(last))
        for stream, writer, count, missing, most, first, last in figures.sequence_gaps.rows
    ]
    readers = [
        (reader, stream, _whys(why), count, dropped, most, clock(first), clock(last))
        for reader, stream, count, dropped, most, why, first, last in figures.reader_gaps.rows
    ]
    times = ["first (UTC)", "last (UTC)"]
    return join_html(
        [
            paragraph(
                "Frames can be lost on the way in, which shows as numbers missing from a sender's count, or on "
                "the way out, where a reader is too slow or away; it is then told how many it missed."
            ),
            plots.over_time(f"Frames lost per {per(figures.lost)}", "bars", "", figures.lost),
            table("Left out by senders", ["stream", "sender", "gaps", "frames", "largest", *times], senders, left=2)
            if senders
            else empty_note("No sender that numbers its frames left one out."),
            cut_to("pairs of stream and sender", figures.sequence_gaps, "the largest loss first"),
            table(
                "Not delivered to readers",
                ["reader", "stream", "why", "gaps", "frames", "largest", *times],
                readers,
                left=3,
            )
            if readers
            else empty_note("Every reader got every frame that was meant for it."),
            cut_to("pairs of reader and stream", figures.reader_gaps, "the largest loss first"),
        ]
    )


def _whys(reasons: Sequence[str | None]) -> str:
    """A gap without a reason is that of a reader which did not keep up."""
    return ", ".join(each or "too slow" for each in reasons)


def activity(figures: ReportData) -> Html:
    """Who did how much."""
    if not figures.participants.rows:
        return empty_note("No participant sent anything in this time.")
    rows = [
        (who, mostly, envelopes, refusals, frames, size(amount))
        for who, envelopes, refusals, frames, amount, mostly in figures.participants.rows
    ]
    head = ["participant", "mostly sent", "messages", "refused", "frames", "data"]
    return join_html(
        [
            paragraph(
                "A row is a participant; the stronger the colour, the more messages and frames it sent in that "
                "time, compared with the busiest."
            ),
            strips(figures.strips),
            note(
                f"A cell covers {format_duration(figures.strips.step * SECOND)}. Counts are kept by the minute, so a "
                "time that begins within one includes all of it."
            ),
            table("Participants, the most active first", head, rows, left=2),
            cut_to("participants", figures.participants, "the most active first"),
        ]
    )


def conversations(figures: ReportData, plots: Plots) -> Html:
    """What was asked, and what came of it."""
    if not figures.outcomes:
        return empty_note("There were no requests in this time.")
    counts: dict[str, dict[str, int]] = {}
    for kind, outcome, count in figures.outcomes:
        counts.setdefault(kind, {})[outcome] = count
    seen = [each for each in _OUTCOMES if any(each in found for found in counts.values())]
    rows = [(kind, *(found.get(each, 0) for each in seen)) for kind, found in counts.items()]
    waited = [
        (kind, outcome, count, *(format_duration(each) for each in spans))
        for kind, outcome, count, *spans in figures.latencies
    ]
    head = ["begins with", "outcome", "how many", "half decided within", "half over within", "95 % within", "longest"]
    return join_html(
        [
            paragraph(
                "A conversation begins with a proposal, a request or the like, and ends with its outcome: it was "
                "fulfilled, rejected, withdrawn or cancelled, or it expired. The others are still open."
            ),
            table("Conversations by how they began and ended", ["begins with", *seen], rows),
            _dotted(figures, plots),
            table("How long they took", head, waited, left=2) if waited else Html(""),
        ]
    )


def _dotted(figures: ReportData, plots: Plots) -> Html:
    dots = figures.dots
    if not dots.rows:
        return empty_note("None of them has come to an outcome yet, so there is no time to show.")
    outcomes = [each for each in _OUTCOMES if any(row[1] == each for row in dots.rows)]
    lines = [
        PlotLine(outcome, [max(took, 1) / SECOND if found == outcome else None for _, found, took in dots.rows])
        for outcome in outcomes
    ]
    times = [time / SECOND for time, *_ in dots.rows]
    title = "Time from the first message to the outcome, by when it began"
    picked = note(f"{len(dots.rows):,} of {dots.of:,} conversations are drawn, evenly picked.")
    return join_html(
        [
            plots.figure(title, Plot("dots", "s", times, lines, log=True)),
            note("The scale is logarithmic: equal steps upwards are equal factors of time."),
            picked if dots.of > len(dots.rows) else Html(""),
        ]
    )


def quarantine(figures: ReportData) -> Html:
    """What was not what it should have been."""
    found = figures.quarantine
    if not found.rows:
        return empty_note("Every frame of a stream that declares a format was what it declares.")
    rows = [
        (stream, _REASONS.get(why, why), ", ".join(writers), count, clock(first), clock(last))
        for stream, why, count, writers, first, last in found.rows
    ]
    samples = [
        (stream, number, writer, why, detail, Html(f"<code>{text(_preview(payload))}</code>"), size(whole))
        for stream, number, writer, why, detail, payload, whole in figures.samples
    ]
    head = ["stream", "frame", "sender", "reason", "description", "begins with", "size"]
    return join_html(
        [
            paragraph(
                "A stream can declare what its frames look like. Frames that differ are delivered all the same; "
                "here they are set apart, with the reason."
            ),
            table(
                "Frames set apart", ["stream", "reason", "senders", "frames", "first (UTC)", "last (UTC)"], rows, left=3
            ),
            cut_to("pairs of stream and reason", found, "the most frequent first"),
            details("Some of them", table("Up to three of each reason", head, samples, left=6)),
        ]
    )


_REASONS: Final = {
    "not_json": "not JSON",
    "schema": "does not fit its schema",
    "not_utf8": "not text (UTF-8)",
    "length": "wrong length",
    "unknown_format": "names a format that was not declared",
    "bad_record": "cannot be read at all",
}


def _preview(payload: bytes) -> str:
    shown = payload.decode("utf-8", errors="replace")
    return shown if shown.count("\N{REPLACEMENT CHARACTER}") * 8 <= len(shown) else payload[:40].hex(" ")


def audit(figures: ReportData) -> Html:
    """Whether the record can be trusted."""
    if not figures.audit:
        return empty_note("Nothing has been checked yet.")
    rows = [
        (sentence, _verdict(violations), violations, example or "")
        for _, sentence, violations, example in figures.audit
    ]
    head = ["what is checked", "verdict", "wrong", "for example"]
    return join_html(
        [
            paragraph(
                "Each check proves its sentence from the record: who was present, who owned what, who had granted "
                "what to whom. The checks are of the whole record, whatever time this report is about."
            ),
            table("Checks", head, rows, left=4),
        ]
    )


def _verdict(violations: int) -> Html:
    return Html('<b class="bad">wrong</b>' if violations else '<b class="good">in order</b>')
