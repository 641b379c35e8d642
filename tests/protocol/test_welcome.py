"""Every welcome can be reproduced from the journal."""

import msgspec
from hypothesis import given

from mew.protocol import SpaceState, fold, observer_welcome_at, welcome_at
from mew.protocol.raw_json import split_json
from mew.protocol.welcome import Roster, roster
from mew.testing import MemorySpace
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples


def decoded(payload: bytes) -> object:
    return msgspec.json.decode(payload)


def test_an_empty_state_has_a_welcome() -> None:
    assert decoded(welcome_at(SpaceState(space_id="lab"), "alice")) == {
        "you": {"id": "alice", "capabilities": [{"kind": "chat"}, {"kind": "mcp/response"}]},
        "participants": [],
        "active_streams": [],
        "position": -1,
    }


def test_an_observer_has_no_capabilities_and_sees_all_participants() -> None:
    lab = MemorySpace(**CONFIGURATION)
    lab.join("alice")
    welcome = decoded(observer_welcome_at(lab.state, "alice"))
    assert isinstance(welcome, dict)
    assert welcome["you"] == {"id": "alice", "capabilities": []}
    assert [participant["id"] for participant in welcome["participants"]] == ["alice"]


@given(steps=histories())
@examples(40)
def test_every_welcome_follows_from_the_earlier_records(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    lab.observe()
    state = SpaceState(space_id="lab")
    for record in lab.records:
        if record.event == "welcome":
            again = observer_welcome_at if record.reason == "observer" else welcome_at
            assert split_json(record.payload)["payload"] == again(state, record.participant)
        state = fold(state, record)


@given(steps=histories())
@examples(30)
def test_the_cached_roster_agrees_with_the_state(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    cached = lab.space.roster
    assert list(cached.entries.items()) == list(roster(lab.state).entries.items())
    assert cached.text() == b",".join(cached.entries.values())
    for name in [*cached.entries, "nobody"]:
        assert cached.text_without(name) == b",".join(entry for other, entry in cached.entries.items() if other != name)


def test_the_text_of_a_roster_is_extended_or_rebuilt_with_it() -> None:
    entries = Roster([("alice", b"1"), ("bob", b"2")])
    assert entries.text() == b"1,2"
    entries.put("carol", b"3")
    assert vars(entries)["_text"] == b"1,2,3"
    assert entries.text_without("carol") == b"1,2"
    entries.put("carol", b"3")
    assert vars(entries)["_text"] == b"1,2,3"
    entries.put("alice", b"4")
    assert entries.text() == b"4,2,3"
    assert entries.text_without("carol") == b"4,2"
    entries.drop("bob")
    entries.drop("nobody")
    assert entries.text() == b"4,3"
    entries.clear()
    assert entries.text() == b""
    entries.put("dave", b"5")
    assert (entries.text(), entries.text_without("dave")) == (b"5", b"")
