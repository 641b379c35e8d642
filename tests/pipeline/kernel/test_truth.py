"""On generated journals the kernel and the stitch find exactly what the stories behind them know."""

from pathlib import Path

import pyarrow as pa
import pytest

from mew.journal.arrow import SCHEMA
from mew.journal.layout import JournalFolder
from mew.pipeline.kernel import units
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.processing import UnitResult, process
from mew.pipeline.stitch.activity import ControlActivity
from mew.pipeline.stitch.stitching import MergeTarget, Stitched, merge
from tests.pipeline.kernel.journals import true_catalogue
from tools.journal_generator import SpaceTruth, generate

Told = dict[str, tuple[SpaceTruth, list[UnitResult], Stitched]]


def work(root: Path, truth: SpaceTruth, cuts: int) -> tuple[list[UnitResult], Stitched]:
    """Everything about a space, in units of about so many positions."""
    of = true_catalogue(truth)
    everything = frozenset(each.fingerprint for stream in of.streams.values() for each in stream.formats)
    last = JournalFolder(root, truth.space).segments()[-1].last
    done = [
        process(unit, pa.concat_tables([SCHEMA.empty_table(), *units.read(unit)]), of, DecodeOptions(everything))
        for unit in cut_finely(of, root, last, cuts)
    ]
    until = MergeTarget(truth.space, last, truth.last_time)
    return done, merge(None, [each.summary for each in done], ControlActivity(), until)


def cut_finely(of: Catalogue, root: Path, last: int, size: int) -> list[units.Unit]:
    edges = range(0, last + 1, size)
    return [units.Unit(of.space, str(root), first, min(first + size - 1, last)) for first in edges]


@pytest.fixture(scope="module", params=[1, 2])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    root = tmp_path_factory.mktemp("truth") / "journal"
    truth = generate(root, records=60_000, spaces=2, seed=request.param, segment_bytes=1 << 20)
    return {name: (each, *work(root, each, 7_001)) for name, each in truth.spaces.items()}


def test_what_is_malformed_is_in_quarantine_and_nothing_else(told: Told) -> None:
    for truth, done, _ in told.values():
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
    for truth, done, stitched in told.values():
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
        totals = {stream_id: (each.frames, each.data, each.bytes) for stream_id, each in stitched.totals.items()}
        assert totals == {
            stream.stream_id: (stream.frames, stream.data, stream.bytes)
            for stream in truth.streams.values()
            if stream.frames or stream.data
        }


def test_what_writers_left_out_are_the_gaps(told: Told) -> None:
    for truth, _, stitched in told.values():
        wanted = [
            (stream.stream_id, each.writer, each.first, each.last, each.position + 1)
            for stream in truth.streams.values()
            for each in stream.skipped
        ]
        rows = stitched.sequence_gaps.to_pylist()
        # The gap's own record stands just before that of the frame that reveals it.
        found = [tuple(row[name] for name in ("stream_id", "writer", "first", "last", "position")) for row in rows]
        assert wanted
        assert sorted(found) == sorted(wanted)
        assert all(row["missing"] == row["last"] - row["first"] + 1 for row in rows)


def test_windows_add_up_to_all_there_is(told: Told) -> None:
    for truth, _, stitched in told.values():
        rows = stitched.stream_activity.to_pylist()
        for seconds in (1, 60):
            some = [row for row in rows if row["seconds"] == seconds]
            assert len({(row["stream_id"], row["start"]) for row in some}) == len(some)
            streams = truth.streams.values()
            assert sum(row["frames"] for row in some) == sum(each.frames + each.data for each in streams)
            assert sum(row["bytes"] for row in some) == sum(each.bytes for each in streams)
            assert sum(row["invalid"] for row in some) == sum(len(each.malformed) for each in streams)
            skipped = sum(gap.last - gap.first + 1 for each in streams for gap in each.skipped)
            assert sum(row["missing"] for row in some) == skipped


def test_nobody_wrote_who_could_not_and_no_number_is_wrong(told: Told) -> None:
    for _, _, stitched in told.values():
        assert stitched.unauthorised.count == stitched.misnumbered.count == 0


def test_typed_tables_hold_every_valid_frame_of_their_format(told: Told) -> None:
    for _, done, _ in told.values():
        frames = pa.concat_tables([each.frames for each in done]).select(["format", "valid"]).to_pylist()
        fingerprints = {each for result in done for each in result.typed}
        assert len(fingerprints) > 3
        for fingerprint in fingerprints:
            rows = sum(each.typed[fingerprint].num_rows for each in done if fingerprint in each.typed)
            assert rows == sum(1 for each in frames if each["format"] == fingerprint and each["valid"])
