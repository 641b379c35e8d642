"""Who owns a stream and who may write to it, seen from the space (protocol §4, Ownership)."""

import pytest

from tests.interaction.doors import Door

EVERYTHING = [{"kind": "*"}]


@pytest.mark.requirement("OWN-01")
def test_the_owner_grants_and_the_writer_writes(open_space: Door) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request", payload={"description": "positions"})
    stream_id = alice.take("stream/open")["payload"]["stream_id"]
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    assert bob.take("stream/write-granted")["payload"]["authorized_writers"] == ["alice", "bob"]
    bob.frame(stream_id, "here")
    assert alice.take_frame().data == b"here"
