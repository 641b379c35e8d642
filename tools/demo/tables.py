"""What the pipeline found, as tables to read: one question each, and one sentence that says what one sees.

Asks the lake and nothing else; a sentence is made of the rows that it is about.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mew.pipeline import open_lake

Row: TypeAlias = tuple[Any, ...]
BARS: Final = "▁▂▃▄▅▆▇█"
KILO: Final = 1000
LISTED: Final = 16
"""Rows of a table; the lake has the rest, and it is said."""


class Question(msgspec.Struct, frozen=True):
    """A question to the lake, and how its answer reads."""

    title: str
    sql: str
    tells: Callable[[Sequence[Row]], str]
    right: tuple[str, ...] = ()
    """Columns of figures."""


class Answer(msgspec.Struct, frozen=True):
    """An answer."""

    question: Question
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


STREAMS: Final = """
with declared as (
  select stream_id, arg_min(coalesce(description, format_id), position) as format from formats group by stream_id
)
select stream_id as stream,
  coalesce(request ->> '$.description', request ->> '$.metadata.filename', declared.format, '') as carries,
  owners[1].owner as "opened by", owner as "last owner", len(writers) as writers, frames + data as frames,
  bytes as bytes, refused, coalesce(replace(ended_kind, 'stream/', ''), 'open') as ended
from streams left join declared using (stream_id) order by position
"""
OWNERSHIP: Final = """
with began as (select min(joined_time) as time from participants),
shared as (select stream_id from stream_access group by stream_id having count(distinct participant) > 1)
select stream_id as stream, participant, role, date_diff('microsecond', began.time, from_time) / 1e6 as "from",
  date_diff('microsecond', began.time, to_time) / 1e6 as "to", replace(why, 'stream/', '') as why,
  coalesce(replace(ended_why, 'stream/', ''), 'still') as "until"
from stream_access join shared using (stream_id), began
order by min(from_position) over (partition by stream_id), from_position, participant
"""
GAPS: Final = """
select 'never sent' as gap, stream_id as stream, writer as who, count(*) as gaps, sum(missing)::bigint as frames,
  min(first) as "first", max(last) as "last"
from sequence_gaps group by stream_id, writer
union all
select if(reason = 'disconnected', 'left before', 'too slow'), stream_id, reader, count(*), sum(dropped)::bigint,
  min(first), max(last)
from reader_gaps group by all
order by 1 desc, 2, 3
"""
QUARANTINE: Final = """
select stream_id as stream, frame_number as frame, writer, reason, detail, payload as "what it was"
from quarantine order by position
"""
REFUSED: Final = """
select participant, coalesce(kind, 'a raw frame') as what, reason, count(*) as times
from events where event in ('rejected', 'frame_rejected') group by all order by participant, min(position)
"""
BY_SECOND: Final = "second by second"
BANDWIDTH: Final = f"""
with span as (select min(start) as first, max(start) as last from stream_activity where seconds = 1),
clock as (select unnest(range(first, last + interval 1 second, interval 1 second)) as start from span),
known as (select distinct stream_id from stream_activity),
by_second as (
  select known.stream_id, clock.start, coalesce(a.bytes, 0) as bytes, coalesce(a.frames, 0) as frames,
    a.interarrival_p50 as apart
  from clock cross join known
  left join stream_activity a on a.stream_id = known.stream_id and a.start = clock.start and a.seconds = 1
)
select stream_id as stream, sum(frames)::bigint as frames, max(frames) as "most/s", sum(bytes)::bigint as bytes,
  max(bytes) as "most bytes/s", median(apart) / 1000 as "ms apart",
  list(bytes order by start) as "{BY_SECOND}"
from by_second group by stream_id having sum(frames) > 0 order by min(start) filter (frames > 0), stream_id
"""
AUDIT: Final = """
select "check", sum(checked)::bigint as checked, sum(violations)::bigint as violations,
  case when sum(violations) = 0 then 'holds' else 'violated' end as verdict
