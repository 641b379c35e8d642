"""The records of an invitation, and what they omit."""

import pytest

from mew.protocol import parse
from mew.protocol.errors import InternalError
from mew.testing import MemorySpace, MemoryTokens


def test_the_token_of_an_invitation_is_sent_and_never_recorded() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    alice = lab.join("alice")
    alice.send(kind="space/invite", payload={"participant_id": "carol"})
    token = alice.take("space/invite-ack")["payload"]["token"]
    assert token == lab.token("carol")
    (acknowledged,) = [record for record in lab.records if record.kind == "space/invite-ack"]
    assert parse(acknowledged.payload).payload == {"status": "created", "participant_id": "carol"}
    assert not any(token.encode() in record.payload for record in lab.records)


@pytest.mark.parametrize("again", [False, True], ids=["invited once", "kicked and invited again"])
def test_an_invitation_is_valid_after_a_restart(*, again: bool) -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    alice = lab.join("alice")
    alice.send(kind="space/invite", payload={"participant_id": "carol", "initial_capabilities": [{"kind": "memo"}]})
    if again:
        alice.send(kind="space/kick", payload={"participant_id": "carol"})
        alice.send(kind="space/invite", payload={"participant_id": "carol", "initial_capabilities": [{"kind": "note"}]})
    lab.restart()
    carol = lab.join("carol")
    capabilities = carol.take("system/welcome")["payload"]["you"]["capabilities"]
    assert capabilities == [{"kind": "note" if again else "memo"}, {"kind": "mcp/response"}]


def test_an_invitation_whose_token_cannot_be_stored_has_no_effect() -> None:
    class FullDisk(MemoryTokens):
        def issue(self, space_id: str, participant: str, *, observer: bool = False) -> str:
            if participant == "carol":
                raise InternalError("the token cannot be kept")
            return super().issue(space_id, participant, observer=observer)

    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    alice = lab.join("alice")
    lab.space.tokens = FullDisk()
    alice.send(kind="space/invite", payload={"participant_id": "carol"})
    assert alice.error()["error"] == "internal_error"
    assert not lab.state.knows("carol")
