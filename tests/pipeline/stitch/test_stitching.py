"""However frames are cut into units and batches, what comes of them is what one plain loop over all of them finds."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.pipeline.kernel.catalogue import Access, Catalogue, StreamFormats
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.processing import process
from mew.pipeline.kernel.summary import Summary, decode_summary, encode_summary
from mew.pipeline.kernel.units import Unit
from mew.pipeline.stitch.activity import ControlActivity, Minute
from mew.pipeline.stitch.state import MergeStateVersionError
from mew.pipeline.stitch.stitching import MergeTarget, OutOfOrder, Stitched, merge
from tests.pipeline.kernel.journals import SPACE, START, data_row, row, table
from tests.pipeline.stitch.naive import SECOND, answers, quantile
from tests.support.hypothesis_settings import examples

FORMAT = {"id": "f", "mime_type": "application/json", "schema": {"type": "object"}}
STREAMS = ("s", "t", "u")
WRITERS = ("ann", "bob")
PROBES = tuple(range(3, 400, 7))
CATALOGUE = Catalogue(
    SPACE,
    {name: StreamFormats((format_of(FORMAT),)) for name in STREAMS},
    {name: tuple(Access(writer, -1) for writer in WRITERS) for name in STREAMS},
    PROBES,
)
WAITS = st.sampled_from([0, 1, 17, 900, 33_000, 250_000, 999_999, 1_000_000, 7_500_000, 61_000_000])
STEP = st.tuples(
    st.integers(1, 3), WAITS, st.sampled_from(STREAMS), st.sampled_from(WRITERS), st.booleans(), st.integers(0, 9)
)


@st.composite
def journals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Frames of three streams and two writers: some data with numbers left out, some that do not fit."""
    rows: list[dict[str, Any]] = []
    position, time = -1, START
    numbers: dict[str, int] = {}
    sequences: dict[tuple[str, str], int] = {}
    for step, wait, stream, writer, is_data, chance in draw(st.lists(STEP, max_size=60)):
        position, time = position + step, time + wait
        numbers[stream] = numbers.get(stream, 0) + 1 + (chance == 8)
        content = b"[1]" if chance == 0 else b'{"a":1}'
        common = {"time": time, "stream_id": stream, "participant": writer, "frame_number": numbers[stream]}
        if is_data:
            left_out = 0 if chance < 5 else chance - 4
            sequence = sequences[stream, writer] = sequences.get((stream, writer), -1) + 1 + left_out
            rows.append(data_row(position, content, sequence=sequence, **common))
        else:
            rows.append(row(position, content if chance != 1 else b"{", **common))
    return rows


def units(rows: Sequence[dict[str, Any]], edges: Sequence[int], first: int, last: int) -> list[Summary]:
    """The summaries of a range that is cut behind these positions, as they come from another process."""
    bounds = sorted({first - 1, last, *(edge for edge in edges if first <= edge < last)})
    found = []
    for before, end in pairwise(bounds):
        within = [each for each in rows if before < each["position"] <= end]
        unit = Unit(SPACE, "", before + 1, end)
        found.append(process(unit, table(within), CATALOGUE, DecodeOptions()).summary)
    return [decode_summary(encode_summary(each)) for each in found]


def in_batches(rows: list[dict[str, Any]], edges: Sequence[int], ends: Sequence[int], last: int) -> list[Stitched]:
    """Stitched batch by batch."""
    state, first, found = None, 0, []
    for end in sorted({last, *(end for end in ends if end < last)}):
        time = max((each["time"] for each in rows if each["position"] <= end), default=START)
        batch = merge(state, units(rows, edges, first, end), ControlActivity(), MergeTarget(SPACE, end, time))
        state, first = batch.state, end + 1
        found.append(batch)
    return found


def finished(batches: list[Stitched], name: str) -> list[dict[str, Any]]:
    """The rows of all batches that are final, and those of the last that are open: what a table ends up with."""
    tables = [getattr(each, name) for each in batches]
    rows = [each for table_ in tables for each in table_.to_pylist() if not each.get("open", False)]
    rows += [each for each in tables[-1].to_pylist() if each.get("open", False)]
    return sorted(rows, key=lambda each: [str(value) for value in each.values()])


