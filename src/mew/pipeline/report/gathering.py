"""The figures of a report, asked of the lake: sums by window, longest lists cut, nothing frame by frame.

Knows nothing of how they will look.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from mew.pipeline.checks import CheckResult
from mew.pipeline.opening import OpenLake
from mew.pipeline.report.scope import SECOND, Scope, text

LINES: Final = 8
"""Streams that are drawn by themselves; the rest is one line."""
ROWS: Final = 100
"""Of a table."""
DOTS: Final = 1000
"""Conversations that are drawn."""
STRIP: Final = 60
"""Cells of a participant's strip."""
_MINUTE: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[Any, ...]


class TruncatedList(msgspec.Struct, frozen=True):
    """Rows, and how many there were before the list was cut."""

    rows: list[Row]
    of: int


class Series(msgspec.Struct, frozen=True):
    """Values over time, at the same times for each line."""

    step: int
    """Seconds from one to the next."""
    times: list[int]
    """Seconds since 1970."""
    lines: dict[str, list[float]]


class ReportData(msgspec.Struct, frozen=True):
    """Everything that the report tells of one space."""

    scope: Scope
    totals: dict[str, int]
    messages: Series
    presence: Series
    events: TruncatedList
    flow: Series
    streams: TruncatedList
    owned: TruncatedList
    lost: Series
    sequence_gaps: TruncatedList
    reader_gaps: TruncatedList
    strips: Series
    participants: TruncatedList
    outcomes: list[Row]
    latencies: list[Row]
    dots: TruncatedList
    quarantine: TruncatedList
    samples: list[Row]
    audit: list[Row]


class _Asker:
    """A lake, and what of it is wanted."""

    def __init__(self, lake: OpenLake, scope: Scope) -> None:
        self.lake = lake
        self.scope = scope

    def rows(self, sql: str) -> list[Row]:
        with self.lake.sql(sql) as answer:
            return list(answer)

    def cut(self, sql: str, most: int = ROWS) -> TruncatedList:
        """The first rows, and how many there are."""
        rows = self.rows(f"select *, count(*) over () as whole from ({sql}) limit {most}")
        return TruncatedList([row[:-1] for row in rows], rows[0][-1] if rows else 0)

    def bins(self, column: str, step: int) -> str:
        return f"epoch_us({column}) // {step * SECOND} * {step}"

    def lines(self, step: int, names: Iterable[str], found: Iterable[Row]) -> Series:
        """Of rows (line, time, value); where there is none it is 0."""
        times = self.scope.grid(step)
        at = {time: index for index, time in enumerate(times)}
        lines = {name: [0.0] * len(times) for name in names}
        for name, time, value in found:
            if time in at and name in lines:
                lines[name][at[time]] += value
        return Series(step, times, lines)


def gather(lake: OpenLake, scope: Scope, checks: Sequence[CheckResult] = ()) -> ReportData:
    """All figures of a space, and what the checks of its tables found."""
    ask = _Asker(lake, scope)
    streams = _streams(ask)
    return ReportData(
        scope=scope,
        totals=_totals(ask),
        messages=_messages(ask),
        presence=_presence(ask),
        events=_events(ask),
        flow=_flow(ask, [row[0] for row in streams.rows[:LINES]], others=streams.of > LINES),
        streams=streams,
        owned=_owned(ask),
        lost=_lost(ask),
        sequence_gaps=_sequence_gaps(ask),
        reader_gaps=_reader_gaps(ask),
        strips=_strips(ask),
        participants=_participants(ask),
        outcomes=_outcomes(ask),
        latencies=_latencies(ask),
        dots=_dots(ask),
        quarantine=_quarantine(ask),
        samples=_samples(ask),
        audit=[_checked(result) for result in checks],
    )


def _totals(ask: _Asker) -> dict[str, int]:
    during, overlapping = ask.scope.during, ask.scope.overlapping
    questions = {
        "participants": "count(distinct participant) from participants where "
        + overlapping("joined_time", "left_time"),
        "streams": "count(*) from streams where " + overlapping("time", "ended_time"),
        "envelopes": "count(*) filter (accepted) from envelopes where " + during("time"),
        "refused": "count(*) filter (not accepted) from envelopes where " + during("time"),
        "frames": "coalesce(sum(frames), 0) from stream_activity where seconds = 1 and " + during("start", window=1),
        "bytes": "coalesce(sum(bytes), 0) from stream_activity where seconds = 1 and " + during("start", window=1),
        "missing": "coalesce(sum(missing), 0) from sequence_gaps where " + during("time"),
        "dropped": "coalesce(sum(dropped), 0) from reader_gaps where " + during("time"),
        "quarantined": "count(*) from quarantine where " + during("time"),
    }
    columns = ", ".join(f"(select {question})::bigint as {name}" for name, question in questions.items())
    return dict(zip(questions, ask.rows(f"select {columns}")[0], strict=True))


