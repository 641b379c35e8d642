"""The lifetime of a stream in the journal: one record per step, and names that are never used again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import Limits, Record, snapshot
from mew.protocol.ids import is_desired_id
from mew.testing import Client, MemorySpace
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
TEXT = [{"id": "text"}]


def events(lab: MemorySpace) -> list[tuple[str, str | None, str | None]]:
    """The records of the last command."""
    return [(effect.event, effect.kind, effect.stream_id) for effect in lab.effects if isinstance(effect, Record)]


def announce(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/announce", payload={"formats": TEXT, **fields})
    return str(client.take("stream/ready")["payload"]["stream"]["stream_id"])


def test_each_step_of_a_stream_has_a_record_with_its_name() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    stream_id = announce(alice)
    assert events(lab) == [("envelope", "stream/announce", None), ("envelope", "stream/ready", stream_id)]
    alice.send(kind="stream/start", payload={"stream_id": stream_id})
    assert events(lab) == [("envelope", "stream/start", stream_id)]
    alice.send(kind="stream/note", payload={"stream_id": stream_id})
    assert events(lab) == [("envelope", "stream/note", stream_id)]
    alice.send(kind="stream/complete", payload={"stream_id": stream_id, "reason": "done"})
    assert events(lab) == [("envelope", "stream/complete", stream_id)]
    assert lab.records[-1].reason == "done"


def test_a_reason_that_is_not_a_string_is_relayed_and_not_in_the_column() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    stream_id = announce(alice)
    alice.send(kind="stream/close", payload={"stream_id": stream_id, "reason": {"code": 7}})
    assert alice.take("stream/close")["payload"]["reason"] == {"code": 7}
    assert lab.records[-1].reason is None


def test_a_close_that_ends_nothing_is_recorded_without_a_stream() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    alice.send(kind="stream/close", payload={"stream_id": "stream-99"})
    assert events(lab) == [("envelope", "stream/close", None)]


def test_a_refused_envelope_only_adds_a_record() -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(streams=1))
    alice = lab.join("alice")
    announce(alice, desired_id="voice")
    before = known(lab)
    refused: list[dict[str, Any]] = [
        {"formats": TEXT, "desired_id": "voice"},
        {"formats": []},
        {"formats": TEXT, "target": ["bob"]},
    ]
    for payload in refused:
        alice.send(kind="stream/announce", payload=payload)
        assert events(lab) == [("rejected", "stream/announce", None)]
    assert known(lab) == before


OWNED = ("start", "complete", "error", "grant-write", "revoke-write", "transfer-ownership")
REFUSED = [
    *[("alice", kind, "nowhere", "stream_not_found") for kind in (*OWNED, "data")],
    *[("bob", kind, "announced", "unauthorized") for kind in OWNED],
    ("alice", "start", "live", "invalid_operation"),
    ("alice", "data", "announced", "stream_not_live"),
    ("bob", "data", "live", "unauthorized_stream_write"),
]


@pytest.mark.parametrize(("sender", "kind", "stream_id", "error"), REFUSED)
def test_a_refusal_names_the_stream(sender: str, kind: str, stream_id: str, error: str) -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for name in ("announced", "live"):
        announce(alice, desired_id=name)
    alice.send(kind="stream/start", payload={"stream_id": "live"})
    client = alice if sender == "alice" else bob
    details = {"code": "x", "message": "x", "sequence": 1, "content": 1, "participant_id": "bob", "new_owner": "bob"}
    client.send(kind=f"stream/{kind}", payload={"stream_id": stream_id, **details})
    error_payload = client.error()
    assert (error_payload["error"], error_payload["stream_id"]) == (error, stream_id)


def known(lab: MemorySpace) -> list[Any]:
    """The streams and their names in the state of the space."""
    state = lab.state
    return [dict(state.streams), state.stream_count, dict(state.desired_ids), dict(lab.space.id_suffixes)]


WISHES = st.sampled_from(["voice", "voice_2", "voice_3", "v" * 63, "v" * 64, "v" * 62 + "_2", "stream-1", "No", None])


@examples(60)
@given(wishes=st.lists(st.tuples(WISHES, st.sampled_from(["keep", "end", "restart"])), max_size=15))
def test_no_stream_name_is_used_twice(wishes: list[tuple[str | None, str]]) -> None:
    """This holds for all sequences of desired ids, ends and restarts. A desired id that is free is used."""
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    given_ids: list[str] = []
    for wish, then in wishes:
        stream_id = announce(alice, desired_id=wish)
        if wish is not None and is_desired_id(wish) and wish not in given_ids:
            assert stream_id == wish
        assert stream_id not in given_ids
        assert is_desired_id(stream_id) or stream_id == f"stream-{lab.state.stream_count}"
        given_ids.append(stream_id)
        if then == "end":
            alice.send(kind="stream/close", payload={"stream_id": stream_id})
        elif then == "restart":
            lab.restart()
            alice = lab.join("alice")
    assert snapshot(lab.folded()) == snapshot(lab.state)