def at(time: int) -> datetime:
    return datetime.fromtimestamp(time // SECOND, UTC).replace(microsecond=time % SECOND)


CUTS = st.lists(st.integers(0, 190), max_size=12)


@examples(150)
@given(rows=journals(), edges=CUTS, ends=CUTS)
def test_cutting_anywhere_changes_nothing(rows: list[dict[str, Any]], edges: list[int], ends: list[int]) -> None:
    last = rows[-1]["position"] + 2 if rows else 5
    whole, cut = in_batches(rows, [], [], last), in_batches(rows, edges, ends, last)
    assert cut[-1].state == whole[-1].state
    assert cut[-1].totals == whole[-1].totals
    for name in ("sequence_gaps", "stream_activity", "participant_activity"):
        assert finished(cut, name) == finished(whole, name)
    assert sum(each.misnumbered.count for each in cut) == whole[-1].misnumbered.count


@examples(150)
@given(rows=journals(), edges=CUTS)
def test_it_is_what_one_loop_over_all_rows_finds(rows: list[dict[str, Any]], edges: list[int]) -> None:
    last = rows[-1]["position"] if rows else 5
    time = rows[-1]["time"] if rows else START
    found = in_batches(rows, edges, [], last)[-1]
    invalid = {each["position"] for each in rows if each["payload"] == b"{" or b"[1]" in each["payload"]}
    wanted = answers(rows, invalid)
    gaps = [tuple(each.values())[1:] for each in found.sequence_gaps.to_pylist()]
    assert gaps == [(*each[:3], at(each[3]), *each[4:]) for each in wanted.gaps]
    activity = {(each["stream_id"], each["seconds"], each["start"]): each for each in found.stream_activity.to_pylist()}
    assert len(activity) == found.stream_activity.num_rows
    assert activity == {
        (stream, seconds, at(start)): {
            "space": SPACE,
            "stream_id": stream,
            "seconds": seconds,
            "start": at(start),
            "frames": window.frames,
            "bytes": window.bytes,
            "writers": sorted(window.writers),
            "invalid": window.invalid,
            "missing": window.missing,
            "interarrival_p50": quantile(window.waits, 50),
            "interarrival_p99": quantile(window.waits, 99),
            "open": start + seconds * SECOND > time,
        }
        for (stream, seconds, start), window in wanted.windows.items()
    }
    totals = {name: (each.frames, each.data, each.bytes, each.invalid) for name, each in found.totals.items()}
    assert totals == wanted.totals
    minutes = {(each["participant"], each["start"]): each for each in found.participant_activity.to_pylist()}
    assert {key: [each["frames"], each["bytes"]] for key, each in minutes.items()} == {
        (writer, at(start)): counts for (writer, start), counts in wanted.minutes.items()
    }
    assert found.misnumbered.count == len(wanted.misnumbered)
    assert [each.position for each in found.misnumbered.sample] == wanted.misnumbered[:20]


@examples(100)
@given(rows=journals(), edges=CUTS, ends=CUTS)
def test_at_each_probe_the_numbers_are_those_of_the_frames_before_it(
    rows: list[dict[str, Any]], edges: list[int], ends: list[int]
) -> None:
    last = rows[-1]["position"] + 2 if rows else 5
    batches = in_batches(rows, edges, ends, last)
    first = 0
    for batch, end in zip(batches, sorted({last, *(end for end in ends if end < last)}), strict=True):
        numbers, changes = dict(batch.numbers), {each.position: each.numbers for each in batch.probes}
        for probe in (each for each in PROBES if first <= each <= end):
            numbers |= changes.get(probe, {})
            before = {each["stream_id"]: each["frame_number"] for each in rows if each["position"] < probe}
            assert numbers == before
        first = end + 1


def test_a_minute_has_what_somebody_sent_and_what_somebody_did() -> None:
    rows = [row(0, b"{}"), row(1, b"{}", time=START + 61 * SECOND)]
    control = ControlActivity(
        (
            Minute("ann", START, {"chat": 2, "stream/close": 1}, 1),
            Minute("bob", START + 60 * SECOND, {}, 3),
        )
    )
    found = merge(None, units(rows, [], 0, 4), control, MergeTarget(SPACE, 4, START + 62 * SECOND))
    shown = [list(each.values())[1:] for each in found.participant_activity.to_pylist()]
    kinds = [{"kind": "chat", "count": 2}, {"kind": "stream/close", "count": 1}]
    assert shown == [
        ["ann", at(START), 3, kinds, 1, 1, 2, False],
        ["ann", at(START + 60 * SECOND), 0, [], 0, 1, 2, True],
        ["bob", at(START + 60 * SECOND), 0, [], 3, 0, 0, True],
    ]


def test_what_control_adds_to_an_open_minute_comes_to_what_was_there() -> None:
    first = merge(None, [], ControlActivity((Minute("ann", START, {"chat": 1}),)), MergeTarget(SPACE, 4, START + 1))
    second = ControlActivity((Minute("ann", START, {"chat": 2}, 1),))
    found = merge(first.state, [], second, MergeTarget(SPACE, 9, START + 60 * SECOND))
    assert [each["open"] for each in first.participant_activity.to_pylist()] == [True]
    (shown,) = found.participant_activity.to_pylist()
    assert (shown["envelopes"], shown["refusals"], shown["open"]) == (3, 1, False)
    assert b'"minutes":[]' in found.state


def test_a_batch_without_frames_closes_the_windows_that_are_over() -> None:
    first = merge(None, units([row(0)], [], 0, 0), ControlActivity(), MergeTarget(SPACE, 0, START))
    assert set(first.stream_activity["open"].to_pylist()) == {True}
    found = merge(first.state, [], ControlActivity(), MergeTarget(SPACE, 9, START + 60 * SECOND))
    assert set(found.stream_activity["open"].to_pylist()) == {False}
    assert found.stream_activity.num_rows == 2


def test_where_a_journal_begins_late_a_streams_first_number_may_be_any() -> None:
    rows = [row(10, frame_number=500)]
    for floor, wrong in ((0, 1), (10, 0)):
        found = merge(None, units(rows, [], floor, 10), ControlActivity(), MergeTarget(SPACE, 10, START, floor=floor))
        assert found.misnumbered.count == wrong


@pytest.mark.parametrize(("first", "second"), [((0, 5), (5, 9)), ((0, 5), (0, 5)), ((4, 5), (0, 3))])
def test_units_that_do_not_follow_each_other_are_refused(first: tuple[int, int], second: tuple[int, int]) -> None:
    summaries = [Summary(SPACE, *first), Summary(SPACE, *second)]
    with pytest.raises(OutOfOrder):
        merge(None, summaries, ControlActivity(), MergeTarget(SPACE, 9, START))


def test_a_state_cannot_go_back() -> None:
    known = merge(None, [], ControlActivity(), MergeTarget(SPACE, 9, START))
    with pytest.raises(OutOfOrder, match="9"):
        merge(known.state, [], ControlActivity(), MergeTarget(SPACE, 8, START))


@pytest.mark.parametrize("state", [b"", b"{}", b'{"version":0,"position":1,"time":1,"complete":true}'])
def test_a_state_that_is_none_is_refused(state: bytes) -> None:
    with pytest.raises(MergeStateVersionError):
        merge(state, [], ControlActivity(), MergeTarget(SPACE, 9, START))


def test_a_state_is_canonical() -> None:
    found = in_batches([row(0), row(1, stream_id="t", participant="bob", frame_number=1)], [0], [], 3)[-1]
    assert msgspec.json.encode(msgspec.json.decode(found.state), order="sorted") == found.state


def test_a_clock_that_steps_back_stops_nothing_and_loses_nothing() -> None:
    times = [START, START + 5 * SECOND, START + 3 * SECOND, START + 9 * SECOND]
    rows = [row(index, time=time) for index, time in enumerate(times)]
    found = in_batches(rows, [1], [], 3)[-1]
    seconds = pa.compute.equal(found.stream_activity["seconds"], 1)
    assert pa.compute.sum(found.stream_activity.filter(seconds)["frames"]).as_py() == 4


def test_a_stream_that_has_ended_is_counted_and_then_forgotten() -> None:
    rows = [row(0), row(1, stream_id="t", participant="bob", frame_number=1)]
    until = MergeTarget(SPACE, 1, rows[-1]["time"])
    found = merge(None, units(rows, [], 0, 1), ControlActivity(), until, {"s"})
    assert found.totals.keys() == {"s", "t"}
    assert found.totals["s"].frames == 1
    after = merge(found.state, [], ControlActivity(), MergeTarget(SPACE, 2, until.time))
    assert after.totals.keys() == {"t"}