from audit group by "check" order by "check"
"""


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _of(rows: Sequence[Row], column: int) -> list[Any]:
    """The values of a column, each once, in order."""
    return list(dict.fromkeys(row[column] for row in rows))


def _streams(rows: Sequence[Row]) -> str:
    return (
        f"{_count(len(rows), 'stream')}, opened by {_count(len(_of(rows, 2)), 'participant')}, carried"
        f" {_count(sum(row[5] for row in rows), 'frame')}; refused besides: {sum(row[7] for row in rows)}."
    )


def _ownership(rows: Sequence[Row]) -> str:
    owners = [row for row in rows if row[2] == "owner"]
    changed = [stream for stream in _of(owners, 0) if len([row for row in owners if row[0] == stream]) > 1]
    hands = [f"{stream}: {' → '.join(row[1] for row in owners if row[0] == stream)}" for stream in changed]
    return (
        f"Streams that more than one could write to, in seconds since the first one joined; {len(changed)} changed"
        f" owner{' (' + '; '.join(hands) + ')' if hands else ''}."
    )


def _gaps(rows: Sequence[Row]) -> str:
    def lost(what: str) -> int:
        return sum(row[4] for row in rows if row[0] == what)

    return (
        f"{_count(lost('never sent'), 'frame')} of those that writers numbered never arrived; {lost('too slow'):,} were"
        f" not delivered to a reader that was too slow, and reported to it; {lost('left before'):,} were in flight to"
        " a participant that left."
    )


def _quarantine(rows: Sequence[Row]) -> str:
    return (
        f"{len(rows)} frames were not what their format says; they are kept aside, byte for byte, with the reason."
        if rows
        else "Every frame was what its format says."
    )


def _refused(rows: Sequence[Row]) -> str:
    return (
        f"What the gateway did not let through, by whom and why: {', '.join(_of(rows, 0))}."
        if rows
        else "No participant tried a forbidden action."
    )


def _bandwidth(rows: Sequence[Row]) -> str:
    if not rows:
        return "Nothing flowed."
    most = max(rows, key=lambda row: row[3])
    return f"{size(sum(row[3] for row in rows))} in all, most of it on {most[0]}; each bar is a second."


def _audit(rows: Sequence[Row]) -> str:
    wrong = [row[0] for row in rows if row[2]]
    looked = f"{sum(row[1] for row in rows):,} things were checked in {len(rows)} ways"
    return f"{looked}, and nothing was wrong." if not wrong else f"{looked}; violated: {', '.join(wrong)}."


QUESTIONS: Final = (
    Question("Streams", STREAMS, _streams, ("writers", "frames", "bytes", "refused")),
    Question("Ownership history", OWNERSHIP, _ownership, ("from", "to")),
    Question("Refused", REFUSED, _refused, ("times",)),
    Question("Gaps", GAPS, _gaps, ("gaps", "frames", "first", "last")),
    Question("Quarantined frames", QUARANTINE, _quarantine, ("frame",)),
    Question("Bandwidth", BANDWIDTH, _bandwidth, ("frames", "most/s", "bytes", "most bytes/s", "ms apart")),
    Question("Audit", AUDIT, _audit, ("checked", "violations")),
)


def answers(lake: Path) -> Iterator[Answer]:
    """Ask the lake everything."""
    with open_lake(lake) as opened:
        for question in QUESTIONS:
            with opened.sql(question.sql) as answer:
                yield Answer(question, tuple(answer.columns), tuple(map(tuple, answer)))


def show(answer: Answer, console: Console) -> None:
    """Print an answer as a table, below the sentence about it."""
    question = answer.question
    console.print(Text(question.title, style="bold cyan"))
    console.print(Text(question.tells(answer.rows)))
    if answer.rows:
        console.print(_table(answer))
    if len(answer.rows) > LISTED:
        console.print(Text(f"and {len(answer.rows) - LISTED} more", style="dim"))
    console.print()


def _table(answer: Answer) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold dim")
    for column in answer.columns:
        figures = column in answer.question.right
        whole = figures or column == BY_SECOND
        table.add_column(column, justify="right" if figures else "left", no_wrap=whole, overflow="ellipsis")
    for row in answer.rows[:LISTED]:
        table.add_row(*(_cell(column, value) for column, value in zip(answer.columns, row, strict=True)))
    return table


def _cell(column: str, value: Any) -> Text:
    if column == "verdict":
        return Text(value, style="green" if value == "holds" else "bold red")
    if value is None:
        return Text("–", style="dim")
    if "bytes" in column:
        return Text(size(value))
    if isinstance(value, list):
        return Text(bars(value), style="cyan")
    if isinstance(value, bytes):
        return Text(value.decode(errors="replace"))
    if isinstance(value, float):
        return Text(f"{value:.1f}")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def size(count: int) -> str:
    """So many bytes, to read."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < KILO:
            break
        amount, unit = amount / KILO, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def bars(values: Sequence[int]) -> str:
    """Figures as a row of bars; nothing is a blank, and the least that is something is seen."""
    most = max(values, default=0)
    return "".join(" " if not value else BARS[min(int(value / most * len(BARS)), len(BARS) - 1)] for value in values)
