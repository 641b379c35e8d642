"""However frames are cut into units and batches, the gold tables are what one plain loop over all frames finds.

Each history is a space of its own, so that one Spark job counts many of them.
"""

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mew.pipeline import schemas
from mew.pipeline.jobs import gold
from mew.pipeline.jobs.gold import GoldTables, SpaceEnd, gold_tables
from mew.pipeline.kernel.catalogue import Access, Catalogue, StreamFormats
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.processing import process
from mew.pipeline.kernel.units import Unit
from mew.pipeline.silver.frame_state import FrameState, begin, decode_frame_state
from mew.pipeline.silver.partials import MISNUMBERED, PARTIALS, of_space, with_tag
from tests.pipeline.kernel.journals import START, data_row, row, table
from tests.pipeline.kernel.naive import SECOND, Answers, answers, quantile

HISTORIES = 60
IN_ORDER = [("space", "ascending"), ("position", "ascending")]
STREAMS, WRITERS = ("s", "t", "u"), ("ann", "bob")
FORMAT = {"id": "f", "mime_type": "application/json", "schema": {"type": "object"}}
WAITS = (0, 1, 17, 900, 33_000, 250_000, 999_999, 1_000_000, 7_500_000, 61_000_000)
Rows = list[dict[str, Any]]
Histories = Mapping[str, Rows]


def history(chance: random.Random) -> Rows:
    """Frames of three streams and two writers: some data with numbers left out, some that do not fit."""
    rows: Rows = []
    position, time = -1, START
    numbers: dict[str, int] = {}
    sequences: dict[tuple[str, str], int] = {}
    for _ in range(chance.randrange(60)):
        position, time = position + chance.randint(1, 3), time + chance.choice(WAITS)
        stream, writer, luck = chance.choice(STREAMS), chance.choice(WRITERS), chance.randrange(10)
        numbers[stream] = numbers.get(stream, 0) + 1 + (luck == 8)
        content = b"[1]" if luck == 0 else b'{"a":1}'
        common: dict[str, Any] = {
            "time": time,
            "stream_id": stream,
            "participant": writer,
            "frame_number": numbers[stream],
        }
        if chance.random() < 0.5:
            left_out = 0 if luck < 5 else luck - 4
            sequence = sequences[stream, writer] = sequences.get((stream, writer), -1) + 1 + left_out
            rows.append(data_row(position, content, sequence=sequence, **common))
        else:
            rows.append(row(position, content if luck != 1 else b"{", **common))
    return rows


@pytest.fixture(scope="module")
def histories() -> dict[str, Rows]:
    return {f"space-{number}": history(random.Random(number)) for number in range(HISTORIES)}


def last_of(rows: Rows) -> int:
    return rows[-1]["position"] + 2 if rows else 5


def units_of(space: str, rows: Rows, edges: list[int]) -> Iterator[pa.RecordBatch]:
    """The partial rows of a history that is cut behind these positions."""
    of = Catalogue(
        space,
        {name: StreamFormats((format_of(FORMAT),)) for name in STREAMS},
        {name: tuple(Access(writer, -1) for writer in WRITERS) for name in STREAMS},
    )
    for before, end in pairwise(edges):
        within = [each for each in rows if before < each["position"] <= end]
        yield from process(Unit(space, "", before + 1, end), table(within), of, DecodeOptions()).partials


def count(
    session: SparkSession, histories: Mapping[str, Rows], cuts: Mapping[str, list[list[int]]]
) -> list[GoldTables]:
    """Batch after batch; `cuts` has by space the edges of the units of each batch."""
    states: dict[str, FrameState] = {space: begin(0) for space in histories}
    found = []
    for number in range(max(map(len, cuts.values()))):
        ends: dict[str, SpaceEnd] = {}
        batches: list[pa.RecordBatch] = []
        for space, rows in histories.items():
            edges = cuts[space][number]
            batches += units_of(space, rows, edges)
            time = max((each["time"] for each in rows if each["position"] <= edges[-1]), default=START)
            ends[space] = SpaceEnd(edges[-1], time)
        rows = pa.Table.from_batches(batches, PARTIALS)
        made = gold_tables(session, rows, schemas.STREAMS.schema.empty_table(), states, ends)
        states = {space: decode_frame_state(state.encode()) for space, state in made.states.items()}
        found.append(made)
    return found


@pytest.fixture(scope="module")
def whole(spark: SparkSession, histories: dict[str, Rows]) -> GoldTables:
    """In one unit each."""
    (found,) = count(spark, histories, {space: [[-1, last_of(rows)]] for space, rows in histories.items()})
    return found