def _messages(ask: _Asker) -> Series:
    step = ask.scope.step()
    found = ask.rows(
        f"select if(accepted, 'accepted', 'refused'), {ask.bins('time', step)} as bin, count(*) from envelopes "
        f"where {ask.scope.during('time')} group by all"
    )
    return ask.lines(step, ("accepted", "refused"), found)


def _presence(ask: _Asker) -> Series:
    """How many participants and live streams there were: what came less what went, added up."""
    step, scope = ask.scope.step(), ask.scope
    start = scope.grid(step)[0]
    stays = scope.overlapping("joined_time", "left_time")
    lives = scope.overlapping("started_time", "ended_time") + " and started_time is not null"
    # What was there before begins at the first point.
    moves = [
        f"select '{what}' as what, greatest({ask.bins(column, step)}, {start}) as bin, {sign} as n from {table} "
        f"where {where} and {column} is not null"
        for what, table, where, column, sign in (
            ("participants present", "participants", stays, "joined_time", 1),
            ("participants present", "participants", stays, "left_time", -1),
            ("streams live", "streams", lives, "started_time", 1),
            ("streams live", "streams", lives, "ended_time", -1),
        )
    ]
    found = ask.rows(f"select what, bin, sum(n)::bigint from ({' union all '.join(moves)}) group by all")
    changes = ask.lines(step, ("participants present", "streams live"), found)
    sums = {name: _running(values) for name, values in changes.lines.items()}
    return Series(step, changes.times, sums)


