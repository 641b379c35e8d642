"""States as canonical bytes, and their restoration."""

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


def test_the_example_state_has_entries_in_every_table() -> None:
    state = msgspec.structs.asdict(rich_state())
    assert [name for name, value in state.items() if value in ({}, (), "", 0)] == []


def test_the_example_state_is_restored_completely() -> None:
    state = rich_state()
    assert plain(restore(snapshot(state))) == plain(state)


def test_an_empty_state_is_restored_completely() -> None:
    state = SpaceState(space_id="lab")
    assert plain(restore(snapshot(state))) == plain(state)


def test_configured_defaults_are_restored() -> None:
    lab = MemorySpace(defaults=[{"kind": "memo"}, {"kind": "note"}])
    assert [capability.pattern["kind"] for capability in restore(snapshot(lab.state)).defaults] == ["memo", "note"]


@by_chance
@given(steps=histories())
def test_any_restored_state_continues_identically(steps: list[Step]) -> None:
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
def test_a_restored_state_has_the_same_snapshot(steps: list[Step]) -> None:
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
    """The example state with a few more entries in each table."""
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
def test_equal_states_have_equal_bytes(order: dict[str, list[Any]]) -> None:
    one = _crowded_state()
    other = restore(snapshot(one))
    for name, keys in order.items():
        setattr(other, name, {key: getattr(one, name)[key] for key in keys})
    other.sequences = {name: dict(reversed(sequences.items())) for name, sequences in reversed(other.sequences.items())}
    assert snapshot(other) == snapshot(one)


def _more_of(state: SpaceState, name: str) -> dict[str, object]:
    """A few more entries similar to the first one."""
    value = next(iter(getattr(state, name).values()))
    return dict.fromkeys(("zoe", "yan", "xu"), value)


@pytest.mark.parametrize("name", ["present", "streams"])
def test_order_matters_if_participants_see_it(name: str) -> None:
    one, other = rich_state(), rich_state()
    setattr(other, name, dict(reversed(getattr(other, name).items())))
    assert snapshot(other) != snapshot(one)
    assert list(getattr(restore(snapshot(other)), name)) == list(getattr(other, name))


def test_a_snapshot_of_the_previous_version_has_no_proposals() -> None:
    state = rich_state()
    old = msgspec.json.decode(snapshot(state)) | {"fold_version": 1}
    for name in ("proposals", "closed_proposals", "grant_ends"):
        del old[name]
    for table in (state.proposals, state.closed_proposals, state.closed_by_proposer, state.grant_ends):
        table.clear()
    state.closed_positions.clear()
    assert plain(restore(msgspec.json.encode(old))) == plain(state)


def test_a_snapshot_has_its_fold_version() -> None:
    assert msgspec.json.decode(snapshot(rich_state()))["fold_version"] == FOLD_VERSION


def test_a_restored_space_shares_nothing_with_the_original_state() -> None:
    state = rich_state()
    other = restore(snapshot(state))
    for name in SpaceState.__struct_fields__:
        value = getattr(other, name)
        if isinstance(value, dict):
            value.clear()
    assert plain(state) == plain(rich_state())


def test_the_request_of_a_stream_is_restored_byte_for_byte() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    odd = b'{"kind":"stream/request","payload":{"n":1.0,"long":12345678901234567890,"two":{"a":1,"a":2}, "s" : [ 1 ]}}'
    lab.join("alice").send_bytes(odd)
    (stream,) = restore(snapshot(lab.state)).streams.values()
    assert stream.fields == {"n": b"1.0", "long": b"12345678901234567890", "two": b'{"a":1,"a":2}', "s": b"[ 1 ]"}