def test_it_is_what_one_loop_over_all_rows_finds(whole: GoldTables, histories: dict[str, Rows]) -> None:
    for space, rows in histories.items():
        invalid = {each["position"] for each in rows if each["payload"] == b"{" or b"[1]" in each["payload"]}
        wanted = answers(rows, invalid)
        assert in_space(whole.sequence_gaps, space) == [
            tuple(each) for each in sorted(wanted.gaps, key=lambda gap: gap[2])
        ]
        time = rows[-1]["time"] if rows else START
        assert in_space(whole.stream_activity, space) == windows(wanted, time)
        minutes = [each[:2] + each[5:7] for each in in_space(whole.participant_activity, space)]
        assert minutes == [(*key, *counts) for key, counts in sorted(wanted.minutes.items())]


def in_space(rows: pa.Table, space: str) -> list[tuple[Any, ...]]:
    """Rows of a space in order, without its name; times as microseconds since 1970."""
    here = of_space(rows, space).drop_columns(["space"])
    for index, field in enumerate(here.schema):
        if pa.types.is_timestamp(field.type):
            here = here.set_column(index, field.name, here.column(index).cast(pa.int64()))
    return [tuple(each.values()) for each in here.to_pylist()]


def windows(wanted: Answers, time: int) -> list[tuple[Any, ...]]:
    return [
        (
            *(stream, seconds, start, window.frames, window.bytes, sorted(window.writers)),
            *(window.invalid, window.missing, quantile(window.waits, 50), quantile(window.waits, 99)),
            start + seconds * SECOND > time,
        )
        for (stream, seconds, start), window in sorted(wanted.windows.items())
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_cutting_anywhere_changes_nothing(
    spark: SparkSession, whole: GoldTables, histories: dict[str, Rows], seed: int
) -> None:
    chance = random.Random(seed)
    cuts = {}
    for space, rows in histories.items():
        edges = sorted({-1, last_of(rows), *(chance.randrange(last_of(rows)) for _ in range(9))})
        third = len(edges) // 3
        cuts[space] = [edges[: third + 1], edges[third : 2 * third + 1], edges[2 * third :]]
    batches = count(spark, histories, cuts)
    for space in histories:
        assert batches[-1].states[space].encode() == whole.states[space].encode()
        for name in ("sequence_gaps", "stream_activity", "participant_activity"):
            assert finished(batches, name, space) == in_space(getattr(whole, name), space), (space, name)


def test_many_rows_are_counted_by_a_job_per_table_and_are_the_same(
    spark: SparkSession, whole: GoldTables, histories: dict[str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gold, "LITTLE_ROWS", 0)
    (found,) = count(spark, histories, {space: [[-1, last_of(rows)]] for space, rows in histories.items()})
    for name in ("sequence_gaps", "stream_activity", "participant_activity", "streams"):
        assert getattr(found, name) == getattr(whole, name), name
    assert found.misnumbered.sort_by(IN_ORDER) == whole.misnumbered.sort_by(IN_ORDER)
    for space in histories:
        assert found.states[space].encode() == whole.states[space].encode()


def finished(batches: list[GoldTables], name: str, space: str) -> list[tuple[Any, ...]]:
    """The rows of all batches that are final, and those of the last that are open: what a table ends up with."""
    rows = [each for batch in batches[:-1] for each in in_space(getattr(batch, name), space) if each[-1] is not True]
    rows += in_space(getattr(batches[-1], name), space)
    return sorted(rows, key=lambda each: each[2] if name == "sequence_gaps" else each[:3])


def test_a_wrong_number_is_found_once_at_an_edge_or_within(spark: SparkSession, histories: dict[str, Rows]) -> None:
    cuts = {space: [[-1, *range(4, last_of(rows), 9), last_of(rows)]] for space, rows in histories.items()}
    (made,) = count(spark, histories, cuts)
    for space, rows in histories.items():
        partials = [
            with_tag(pa.Table.from_batches([each]), MISNUMBERED) for each in units_of(space, rows, cuts[space][0])
        ]
        within = [position for some in partials for position in some["position"].to_pylist()]
        at_edges = of_space(made.misnumbered, space)["position"].to_pylist()
        assert sorted([*within, *at_edges]) == answers(rows, set()).misnumbered


def test_a_clock_that_steps_back_loses_nothing(spark: SparkSession) -> None:
    times = [START, START + 5 * SECOND, START + 3 * SECOND, START + 9 * SECOND]
    rows = [row(index, time=time) for index, time in enumerate(times)]
    batches = count(spark, {"lab": rows}, {"lab": [[-1, 1], [1, 2, 3]]})
    seconds = [each for each in finished(batches, "stream_activity", "lab") if each[1] == 1]
    assert [(each[2], each[3]) for each in seconds] == [(time, 1) for time in sorted(times)]
