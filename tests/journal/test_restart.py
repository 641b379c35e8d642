"""A gateway that begins again is the one that was killed, or stopped: all that was said and decided still holds."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.reader import Journal
from mew.protocol.records import Record
from tests.gateway.raw import CLOSE, TEXT, Raw, frame
from tests.journal.gateway_process import SPACE, GatewayProcess, gateway
from tests.support.polling import until

ALL = {"capabilities": [{"kind": "*"}]}
FEW = {"capabilities": [{"kind": "chat"}, {"kind": "mcp/*"}]}
LAB = {"alice": ALL, "bob": ALL, "carol": FEW, "dan": ALL, "eve": ALL}


def recorded(process: GatewayProcess) -> list[Record]:
    return list(Journal(process.journal.root, SPACE).records())


def accepted(process: GatewayProcess, participant: str, kind: str, **payload: Any) -> dict[str, Any]:
    answer = process.post(participant, kind, **payload)
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.json
    return body


def refusal(process: GatewayProcess, participant: str, kind: str, **payload: Any) -> str:
    return str(process.post(participant, kind, **payload).json["error"])


def streams(welcome: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["stream_id"]: entry for entry in welcome["active_streams"]}


def data(stream_id: str, sequence: int) -> dict[str, Any]:
    return {"stream_id": stream_id, "sequence": sequence, "content": sequence}


def close_code_of_rejected_join(process: GatewayProcess, participant: str) -> int | None:
    client = process.connect(participant)
    client.envelope("system/error")
    closed = client.frame()
    assert closed.opcode == CLOSE
    return closed.code


def much_happens(process: GatewayProcess) -> Raw:
    """Streams, writers, frames, data, grants, revocations, an invitation, a kick and a pause; alice stays."""
    (alice, _), (bob, _) = process.join("alice"), process.join("bob")
    assert accepted(process, "alice", "stream/request", description="moves")["stream_id"] == "stream-1"
    accepted(process, "alice", "stream/grant-write", stream_id="stream-1", participant_id="bob")
    bob.send(frame(TEXT, b"#stream-1#x") * 7)
    while alice.echo().payload != b"#stream-1#x":
        pass
    assert [alice.echo().payload for _ in range(6)] == [b"#stream-1#x"] * 6
    accepted(process, "bob", "stream/data", **data("stream-1", 41))
    assert accepted(process, "bob", "stream/request")["stream_id"] == "stream-2"
    accepted(process, "bob", "stream/close", stream_id="stream-2")
    announced = {"formats": [{"id": "bytes"}], "desired_id": "voice"}
    assert accepted(process, "alice", "stream/announce", **announced)["stream_id"] == "voice"
    accepted(process, "alice", "capability/grant", recipient="carol", capabilities=[{"kind": "tool/*"}])
    accepted(process, "alice", "capability/revoke", recipient="carol", capabilities=[{"kind": "mcp/*"}])
    accepted(process, "alice", "space/invite", participant_id="guest", initial_capabilities=[{"kind": "chat"}])
    accepted(process, "alice", "space/kick", participant_id="dan")
    alice.say(kind="participant/pause", to=["eve"], payload={})
    alice.envelope("participant/pause")
    return alice


@pytest.mark.parametrize("how", ["killed", "killed and sealed", "stopped"])
def test_all_that_was_decided_before_a_restart_holds_after_it(tmp_path: Path, how: str) -> None:
    seconds = 0.05 if how == "killed and sealed" else 3600
    with gateway(tmp_path, participants=LAB, journal={"segment_seconds": seconds}) as process:
        process.start()
        much_happens(process)
        if how == "stopped":
            assert process.stop() == 0
        else:
            process.kill()
        before = recorded(process)
        process.start()
        check_streams(process)
        check_people(process)
        after = recorded(process)
        assert after[: len(before)] == before
        assert [record.position for record in after] == list(range(len(after)))
        epochs = [msgspec.json.decode(record.payload)["epoch"] for record in after if record.event == "start"]
        assert len(set(epochs)) == len(epochs) == 2
        times = [record.time for record in after]
        assert times == sorted(times)


def check_streams(process: GatewayProcess) -> None:
    """Streams, owners, writers, numbers, sequences and names."""
    bob, welcome = process.join("bob")
    open_streams = streams(welcome)
    assert list(open_streams) == ["stream-1", "voice"]
    moves = open_streams["stream-1"]
    assert (moves["owner"], moves["authorized_writers"]) == ("alice", ["alice", "bob"])
    assert (moves["stream"]["frames"], moves["stream"]["owner_connected"]) == (8, False)
    process.join("alice")
    assert refusal(process, "bob", "stream/data", **data("stream-1", 41)) == "sequence_out_of_order"
    accepted(process, "bob", "stream/data", **data("stream-1", 42))
    bob.send(frame(TEXT, b"#stream-1#y"))
    assert bob.echo().payload == b"#stream-1#y"
    until(lambda: [record.frame_number for record in recorded(process) if record.frame_number] == list(range(1, 11)))
    assert accepted(process, "bob", "stream/request")["stream_id"] == "stream-3"
    announced = {"formats": [{"id": "bytes"}], "desired_id": "voice"}
    assert accepted(process, "bob", "stream/announce", **announced)["stream_id"] == "voice_2"


def check_people(process: GatewayProcess) -> None:
    """Grants, revocations, invitations, kicks and pauses."""
    assert process.post("carol", "tool/use").status == 200
    assert refusal(process, "carol", "mcp/request", method="tools/list") == "capability_violation"
    assert refusal(process, "eve", "chat", text="hello") == "paused"
    assert close_code_of_rejected_join(process, "dan") == 4403
    _, welcome = process.join("guest")
    assert {"kind": "chat"} in welcome["you"]["capabilities"]


def test_who_does_not_come_back_within_the_grace_loses_what_was_waiting(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=LAB, streams={"owner_grace_seconds": 3}) as process:
        process.start()
        much_happens(process)
        process.kill()
        process.start()
        # The owner reconnects immediately, one writer does not.
        alice, welcome = process.join("alice")
        assert streams(welcome)["stream-1"]["authorized_writers"] == ["alice", "bob"]
        revoked = alice.envelope("stream/write-revoked")["payload"]
        assert (revoked["stream_id"], revoked["participant_id"]) == ("stream-1", "bob")
        assert (revoked["reason"], revoked["authorized_writers"]) == ("disconnected", ["alice"])
        process.kill()
        # Now only another participant connects.
        process.start()
        carol, welcome = process.join("carol")
        assert list(streams(welcome)) == ["stream-1", "voice"]
        closed = [carol.envelope("stream/close")["payload"] for _ in range(2)]
        assert {record["stream_id"] for record in closed} == {"stream-1", "voice"}
        process.kill()
        kinds = [(record.kind, record.stream_id, record.reason) for record in recorded(process)]
        assert ("stream/write-revoked", "stream-1", "disconnected") in kinds
        assert ("stream/close", "stream-1", "owner_disconnected") in kinds


def test_a_block_that_the_kill_tore_is_cut_off_and_said(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=LAB, journal={"sync": "os", "segment_seconds": 3600}) as process:
        process.start()
        accepted(process, "alice", "chat", text="whole")
        process.kill()
        (log,) = process.journal.logs()
        whole = recorded(process)
        process.journal.synced.unlink()
        with log.open("ab") as file:
            file.write(log.read_bytes()[:100])
        process.start()
        (event,) = [event for event in process.events() if event["event"] == "journal tail truncated after a crash"]
        assert (event["level"], event["space"]) == ("warning", "lab")
        assert "100 bytes" in event["error"]
        accepted(process, "alice", "chat", text="after")
        records = recorded(process)
        assert records[: len(whole)] == whole
        assert [record.position for record in records] == list(range(len(records)))


def test_no_token_ever_reaches_the_journal(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=LAB) as process:
        process.start()
        much_happens(process)
        assert process.stop() == 0
        tokens = [path.read_bytes() for path in (tmp_path / ".mew" / "tokens").glob("*.token")]
        assert len(tokens) >= len(LAB) + 1
        contents = [record.payload for record in recorded(process)]
        contents += [path.read_bytes() for path in process.journal.root.rglob("*") if path.is_file()]
        assert [token for token in tokens if any(token in content for content in contents)] == []
