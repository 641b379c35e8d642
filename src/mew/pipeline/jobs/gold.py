"""Adds up a batch: the rows of all its tasks, and of the states before it, become the gold tables and the next states.

Makes DataFrames of rows and runs the functions of `gold` on them; what they mean is theirs. A little is one Spark job
in one task, without an exchange; much is one job per table, side by side.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from mew.pipeline import schemas
from mew.pipeline.gold.frame_numbers import misnumbered_frames
from mew.pipeline.gold.participant_activity import participant_activity
from mew.pipeline.gold.sequence_gaps import sequence_gaps
from mew.pipeline.gold.stream_activity import stream_activity
from mew.pipeline.gold.stream_ends import stream_ends, writer_totals
from mew.pipeline.gold.stream_summary import stream_summary
from mew.pipeline.jobs.results import ends_of
from mew.pipeline.silver import partials
from mew.pipeline.silver.frame_state import FrameState, widened, without_streams
from mew.pipeline.silver.partials import COLUMNS, MINUTE, OPEN_WINDOW, STREAM, WINDOW, WRITER, of_space, with_tag

LITTLE_ROWS: Final = 100_000
"""With fewer partial rows, planning and exchanges take longer than the work."""
JOBS: Final = 3
"""How many tables of a large batch are computed side by side."""
_WITH_UNTIL: Final = (WINDOW, OPEN_WINDOW, MINUTE, STREAM)
_LITTLE: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Without compilation: a few thousand rows are done before it would have paid."""
_MUCH: Final = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000"}
_RESULT: Final = "result"


@dataclass(frozen=True)
class SpaceEnd:
    """Where a batch ends in a space: the position and the time of its last record, of whatever kind."""

    position: int
    time: int


@dataclass(frozen=True)
class GoldTables:
    """The rows of a batch, of all spaces, and what the next batch continues from."""

    sequence_gaps: pa.Table
    stream_activity: pa.Table
    participant_activity: pa.Table
    streams: pa.Table
    misnumbered: pa.Table
    """Frames at the edges of units whose number does not follow the one before."""
    states: dict[str, FrameState]


def gold_tables(
    session: SparkSession,
    rows: pa.Table,
    lives: pa.Table,
    states: Mapping[str, FrameState],
    ends: Mapping[str, SpaceEnd],
) -> GoldTables:
    """The tables of a batch whose tasks yielded these rows; `lives` are the rows of `streams`, without counts."""
    before = [state.rows for state in states.values()]
    inputs = _inputs(pa.concat_tables([*before, rows]), states, ends)
    is_little = sum(table.num_rows for table in inputs.values()) <= LITTLE_ROWS
    own = configured_session(session, is_little=is_little)
    frames = {tag: own.createDataFrame(_in_one_chunk(table)) for tag, table in inputs.items()}
    lives_df = own.createDataFrame(_in_one_chunk(lives))
    if is_little:
        frames, lives_df = {tag: df.coalesce(1) for tag, df in frames.items()}, lives_df.coalesce(1)
    plans = _plans(frames, lives_df)
    results = _in_one_job(plans) if is_little else _side_by_side(own, plans)
    return _tables(results, states, ends)


@lru_cache(maxsize=4)
def configured_session(session: SparkSession, *, is_little: bool) -> SparkSession:
    """A sibling of the session with options of its own."""
    own = session.newSession()
    for name, value in (_LITTLE if is_little else _MUCH).items():
        own.conf.set(name, value)
    return own


def _in_one_chunk(table: pa.Table) -> pa.Table:
    """PySpark cannot read a list column that has no chunk at all."""
    return table.combine_chunks() if table.num_rows else table.schema.empty_table()


