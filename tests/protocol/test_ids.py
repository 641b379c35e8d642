"""The valid ids of spaces, participants and streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.ids import (
    IdsIgnoringCase,
    confusable_form,
    is_desired_id,
    is_participant_id,
    is_reserved_id,
    is_space_id,
    stream_namespace,
)
from tests.support.hypothesis_settings import examples

FIRST = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
REST = FIRST | set("._@-")
names = st.text(st.sampled_from("aZ09._@:-/# *é\n"), max_size=6) | st.text(max_size=4)


def has_form(name: str, rest: set[str]) -> bool:
    return 1 <= len(name) <= 128 and name[0] in FIRST and set(name[1:]) <= rest


@pytest.mark.requirement("VAL-26")
@examples(100)
@given(names)
def test_valid_ids_are_accepted(name: str) -> None:
    assert is_space_id(name) == has_form(name, REST)
    assert is_participant_id(name) == has_form(name, REST | {":"})


@pytest.mark.requirement("VAL-26")
def test_an_id_has_at_most_128_characters() -> None:
    assert is_space_id("a" * 128)
    assert is_participant_id("a" * 128)
    assert not is_space_id("a" * 129)
    assert not is_participant_id("a" * 129)


@pytest.mark.requirement("VAL-26")
@pytest.mark.parametrize("name", ["", "a\n", "\na", "a b", "a/b", "é", "٣", "a\0", "-a", ".", "@a", ":a"])
def test_ids_with_other_characters_are_refused(name: str) -> None:
    assert not is_space_id(name)
    assert not is_participant_id(name)


@pytest.mark.requirement("VAL-26")
def test_only_ids_of_participants_may_contain_a_colon() -> None:
    assert is_participant_id("agent:1")
    assert not is_space_id("agent:1")


@pytest.mark.parametrize("name", ["gateway", "system", "system:", "system:gateway", "System:x", "GATEWAY"])
def test_names_of_the_gateway_are_reserved(name: str) -> None:
    assert is_reserved_id(name)


@pytest.mark.parametrize("name", ["gateway2", "gateway:x", "systems", "Systems", "system-x", "x:system", ""])
def test_other_names_are_not_reserved(name: str) -> None:
    assert not is_reserved_id(name)


@pytest.mark.parametrize(
    "name", ["a", "0", "a-b_c", "a" * 64, "stream", "stream-", "stream-x", "stream-1a", "1-stream"]
)
def test_a_valid_slug_may_be_desired(name: str) -> None:
    assert is_desired_id(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "_a",
        "A",
        "a.b",
        "a b",
        "a#b",
        "é",
        "a\n",
        "a" * 65,
        "stream-1",
        "stream-007",
        None,
        5,
        ["a"],
        {"a": 1},
    ],
)
def test_other_texts_may_not_be_desired(name: object) -> None:
    assert not is_desired_id(name)


def test_a_namespace_is_the_space_and_the_stream() -> None:
    assert stream_namespace("lab", "stream-1") == "lab/stream-1"


def test_an_id_in_use_is_found_in_any_letter_case() -> None:
    ids = IdsIgnoringCase(["alice", "Bob", "BOB"])
    assert [ids.other_than(name) for name in ("Alice", "alice", "bob", "Bob", "carol")] == [
        "alice",
        None,
        "BOB",
        "BOB",
        None,
    ]
    ids.discard("BOB")
    assert ids.other_than("bob") == "Bob"
    ids.discard("Bob")
    ids.discard("Bob")
    assert ids.other_than("bob") is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("alice", "Alice"), ("agent-1", "agent_l"), ("bo.t", "bo-t"), ("m0dern", "rnodern"), ("vvatcher", "watcher")],
)
def test_ids_that_people_confuse_look_alike(one: str, other: str) -> None:
    assert confusable_form(one) == confusable_form(other)


def test_ids_that_people_distinguish_do_not_look_alike() -> None:
    assert len({confusable_form(name) for name in ("alice", "bob", "agent-1", "agent-2", "agent1", "a@b", "a:b")}) == 7
