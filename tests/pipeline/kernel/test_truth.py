"""On generated journals the kernel finds in each unit exactly what the stories behind them know."""

from pathlib import Path

import pyarrow as pa
import pytest

from mew.journal.arrow import SCHEMA
from mew.journal.layout import JournalFolder
from mew.pipeline.kernel import units
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.processing import UnitResult, process
from mew.pipeline.silver.partials import MISNUMBERED, UNAUTHORISED, WRITER, with_tag
from tests.pipeline.kernel.journals import true_catalogue
from tools.journal_generator import SpaceTruth, generate

Told = dict[str, tuple[SpaceTruth, list[UnitResult]]]


def work(root: Path, truth: SpaceTruth, cuts: int) -> list[UnitResult]:
    """Everything about a space, in units of about so many positions."""
    of = true_catalogue(truth)
    everything = frozenset(each.fingerprint for stream in of.streams.values() for each in stream.formats)
    last = JournalFolder(root, truth.space).segments()[-1].last
    return [
        process(unit, pa.concat_tables([SCHEMA.empty_table(), *units.read(unit)]), of, DecodeOptions(everything))
        for unit in cut_finely(of, root, last, cuts)
    ]


def partials_of(done: list[UnitResult]) -> pa.Table:
    return pa.Table.from_batches([rows for result in done for rows in result.partials])


def cut_finely(of: Catalogue, root: Path, last: int, size: int) -> list[units.Unit]:
    edges = range(0, last + 1, size)
    return [units.Unit(of.space, str(root), first, min(first + size - 1, last)) for first in edges]


@pytest.fixture(scope="module", params=[1, 2])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    root = tmp_path_factory.mktemp("truth") / "journal"
    truth = generate(root, records=60_000, spaces=2, seed=request.param, segment_bytes=1 << 20)
    return {name: (each, work(root, each, 7_001)) for name, each in truth.spaces.items()}


def test_what_is_malformed_is_in_quarantine_and_nothing_else(told: Told) -> None:
    for truth, done in told.values():
        wanted = {
            each.position: (stream.stream_id, each.frame_number, each.why)
            for stream in truth.streams.values()
            for each in stream.malformed
        }
        tables = pa.concat_tables([each.quarantine for each in done])
        found = {
            each["position"]: (each["stream_id"], each["frame_number"], each["reason"]) for each in tables.to_pylist()
        }
        assert {why for _, _, why in wanted.values()} == {"not_json", "schema", "not_utf8", "length"}
        assert found == wanted


def test_every_frame_is_there_once(told: Told) -> None:
    for truth, done in told.values():
        frames = pa.concat_tables([each.frames for each in done])
        positions = frames["position"].to_numpy()
        assert (positions[1:] > positions[:-1]).all()
        wanted = {
            (stream.stream_id, writer): (each.frames, each.data, each.bytes)
            for stream in truth.streams.values()
            for writer, each in stream.by_writer.items()
            if each.frames or each.data
        }
        found: dict[tuple[str, str], list[int]] = {}
        for stream, writer, kind, size in zip(
            *(frames[name].to_pylist() for name in ("stream_id", "writer", "kind", "size")), strict=True
        ):
            counts = found.setdefault((stream, writer), [0, 0, 0])
            counts[kind == "data"] += 1
            counts[2] += size
        assert {key: tuple(counts) for key, counts in found.items()} == wanted
        writers = with_tag(partials_of(done), WRITER)
        columns = ["frames", "data", "bytes"]
        totals = writers.group_by(["stream_id", "writer"]).aggregate([(name, "sum") for name in columns])
        rows = [tuple(row.values()) for row in totals.to_pylist()]
        assert {row[:2]: row[2:] for row in rows} == wanted


def test_nobody_wrote_who_could_not_and_no_number_is_wrong(told: Told) -> None:
    for _, done in told.values():
        tags = set(partials_of(done)["tag"].to_pylist())
        assert WRITER in tags
        assert not tags & {UNAUTHORISED, MISNUMBERED}


def test_typed_tables_hold_every_valid_frame_of_their_format(told: Told) -> None:
    for _, done in told.values():
        frames = pa.concat_tables([each.frames for each in done]).select(["format", "valid"]).to_pylist()
        fingerprints = {each for result in done for each in result.typed}
        assert len(fingerprints) > 3
        for fingerprint in fingerprints:
            rows = sum(each.typed[fingerprint].num_rows for each in done if fingerprint in each.typed)
            assert rows == sum(1 for each in frames if each["format"] == fingerprint and each["valid"])