def _running(values: list[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums


def _events(ask: _Asker) -> TruncatedList:
    during = ask.scope.during
    return ask.cut(
        "select epoch_us(time), position, what, who, subject, why from ("
        "select joined_time as time, joined_position as position, 'joined' as what, participant as who, "
        f"null as subject, transport as why from participants where {during('joined_time')} "
        "union all select left_time, left_position, 'left', participant, null, reason from participants "
        f"where left_position is not null and {during('left_time')} "
        "union all select time, position, if(way = 'announce', 'announced a stream', 'asked for a stream'), creator, "
        f"stream_id, null from streams where {during('time')} "
        "union all select ended_time, ended_position, 'ended a stream', ended_by, stream_id, "
        f"coalesce(reason, ended_kind) from streams where ended_position is not null and {during('ended_time')} "
        "union all select from_time, from_position, 'became owner', participant, stream_id, 'from ' || granted_by "
        "from stream_access where role = 'owner' and why = 'stream/ownership-transferred' "
        f"and {during('from_time')}) order by position, what"
    )


def _streams(ask: _Asker) -> TruncatedList:
    """The busiest first: id, owner, whether it is open, frames, bytes, most bytes in a second, invalid, missing."""
    return ask.cut(
        "with flowed as (select stream_id, sum(frames)::bigint as count, sum(bytes)::bigint as flow, "
        "max(bytes) as peak, sum(invalid)::bigint as invalid, sum(missing)::bigint as missing from stream_activity "
        f"where seconds = 1 and {ask.scope.during('start', window=1)} group by stream_id) "
        "select stream_id, owner, open, coalesce(count, 0), coalesce(flow, 0), coalesce(peak, 0), "
        "coalesce(invalid, 0), coalesce(missing, 0) from streams left join flowed using (stream_id) "
        f"where {ask.scope.overlapping('time', 'ended_time')} order by coalesce(flow, 0) desc, position"
    )


def _flow(ask: _Asker, drawn: list[str], *, others: bool) -> Series:
    """Bytes a second, by stream."""
    step = ask.scope.step()
    window = 1 if step < _MINUTE else _MINUTE
    known = ", ".join(text(each) for each in drawn) or "null"
    found = ask.rows(
        f"select if(stream_id in ({known}), stream_id, null) as line, {ask.bins('start', step)} as bin, "
        f"sum(bytes) / {step} from stream_activity where seconds = {window} and "
        f"{ask.scope.during('start', window=window)} group by all"
    )
    rest = _free("all other streams", drawn)
    names = [*drawn, rest] if others else drawn
    return ask.lines(step, names, ((rest if line is None else line, time, value) for line, time, value in found))


def _free(name: str, taken: Iterable[str]) -> str:
    """A name that no participant has."""
    while name in taken:
        name += " "
    return name


def _owned(ask: _Asker) -> TruncatedList:
    """The busiest streams: id, and [owner, from, to] in order."""
    scope = ask.scope
    found = ask.cut(
        "select stream_id, owners, epoch_us(ended_time) as ended from streams "
        f"where {scope.overlapping('time', 'ended_time')} "
        "order by bytes desc, position",
        40,
    )
    rows = []
    for stream_id, owners, ended in found.rows:
        starts = [_micros(each["time"]) for each in owners]
        ends = [*starts[1:], scope.end if ended is None else ended]
        spans = [
            (each["owner"], max(start, scope.start), min(end, scope.end))
            for each, start, end in zip(owners, starts, ends, strict=True)
            if start < scope.end and end >= scope.start
        ]
        rows.append((stream_id, spans))
    return TruncatedList(rows, found.of)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _lost(ask: _Asker) -> Series:
    step, during = ask.scope.step(most=120), ask.scope.during("time")
    found = ask.rows(
        f"select 'left out by senders' as line, {ask.bins('time', step)} as bin, sum(missing)::bigint "
        f"from sequence_gaps where {during} group by all union all "
        f"select 'not delivered to readers', {ask.bins('time', step)} as bin, sum(dropped)::bigint "
        f"from reader_gaps where {during} group by all"
    )
    return ask.lines(step, ("left out by senders", "not delivered to readers"), found)


def _sequence_gaps(ask: _Asker) -> TruncatedList:
    return ask.cut(
        "select stream_id, writer, count(*) as gaps, sum(missing)::bigint as missing, max(missing), "
        f"epoch_us(min(time)), epoch_us(max(time)) from sequence_gaps where {ask.scope.during('time')} "
        "group by stream_id, writer order by sum(missing) desc, stream_id, writer"
    )


def _reader_gaps(ask: _Asker) -> TruncatedList:
    return ask.cut(
        "select reader, stream_id, count(*) as gaps, sum(dropped)::bigint, max(dropped), "
        "list_sort(list(distinct reason)), epoch_us(min(time)), epoch_us(max(time)) from reader_gaps "
        f"where {ask.scope.during('time')} group by reader, stream_id order by sum(dropped) desc, reader, stream_id"
    )


def _participants(ask: _Asker) -> TruncatedList:
    """The most active first: who, envelopes, refusals, frames, bytes, and what it mostly sent."""
    return ask.cut(
        "with wanted as (select * exclude (space, open) from participant_activity where "
        f"{ask.scope.during('start', window=_MINUTE)}), sent as "
        "(select participant, k.kind as kind, sum(k.count) as n from "
        "(select participant, unnest(kinds) as k from wanted) group by all) "
        "select participant, sum(envelopes)::bigint, sum(refusals)::bigint, sum(frames)::bigint, sum(bytes)::bigint, "
        "any_value(mostly) from wanted left join "
        "(select participant, arg_max(kind, (n, kind)) as mostly from sent group by participant) using (participant) "
        "group by participant order by sum(envelopes) + sum(frames) desc, participant"
    )


def _strips(ask: _Asker) -> Series:
    """What each of the most active did, in few steps."""
    step = ask.scope.step(most=STRIP, least=_MINUTE)
    names = [row[0] for row in _participants(ask).rows[:40]]
    found = ask.rows(
        f"select participant, {ask.bins('start', step)} as bin, sum(envelopes + frames)::bigint "
        f"from participant_activity where {ask.scope.during('start', window=_MINUTE)} group by all"
    )
    return ask.lines(step, names, found)


def _outcomes(ask: _Asker) -> list[Row]:
    return ask.rows(
        f"select root_kind, outcome, count(*) from conversations where {ask.scope.during('time')} "
        "group by all order by root_kind, outcome"
    )


def _latencies(ask: _Asker) -> list[Row]:
    """By kind and outcome, of those that have one: how many, then microseconds."""
    return ask.rows(
        "select root_kind, outcome, count(*), quantile_disc(decided_after, 0.5), quantile_disc(answered_after, 0.5), "
        "quantile_disc(answered_after, 0.95), max(answered_after) from conversations "
        f"where {ask.scope.during('time')} and answered_after is not null group by all order by root_kind, outcome"
    )


def _dots(ask: _Asker) -> TruncatedList:
    """When, outcome, microseconds: all, or evenly picked."""
    which = f"from conversations where {ask.scope.during('time')} and answered_after is not null"
    (whole,) = ask.rows(f"select count(*) {which}")[0]
    every = max(1, -(-whole // DOTS))
    rows = ask.rows(
        "select sent, outcome, answered_after from (select epoch_us(time) as sent, outcome, answered_after, "
        f"row_number() over (order by position) - 1 as n {which}) where n % {every} = 0 order by sent"
    )
    return TruncatedList(rows, whole)


def _quarantine(ask: _Asker) -> TruncatedList:
    return ask.cut(
        "select stream_id, reason, count(*), list_sort(list(distinct writer)), epoch_us(min(time)), "
        f"epoch_us(max(time)) from quarantine where {ask.scope.during('time')} "
        "group by stream_id, reason order by count(*) desc, stream_id, reason"
    )


def _samples(ask: _Asker) -> list[Row]:
    """A few of what is there, of each reason the first."""
    return ask.rows(
        "select stream_id, frame_number, writer, reason, detail, payload[:200], octet_length(payload) from quarantine "
        f"where {ask.scope.during('time')} qualify row_number() over (partition by reason order by position) <= 3 "
        "order by reason, position limit 18"
    )


def _checked(result: CheckResult) -> Row:
    """Name, sentence, number of violations, and the first of them."""
    first = result.sample[0] if result.sample else None
    example = None if first is None else f"position {first.position}: {first.what}: {first.message}"
    return result.name, result.sentence, result.violations, example
