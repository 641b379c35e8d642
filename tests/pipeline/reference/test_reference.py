"""Tasks and gold tables find in every journal what plain DataFrames find in its segments."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from mew.pipeline.lake import Lake
from mew.pipeline.lookup import query
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.reference import transforms as plain
from tools.journal_generator import generate

pytestmark = pytest.mark.timeout(150)  # the first of them waits for all journals
SEEDS = range(8)
RECORDS = 2_000
Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each seed a journal and its lake, made in batches of another size."""
    root = tmp_path_factory.mktemp("seeds")
    for seed in SEEDS:
        here = root / f"seed-{seed}"
        generate(here / "journal", records=RECORDS, spaces=1 + seed % 2, seed=seed, segment_bytes=40_000)
        run_all(here / "journal", here / "lake", most=None if seed % 3 else 450 + 31 * seed)
    return root


@pytest.fixture(scope="module")
def reference(folder: Path, spark: SparkSession) -> dict[str, DataFrame]:
    """The plain DataFrames of all of them together."""
    roots = [folder / f"seed-{seed}" / "journal" for seed in SEEDS]
    control_df, frames_df = (plain.segments(spark, roots, part) for part in ("control", "frames"))
    announced_df = plain.announced(control_df).cache()
    texts = [row[0] for row in announced_df.select(F.explode("formats")).distinct().collect()]
    texts += ['{"id":"binary-vector3"}', '{"mime_type":"application/json"}']
    decoded_df = plain.decoded(frames_df, announced_df, texts).cache()
    both_df = control_df.select("run", "space", "time").unionByName(frames_df.select("run", "space", "time"))
    last_df = both_df.groupBy("run", "space").agg(F.max(F.unix_micros("time")).alias("last"))
    gaps_df = plain.sequence_gaps(frames_df).cache()
    windows = [plain.stream_activity(decoded_df, gaps_df, last_df, seconds) for seconds in (1, 60)]
    return {"decoded": decoded_df, "gaps": gaps_df, "windows": windows[0].unionByName(windows[1])}


def found(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What all lakes answer, with the run in front."""
    rows = []
    for seed in SEEDS:
        with query(Lake(folder / f"seed-{seed}" / "lake"), sql) as answer:
            rows += [(f"seed-{seed}", *row) for row in answer]
    return sorted(rows, key=repr)


def told(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in df.toArrow().to_pylist()), key=repr)


def test_frames_and_quarantine(folder: Path, reference: dict[str, DataFrame]) -> None:
    decoded_df = reference["decoded"].selectExpr(
        *("run", "space", "stream_id", "position", "unix_micros(time) as time", "participant", "frame_number"),
        *("if(data, 'data', 'frame') as kind", "sequence", "size", "fingerprint"),
        "if(size(formats) = 0, null, get_json_object(descriptor, '$.id')) as format_id",
        *("if(shown, content, null) as value", "if(shown, null, payload) as raw"),
        "coalesce(reason, '') as reason",
        "descriptor is not null as judged",
    )
    expected = [_meant(row) for row in told(decoded_df)]
    sql = (
        "select f.space, f.stream_id, f.position, epoch_us(f.time), f.writer, f.frame_number, f.kind, f.sequence, "
        "f.size, f.format, f.format_id, f.value, f.raw, coalesce(q.reason, ''), f.valid is not null, "
        "f.valid, q.position is not null, q.payload from frames f left join quarantine q using (space, position)"
    )
    rows = found(folder, sql)
    assert len(rows) > 3_000
    assert {row[14] for row in rows} == {"", "not_json", "schema", "not_utf8", "length"}
    assert sorted((_meant(row[:16]) for row in rows), key=repr) == sorted(expected, key=repr)
    for row in rows:
        valid, is_quarantined, payload = row[16:]
        assert is_quarantined is (row[14] != "") is (valid is False)
        assert payload is None or row[13] is None or payload == row[13]


def _meant(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a `stream/data` carried may be written in many ways: what it means."""
    kind, value = row[7], row[12]
    if kind == "data" and value is not None:
        return (*row[:12], json.dumps(json.loads(value), sort_keys=True), *row[13:])
    return row


def test_sequence_gaps(folder: Path, reference: dict[str, DataFrame]) -> None:
    columns = "space, stream_id, writer, position, epoch_us(time), first, last, missing"
    rows = found(folder, f"select {columns} from sequence_gaps")
    assert len(rows) > 10
    assert rows == told(reference["gaps"])


def test_windows_of_a_second_and_of_a_minute(folder: Path, reference: dict[str, DataFrame]) -> None:
    columns = (
        "space, stream_id, seconds, epoch_us(start), frames, bytes, writers, invalid, missing, "
        "interarrival_p50, interarrival_p99, open"
    )
    rows = found(folder, f"select {columns} from stream_activity")
    assert len(rows) > 500
    assert {row[3] for row in rows} == {1, 60}
    assert {row[-1] for row in rows} == {True, False}
    assert rows == told(reference["windows"])
