"""A lake held against the truth of its generator: every table that the story behind a journal knows something about."""

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from tests.pipeline.jobs.lakes import asked_often
from tools.journal_generator import SpaceTruth, Truth

Row = tuple[Any, ...]


def ask(tables: duckdb.DuckDBPyConnection, sql: str, *values: object) -> list[Row]:
    return sorted(tables.execute(sql.format(*values)).fetchall(), key=repr)


def is_true(lake: Path, truth: Truth) -> None:
    """All of it, space by space."""
    with asked_often(lake) as tables:
        assert {space for (space,) in ask(tables, "select distinct space from envelopes")} == truth.spaces.keys()
        assert ask(tables, 'select "check", sample from audit where violations > 0') == []
        for space in truth.spaces.values():
            _frames(tables, space)
            _streams(tables, space)
            _gaps(tables, space)
            _activity(tables, space)
            _people(tables, space)
            _words(tables, space)


def _frames(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    of_writer = (
        "select stream_id, writer, count(*) filter (kind = 'frame'), count(*) filter (kind = 'data'), "
        "sum(size)::bigint from frames where space = '{}' group by all"
    )
    assert ask(tables, of_writer, space.space) == _sorted(
        (stream.stream_id, writer, each.frames, each.data, each.bytes)
        for stream in space.streams.values()
        for writer, each in stream.by_writer.items()
        if each.frames or each.data
    )
    malformed = _sorted(
        (stream.stream_id, each.position, each.frame_number, each.why)
        for stream in space.streams.values()
        for each in stream.malformed
    )
    columns = "stream_id, position, frame_number"
    assert ask(tables, f"select {columns}, reason from quarantine where space = '{{}}'", space.space) == malformed
    invalid = ask(tables, f"select {columns} from frames where space = '{{}}' and not valid", space.space)
    assert invalid == _sorted(row[:3] for row in malformed)


def _streams(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    columns = (
        "stream_id, creator, way, position, epoch_us(time), started_position, frames, data, bytes, refused, "
        "ended_position, ended_kind, ended_by, reason, open, writers, list_transform(owners, lambda o: o.owner), "
        "targets"
    )
    assert ask(tables, f"select {columns} from streams where space = '{{}}'", space.space) == _sorted(
        (
            *(stream.stream_id, stream.creator, stream.way, stream.position, stream.time, stream.started),
            *(stream.frames, stream.data, stream.bytes, stream.refused),
            *((None,) * 4 if end is None else (end.position, end.kind, end.by, end.reason)),
            end is None,
            list(dict.fromkeys(name for each in stream.writers for name in each.writers)),
            [each.owner for each in stream.owners],
            None if stream.targets is None else list(stream.targets),
        )
        for stream in space.streams.values()
        for end in [stream.ended]
    )
    announced = "select stream_id, format_id, position from formats where space = '{}' and participant is not null"
    named = {(stream.stream_id, each) for stream in space.streams.values() for each in stream.format_ids}
    found = ask(tables, announced, space.space)
    assert named == {row[:2] for row in found if space.streams[row[0]].formats}
    assert all(space.streams[stream_id].position == position for stream_id, _, position in found)


def _gaps(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    columns = "stream_id, writer, first, last, missing, position"
    assert ask(tables, f"select {columns} from sequence_gaps where space = '{{}}'", space.space) == _sorted(
        # The gap's own record stands just before that of the frame that reveals it.
        (stream.stream_id, each.writer, each.first, each.last, each.last - each.first + 1, each.position + 1)
        for stream in space.streams.values()
        for each in stream.skipped
    )
    columns = "position, reader, stream_id, first, last, dropped, reason"
    assert ask(tables, f"select {columns} from reader_gaps where space = '{{}}'", space.space) == _sorted(
        (gap.position, gap.reader, gap.stream_id, gap.first, gap.last, gap.dropped, gap.reason)
        for gap in space.reader_gaps
    )


def _activity(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    sums = (
        "select seconds, stream_id, sum(frames)::bigint, sum(bytes)::bigint, sum(invalid)::bigint, "
        "sum(missing)::bigint from stream_activity where space = '{}' group by all"
    )
    assert ask(tables, sums, space.space) == _sorted(
        (
            *(seconds, stream.stream_id, stream.frames + stream.data, stream.bytes, len(stream.malformed)),
            sum(each.last - each.first + 1 for each in stream.skipped),
        )
        for seconds in (1, 60)
        for stream in space.streams.values()
        if stream.frames or stream.data
    )
    minutes = (
        "select sum(frames)::bigint, sum(bytes)::bigint, sum(refusals)::bigint from participant_activity "
        "where space = '{}'"
    )
    streams = space.streams.values()
    refused = sum(space.refused.values()) + sum(space.refused_frames.values())
    total = (sum(each.frames + each.data for each in streams), sum(each.bytes for each in streams), refused)
    assert ask(tables, minutes, space.space) == [total]


def _people(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    columns = (
        "participant, transport, anonymous, joined_position, epoch_us(joined_time), takeovers, left_position, "
        "epoch_us(left_time), reason, open"
    )
    assert ask(tables, f"select {columns} from participants where space = '{{}}'", space.space) == _sorted(
        (
            *(stay.participant, stay.transport, stay.anonymous, stay.position, stay.time, stay.takeovers),
            *(stay.left, stay.left_time, stay.reason, stay.left is None),
        )
        for stay in space.stays
    )
    granted = (
        "select source, participant, granted_by, from_position from capabilities "
        "where space = '{}' and source like 'grant:%'"
    )
    assert set(ask(tables, granted, space.space)) == {
        (f"grant:{each.grant_id}", each.recipient, each.granter, each.position) for each in space.grants
    }
    owners = "select stream_id, participant, from_position from stream_access where space = '{}' and role = 'owner'"
    assert ask(tables, owners, space.space) == _sorted(
        (stream.stream_id, each.owner, each.position) for stream in space.streams.values() for each in stream.owners
    )


def _words(tables: duckdb.DuckDBPyConnection, space: SpaceTruth) -> None:
    said = ask(
        tables, "select kind, count(*) from envelopes where space = '{}' and accepted group by kind", space.space
    )
    assert Counter(dict(said)) == Counter({kind: n for kind, n in space.kinds.items() if kind != "stream/data"})
    refused = "select reason, count(*) from envelopes where space = '{}' and not accepted group by reason"
    assert Counter(dict(ask(tables, refused, space.space))) == Counter(space.refused)
    threads = {
        root: (positions, kinds, outcome)
        for root, positions, kinds, outcome in ask(
            tables, "select root, positions, kinds, outcome from conversations where space = '{}'", space.space
        )
    }
    for thread in space.conversations:
        positions, kinds, outcome = threads[thread.root]
        assert (positions, kinds) == (thread.positions, thread.kinds)
        assert outcome == thread.outcome or (outcome, thread.outcome) == ("expired", "open")


def _sorted(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)