def _inputs(rows: pa.Table, states: Mapping[str, FrameState], ends: Mapping[str, SpaceEnd]) -> dict[str, pa.Table]:
    """The rows by kind, each with its own columns and what is known about its space."""
    until = {space: end.time for space, end in ends.items()}
    complete = {space: int(state.complete) for space, state in states.items()}
    inputs = {}
    for tag, columns in COLUMNS.items():
        table = with_tag(rows, tag).select(["space", *columns])
        if tag in _WITH_UNTIL:
            table = table.append_column("until", ends_of(until, table["space"]))
        if tag == STREAM:
            table = table.append_column("complete", ends_of(complete, table["space"]).cast(pa.bool_()))
        inputs[tag] = table
    return inputs


def _plans(frames: Mapping[str, DataFrame], lives: DataFrame) -> dict[str, DataFrame]:
    windows, streams, writers = frames[WINDOW], frames[STREAM], frames[WRITER]
    return {
        "stream_activity": stream_activity(windows, frames[OPEN_WINDOW], streams, writers),
        "sequence_gaps": sequence_gaps(frames[partials.GAP], writers),
        "participant_activity": participant_activity(windows, frames[MINUTE]),
        "streams": stream_summary(lives, writers),
        "stream_ends": stream_ends(streams),
        "writer_totals": writer_totals(writers),
        "misnumbered": misnumbered_frames(streams),
    }


def _side_by_side(session: SparkSession, plans: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    compute = inheritable_thread_target(session)(lambda plan: plan.toArrow())
    with ThreadPoolExecutor(JOBS) as jobs:
        return dict(zip(plans, jobs.map(compute, plans.values()), strict=True))


def _in_one_job(plans: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    named = [plan.withColumn(_RESULT, F.lit(name)) for name, plan in plans.items()]
    union_df = named[0]
    for plan in named[1:]:
        union_df = union_df.unionByName(plan, allowMissingColumns=True)
    rows = union_df.toArrow()
    return {name: rows.filter(pc.equal(rows[_RESULT], name)).select(plan.columns) for name, plan in plans.items()}


def _tables(
    results: Mapping[str, pa.Table], states: Mapping[str, FrameState], ends: Mapping[str, SpaceEnd]
) -> GoldTables:
    activity, minutes, streams = (results[name] for name in ("stream_activity", "participant_activity", "streams"))
    ended = streams.filter(pc.invert(streams[schemas.OPEN])).select(["space", "stream_id"])
    rest = pa.concat_tables(
        [
            widened(_in_micros(activity.filter(activity[schemas.OPEN])), OPEN_WINDOW),
            widened(_in_micros(_of_writer(minutes.filter(minutes[schemas.OPEN]))), MINUTE),
            widened(results["stream_ends"], STREAM),
            widened(results["writer_totals"], WRITER),
        ]
    )
    next_states = {
        space: FrameState(
            end.position,
            end.time,
            states[space].complete,
            without_streams(of_space(rest, space), of_space(ended, space)["stream_id"].combine_chunks()),
        )
        for space, end in ends.items()
    }
    return GoldTables(
        sequence_gaps=_rows(schemas.SEQUENCE_GAPS, results["sequence_gaps"], "position"),
        stream_activity=_rows(schemas.STREAM_ACTIVITY, activity, "stream_id", "seconds", "start"),
        participant_activity=_rows(schemas.PARTICIPANT_ACTIVITY, minutes, "participant", "start"),
        streams=_rows(schemas.STREAMS, streams, "position"),
        misnumbered=results["misnumbered"],
        states=next_states,
    )


def _rows(table: schemas.Table, rows: pa.Table, *order: str) -> pa.Table:
    """With the columns of the table, in the order in which they are written."""
    chosen = rows.select(table.schema.names).cast(table.schema)
    return chosen.sort_by([(name, "ascending") for name in ("space", *order)])


def _in_micros(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("start"), "start", rows["start"].cast(pa.int64()))


def _of_writer(minutes: pa.Table) -> Any:
    return minutes.rename_columns(["writer" if name == "participant" else name for name in minutes.column_names])
