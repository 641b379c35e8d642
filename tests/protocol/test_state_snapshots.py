"""States as canonical bytes and back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import FOLD_VERSION, SpaceState, fold, restore, snapshot
from mew.testing import MemorySpace
from tests.protocol.states import plain, rich_state
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

by_chance = examples(30)


def test_the_rich_state_is_rich() -> None:
    state = msgspec.structs.asdict(rich_state())
    assert [name for name, value in state.items() if value in ({}, (), "", 0)] == []


def test_a_rich_state_comes_back_whole() -> None:
    state = rich_state()
    assert plain(restore(snapshot(state))) == plain(state)


def test_an_empty_state_comes_back_whole() -> None:
    state = SpaceState(space_id="lab")
    assert plain(restore(snapshot(state))) == plain(state)


def test_defaults_that_were_configured_come_back() -> None:
    lab = MemorySpace(defaults=[{"kind": "memo"}, {"kind": "note"}])
    assert [capability.pattern["kind"] for capability in restore(snapshot(lab.state)).defaults] == ["memo", "note"]


@by_chance
@given(steps=histories())
def test_any_state_comes_back_whole_and_goes_on_the_same(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    history.play_all(steps)
    state = restore(snapshot(lab.state))
    assert plain(state) == plain(lab.state)
    count = len(lab.records)
    history.play_all(steps)
    for record in lab.records[count:]:
        state = fold(state, record)
    assert snapshot(state) == snapshot(lab.state)


@by_chance
@given(steps=histories())
def test_a_snapshot_is_made_of_its_own_restoration(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    text = snapshot(lab.state)
    assert snapshot(restore(text)) == text


UNORDERED = [
    "configured",
    "invited",
    "kicked",
    "grants",
    "grant_ends",
    "revoked",
    "paused",
    "closing",
    "left",
    "desired_ids",
]


def _crowded_state() -> SpaceState:
    """The rich one, with a few more entries in each table."""
    state = rich_state()
    for name in UNORDERED:
        setattr(state, name, {**getattr(state, name), **_more_of(state, name)})
    return state


def orders() -> st.SearchStrategy[dict[str, list[Any]]]:
    """The keys of each table in any order."""
    state = _crowded_state()
    return st.fixed_dictionaries({name: st.permutations(list(getattr(state, name))) for name in UNORDERED})


@by_chance
@given(order=st.deferred(orders))
def test_equal_states_give_equal_bytes_however_they_came_about(order: dict[str, list[Any]]) -> None:
    one = _crowded_state()
    other = restore(snapshot(one))
    for name, keys in order.items():
        setattr(other, name, {key: getattr(one, name)[key] for key in keys})
    other.sequences = {name: dict(reversed(sequences.items())) for name, sequences in reversed(other.sequences.items())}
    assert snapshot(other) == snapshot(one)


def _more_of(state: SpaceState, name: str) -> dict[str, object]:
    """A few more entries like the first one."""
    value = next(iter(getattr(state, name).values()))
    return dict.fromkeys(("zoe", "yan", "xu"), value)


@pytest.mark.parametrize("name", ["present", "streams"])
def test_order_counts_where_it_is_told_to_participants(name: str) -> None:
    one, other = rich_state(), rich_state()
    setattr(other, name, dict(reversed(getattr(other, name).items())))
    assert snapshot(other) != snapshot(one)
    assert list(getattr(restore(snapshot(other)), name)) == list(getattr(other, name))


def test_a_snapshot_of_the_version_before_has_no_proposals() -> None:
    state = rich_state()
    old = msgspec.json.decode(snapshot(state)) | {"fold_version": 1}
    for name in ("proposals", "closed_proposals", "grant_ends"):
        del old[name]
    for table in (state.proposals, state.closed_proposals, state.closed_by_proposer, state.grant_ends):
        table.clear()
    state.closed_positions.clear()
    assert plain(restore(msgspec.json.encode(old))) == plain(state)


def test_a_snapshot_names_its_fold() -> None:
    assert msgspec.json.decode(snapshot(rich_state()))["fold_version"] == FOLD_VERSION


def test_a_restored_space_shares_nothing_with_the_state_it_came_from() -> None:
    state = rich_state()
    other = restore(snapshot(state))
    for name in SpaceState.__struct_fields__:
        value = getattr(other, name)
        if isinstance(value, dict):
            value.clear()
    assert plain(state) == plain(rich_state())


def test_what_was_asked_for_a_stream_comes_back_byte_for_byte() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    odd = b'{"kind":"stream/request","payload":{"n":1.0,"long":12345678901234567890,"two":{"a":1,"a":2}, "s" : [ 1 ]}}'
    lab.join("alice").send_bytes(odd)
    (stream,) = restore(snapshot(lab.state)).streams.values()
    assert stream.fields == {"n": b"1.0", "long": b"12345678901234567890", "two": b'{"a":1,"a":2}', "s": b"[ 1 ]"}
