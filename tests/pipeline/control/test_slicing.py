"""However a journal is cut into batches, tables and state end up the same."""

import os
import subprocess
import sys

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from mew.pipeline.control.folding import Folded, fold_control
from mew.pipeline.control.memory import FoldStateVersionError
from mew.pipeline.control.talks import LINGER, PATIENCE
from mew.pipeline.schemas import TABLES
from mew.protocol.state import SnapshotVersionError
from mew.testing import MemorySpace
from tests.pipeline.control.folded import Told, batch, control, fold_lab, tell, violations
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell(tmp_path_factory.mktemp("journals"), records=30_000, seed=77)[0]


def in_slices(space: str, whole: pa.RecordBatch, ends: list[int]) -> tuple[bytes, dict[str, pa.Table], list[Folded]]:
    """State, final rows of all slices and the last one's open rows, and each slice's own."""
    state, slices = None, []
    for end in ends:
        slices.append(fold_control(space, state, [whole], end))
        state = slices[-1].state
    tables = {}
    for name, last in slices[-1].tables.items():
        parts = [each.tables[name] for each in slices]
        if TABLES[name].unfinished:
            parts = [part.filter(pc.invert(part["open"])) for part in parts] + [last.filter(last["open"])]
        tables[name] = pa.concat_tables(parts).combine_chunks()
    assert state is not None
    return state, tables, slices


@examples(25, allow=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.floats(0, 1), max_size=9))
def test_a_story_in_slices_is_the_story_at_once(told: Told, cuts: set[float]) -> None:
    whole = batch(told.control)
    ends = sorted({round(cut * told.truth.last) for cut in cuts} | {told.truth.last})
    once = fold_control(told.truth.space, None, [whole], told.truth.last)
    state, tables, slices = in_slices(told.truth.space, whole, ends)
    assert state == once.state
    for name, table in tables.items():
        assert table.equals(once.tables[name]), name
    assert sum(each.checks.welcomes.checked for each in slices) == once.checks.welcomes.checked
    assert [claim for each in slices for claim in each.checks.welcomes.claims] == once.checks.welcomes.claims
    assert all(violations(each) == {} for each in slices)


@examples(60)
@given(steps=histories(), cuts=st.sets(st.floats(0, 1), max_size=4))
def test_any_history_is_folded_cleanly_and_in_slices_as_at_once(steps: list[Step], cuts: set[float]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    whole, last = batch(control(lab.records)), lab.records[-1].position
    once = fold_control("lab", None, [whole], last)
    assert violations(once) == {}
    state, tables, _ = in_slices("lab", whole, sorted({round(cut * last) for cut in cuts} | {last}))
    assert state == once.state
    for name, table in tables.items():
        assert table.equals(once.tables[name]), name


def test_record_by_record_is_as_good_as_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    short = tell(tmp_path_factory.mktemp("journals"), records=1_500, seed=5)[0]
    ends = sorted({record.position for record in short.control} | {short.truth.last})
    state, tables, _ = in_slices(short.truth.space, batch(short.control), ends)
    once = short.fold()
    assert state == once.state
    assert all(table.equals(once.tables[name]) for name, table in tables.items())


def test_rows_before_the_state_and_behind_the_end_are_passed_over(told: Told) -> None:
    space, whole, middle = told.truth.space, batch(told.control), told.truth.last // 2
    first = fold_control(space, None, [whole], middle)
    again = fold_control(space, first.state, [whole], middle)
    assert again.state == first.state
    assert again.checks.positions.checked == 0
    only_new = [each for each in told.control if middle < each.position]
    assert fold_control(space, first.state, [whole], told.truth.last).state == (
        fold_control(space, first.state, [batch(only_new)], told.truth.last).state
    )


def test_the_state_is_json_with_its_version_space_and_position(told: Told) -> None:
    folded = told.fold()
    value = msgspec.json.decode(folded.state)
    assert (value["fold_version"], value["space"], value["position"]) == (2, told.truth.space, told.truth.last)
    assert [stay["participant"] for stay in value["stays"]] == told.truth.present
    assert list(value) == sorted(value)


def test_the_state_forgets_what_is_over() -> None:
    lab = MemorySpace(**CONFIGURATION)
    sizes = []
    for _ in range(5):
        alice = lab.join("alice")
        for _ in range(20):
            alice.send(kind="chat", payload={"text": "anybody?"})
            alice.send(kind="stream/request", payload={"description": "short"})
            stream_id = alice.take("stream/open")["payload"]["stream_id"]
            alice.send(kind="stream/close", payload={"stream_id": stream_id})
        alice.leave()
        lab.advance((PATIENCE + LINGER) / 1_000_000)
        lab.join("bob").leave()
        sizes.append(len(fold_lab(lab).state))
    assert max(sizes) - min(sizes) < 50


def test_a_state_of_another_space_or_version_or_of_nothing_is_refused(told: Told) -> None:
    folded, space = told.fold(), told.truth.space
    with pytest.raises(FoldStateVersionError, match="this is the state of 'harbour', not of 'elsewhere'"):
        fold_control("elsewhere", folded.state, [], told.truth.last)
    with pytest.raises(FoldStateVersionError, match="cannot be read"):
        fold_control(space, b"{", [], told.truth.last)
    with pytest.raises(FoldStateVersionError, match=f"folded up to {told.truth.last}, and cannot be up to 5"):
        fold_control(space, folded.state, [], 5)
    for name in ("fold_version", "control_version"):
        value = {**msgspec.json.decode(folded.state), name: 99}
        with pytest.raises(SnapshotVersionError, match="version 99"):
            fold_control(space, msgspec.json.encode(value), [], told.truth.last)


_DIGEST = """
import hashlib, sys
from pathlib import Path
from mew.journal.reader import Journal
from mew.pipeline.control.folding import fold_control
batches = Journal(Path(sys.argv[1]), "harbour").batches(control=True)
folded = fold_control("harbour", None, batches, int(sys.argv[2]))
print(hashlib.sha256(folded.state).hexdigest(), [(name, table.to_pylist()) for name, table in folded.tables.items()])
"""


def test_another_process_gives_the_same_rows_in_the_same_order(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("journals")
    told = tell(root, records=30_000, seed=9)[0]
    command = [sys.executable, "-c", _DIGEST, str(root / "9" / "journal"), str(told.truth.last)]
    answers = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=50
        ).stdout
        for seed in "123"
    }
    assert len(answers) == 1
