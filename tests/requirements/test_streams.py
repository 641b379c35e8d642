"""Opening, starting and ending streams, their names and their formats (protocol §4)."""

from typing import Any

import pytest

from mew.protocol import Limits
from mew.testing import Client
from tests.requirements.steps import TEXT, announce, open_stream, start, transfer_ownership
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
MAY_REQUEST = [{"kind": "stream/request"}]
MAY_MANAGE = [{"kind": "stream/manage"}]
TWO = {"alice": ALL, "bob": None}
ENDINGS = ("stream/close", "stream/complete", "stream/error")
WHAT_WENT_WRONG = {"code": "broken", "message": "the microphone is gone"}


def end(client: Client, kind: str, stream_id: str, **fields: Any) -> None:
    client.send(kind=kind, payload={"stream_id": stream_id, **WHAT_WENT_WRONG, **fields})


def refusal(client: Client, kind: str, **payload: Any) -> dict[str, Any]:
    """Send an envelope that is rejected, and return the error: its only effect."""
    client.inbox()
    client.send(kind=kind, payload=payload)
    error = client.error()
    assert client.inbox() == []
    return error


def streams_now(client: Client) -> list[dict[str, Any]]:
    """The streams in a new welcome."""
    client.inbox()
    client.send(type="join")
    entries: list[dict[str, Any]] = client.take("system/welcome")["payload"]["active_streams"]
    return entries


# Request and announce


@pytest.mark.transport
@pytest.mark.requirement("STR-01")
def test_a_request_is_relayed_and_then_answered_to_all_by_stream_open(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox(), bob.inbox()
    alice.send(id="ask", kind="stream/request", payload={"description": "positions"})
    for client in (alice, bob):
        relayed, opened = client.inbox()
        assert (relayed["kind"], relayed["from"], relayed["id"]) == ("stream/request", "alice", "ask")
        assert (opened["kind"], opened["from"]) == ("stream/open", "system:gateway")
        assert opened["to"] == ["alice"]
        assert opened["correlation_id"][0] == "ask"


@pytest.mark.transport
@pytest.mark.requirement("STR-02")
@pytest.mark.sockets("alice")
def test_stream_open_is_the_welcome_entry_and_the_stream_is_live(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request", payload={"description": "positions", "mine": {"x": [1.0, None]}})
    opened = bob.take("stream/open")["payload"]
    assert [opened] == streams_now(bob)
    assert opened["mine"] == {"x": [1.0, None]}
    assert opened["stream"]["status"] == "live"
    alice.frame(opened["stream_id"], "immediately")
    assert bob.take_frame().data == b"immediately"


@pytest.mark.transport
@pytest.mark.requirement("STR-03")
def test_an_announce_is_relayed_and_then_answered_to_all_by_stream_ready(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox(), bob.inbox()
    announced = {"intent": "speech", "formats": TEXT, "mine": {"deep": [1, {"er": True}]}, "direction": "both"}
    alice.send(id="ask", kind="stream/announce", payload=announced)
    for client in (alice, bob):
        relayed, ready = client.inbox()
        assert (relayed["kind"], relayed["payload"]) == ("stream/announce", announced)
        assert (ready["kind"], ready["from"]) == ("stream/ready", "system:gateway")
        assert ready["correlation_id"] == ["ask"]
        assert {name: value for name, value in ready["payload"].items() if name != "stream"} == announced


@pytest.mark.requirement("STR-03")
def test_an_announce_cannot_pass_off_fields_as_the_gateways(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    forged = {"stream_id": "x", "owner": "bob", "authorized_writers": ["bob"], "created": "then", "stream": {"a": 1}}
    alice.send(kind="stream/announce", payload={"formats": TEXT, **forged})
    ready = alice.take("stream/ready")["payload"]
    assert set(ready) == {"formats", "stream"}
    assert ready["stream"]["owner"] == "alice"


@pytest.mark.requirement("STR-04")
def test_stream_ready_gives_the_canonical_name_and_who_may_what(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    alice.send(kind="stream/announce", payload={"formats": TEXT, "desired_id": "voice"})
    assert alice.take("stream/ready")["payload"]["stream"] == {
        "stream_id": "voice",
        "namespace": "lab/voice",
        "creator": "alice",
        "owner": "alice",
        "authorized_writers": ["alice"],
        "status": "ready",
        "formats": TEXT,
        "capabilities": {"write": ["stream/write:voice"], "read": ["stream/read:voice"]},
    }


@pytest.mark.transport
@pytest.mark.requirement("STR-05")
@pytest.mark.sockets("alice")
def test_the_owners_start_is_relayed_and_makes_the_stream_live(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = announce(alice)
    assert streams_now(bob)[0]["stream"]["status"] == "ready"
    alice.send(kind="stream/start", payload={"stream": {"stream_id": stream_id}, "start_ts": "2025-11-15T12:00:01Z"})
    for client in (alice, bob):
        started = client.take("stream/start")
        assert started["from"] == "alice"
        assert started["payload"]["start_ts"] == "2025-11-15T12:00:01Z"
    assert streams_now(bob)[0]["stream"]["status"] == "live"
    alice.frame(stream_id, "hello")
    assert bob.take_frame().data == b"hello"


@pytest.mark.requirement("STR-06")
def test_a_stream_that_is_live_cannot_be_started(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    announced, requested = announce(alice), open_stream(alice)
    start(alice, announced)
    for stream_id in (announced, requested):
        assert refusal(alice, "stream/start", stream_id=stream_id)["error"] == "invalid_operation"


@pytest.mark.requirement("STR-07")
@pytest.mark.parametrize("kind", ["stream/start", "stream/complete", "stream/error"])
def test_start_complete_and_error_of_no_stream_are_refused(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    ended = announce(alice)
    end(alice, "stream/close", ended)
    for stream_id in ("stream-99", ended):
        error = refusal(alice, kind, stream_id=stream_id, **WHAT_WENT_WRONG)
        assert (error["error"], error["stream_id"]) == ("stream_not_found", stream_id)


@pytest.mark.requirement("STR-07")
@pytest.mark.parametrize("kind", ["stream/start", "stream/complete", "stream/error"])
def test_start_complete_and_error_have_to_name_a_stream(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    assert refusal(alice, kind, **WHAT_WENT_WRONG)["error"] == "invalid_envelope"
    assert refusal(alice, kind, stream_id=7, **WHAT_WENT_WRONG)["error"] == "invalid_envelope"


@pytest.mark.requirement("STR-08")
@pytest.mark.parametrize("pattern", ["stream/close", "stream/request", "stream/manage", "stream/*", "*"])
def test_a_close_of_no_stream_is_relayed_for_those_who_may_close_or_open(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": [{"kind": pattern}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for payload in ({"stream_id": "stream-99"}, {"reason": "habit"}):
        alice.send(kind="stream/close", payload=payload)
        assert bob.take("stream/close")["payload"] == payload


@pytest.mark.requirement("STR-08")
def test_a_close_of_no_stream_needs_a_capability(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": [{"kind": "chat"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox()
    for payload in ({"stream_id": "stream-99"}, {}):
        assert refusal(bob, "stream/close", **payload)["error"] == "capability_violation"
    assert alice.inbox() == []


# Ending


@pytest.mark.requirement("STR-09")
@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("origin", ["requested", "ready", "started"])
def test_each_ending_ends_any_stream_and_is_relayed(open_space: Transport, kind: str, origin: str) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice) if origin == "requested" else announce(alice)
    if origin == "started":
        start(alice, stream_id)
    end(alice, kind, stream_id, reason="enough")
    for client in (alice, bob):
        ended = client.take(kind)
        assert ended["from"] == "alice"
        assert ended["payload"]["reason"] == "enough"
    assert streams_now(bob) == []


@pytest.mark.transport
@pytest.mark.requirement("STR-10")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("kind", ENDINGS)
def test_nothing_more_can_be_done_with_an_ended_stream(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    end(alice, kind, stream_id)
    assert streams_now(bob) == []
    assert refusal(alice, "stream/data", stream_id=stream_id, sequence=0, content=1)["error"] == "stream_not_found"
    assert (
        refusal(alice, "stream/grant-write", stream_id=stream_id, participant_id="bob")["error"] == "stream_not_found"
    )
    assert (
        refusal(alice, "stream/transfer-ownership", stream_id=stream_id, new_owner="bob")["error"] == "stream_not_found"
    )
    assert refusal(alice, "stream/complete", stream_id=stream_id)["error"] == "stream_not_found"
    alice.frame(stream_id, "late")
    assert alice.error()["error"] == "unauthorized_stream_write"
    assert bob.inbox() == []


@pytest.mark.requirement("STR-11")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize(
    "payload", [{}, {"code": "broken"}, {"message": "it broke"}, {"code": 7, "message": "it broke"}]
)
def test_a_stream_error_without_code_or_message_is_refused_and_the_stream_continues(
    open_space: Transport, payload: dict[str, Any]
) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    assert refusal(alice, "stream/error", stream_id=stream_id, **payload)["error"] == "invalid_envelope"
    alice.frame(stream_id, "still here")
    assert bob.take_frame().data == b"still here"


# Permissions


@pytest.mark.requirement("STR-12")
@pytest.mark.parametrize("kind", ["stream/start", *ENDINGS])
def test_only_the_owner_starts_and_ends(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None, "carol": MAY_REQUEST})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = announce(alice)
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    alice.inbox()
    for client in (bob, carol):
        error = refusal(client, kind, stream_id=stream_id, **WHAT_WENT_WRONG)
        assert (error["error"], error["stream_id"]) == ("unauthorized", stream_id)
    assert alice.inbox() == []
    assert streams_now(alice)[0]["stream"]["status"] == "ready"


@pytest.mark.requirement("STR-13")
@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("pattern", ["stream/manage", "*"])
def test_who_manages_streams_may_end_anothers(open_space: Transport, pattern: str, kind: str) -> None:
    lab = open_space(participants={"alice": ALL, "warden": [{"kind": pattern}]})
    alice, warden = lab.join("alice"), lab.join("warden")
    stream_id = open_stream(alice)
    end(warden, kind, stream_id)
    assert alice.take(kind)["from"] == "warden"
    assert streams_now(alice) == []


@pytest.mark.requirement("STR-13")
@pytest.mark.parametrize("pattern", ["stream/*", "stream/**", "stream/close", "!chat", "stream/request"])
def test_no_other_pattern_ends_anothers_stream(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": ALL, "bob": [{"kind": pattern}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for kind in ENDINGS:
        assert refusal(bob, kind, stream_id=stream_id, **WHAT_WENT_WRONG)["error"] == "unauthorized"
    assert len(streams_now(alice)) == 1


@pytest.mark.requirement("STR-14")
@pytest.mark.sockets("warden")
@pytest.mark.parametrize("pattern", ["stream/manage", "*"])
def test_who_manages_streams_neither_starts_grants_transfers_nor_writes(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": ALL, "warden": [{"kind": pattern}]})
    alice, warden = lab.join("alice"), lab.join("warden")
    ready, live = announce(alice), open_stream(alice)
    alice.inbox()
    assert refusal(warden, "stream/start", stream_id=ready)["error"] == "unauthorized"
    for kind, field in (
        ("stream/grant-write", "participant_id"),
        ("stream/revoke-write", "participant_id"),
        ("stream/transfer-ownership", "new_owner"),
    ):
        assert refusal(warden, kind, stream_id=live, **{field: "warden"})["error"] == "unauthorized"
    error = refusal(warden, "stream/data", stream_id=live, sequence=0, content="x")
    assert error["error"] == "unauthorized_stream_write"
    warden.frame(live, "x")
    assert warden.error()["error"] == "unauthorized_stream_write"
    assert alice.inbox() == []


@pytest.mark.requirement("STR-15")
@pytest.mark.parametrize("pattern", ["stream/request", "stream/manage", "stream/*", "*", "!chat"])
def test_a_request_is_allowed_by_its_kind_or_by_managing(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": [{"kind": pattern}]})
    assert open_stream(lab.join("alice")) == "stream-1"


@pytest.mark.requirement("STR-15")
@pytest.mark.parametrize(
    "capability",
    [
        {"kind": "chat"},
        {"kind": "stream/announce"},
        {"kind": "stream/close"},
        {"kind": "stream/request", "payload": {"direction": "download"}},
    ],
)
def test_no_other_capability_allows_a_request(open_space: Transport, capability: dict[str, Any]) -> None:
    lab = open_space(participants={"alice": [capability], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    error = refusal(alice, "stream/request", direction="upload")
    assert (error["error"], error["attempted_kind"]) == ("capability_violation", "stream/request")
    assert bob.kinds() == ["system/welcome"]


@pytest.mark.requirement("STR-15")
def test_a_capability_may_narrow_what_is_requested(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "stream/request", "payload": {"direction": "upload"}}]})
    assert open_stream(lab.join("alice"), direction="upload") == "stream-1"


@pytest.mark.requirement("STR-16")
@pytest.mark.parametrize("pattern", ["stream/manage", "stream/*", "stream/**", "*", "!chat"])
def test_an_announce_is_allowed_by_what_matches_managing(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": [{"kind": pattern}]})
    assert announce(lab.join("alice")) == "stream-1"


@pytest.mark.requirement("STR-16")
@pytest.mark.parametrize("pattern", ["stream/announce", "stream/request", "chat", "!stream/manage"])
def test_no_other_capability_allows_an_announce(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": [{"kind": pattern}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    error = refusal(alice, "stream/announce", formats=TEXT)
    assert (error["error"], error["attempted_kind"]) == ("capability_violation", "stream/announce")
    assert bob.kinds() == ["system/welcome"]


@pytest.mark.requirement("STR-17")
def test_what_is_refused_uses_up_no_id(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    assert open_stream(alice) == "stream-1"
    refusal(bob, "stream/request")
    refusal(bob, "stream/announce", formats=TEXT)
    refusal(alice, "stream/request", target=["nobody"])
    refusal(alice, "stream/announce", formats=[], desired_id="voice")
    refusal(alice, "stream/announce", formats=[{"id": "x", "schema": {"type": "no such"}}], desired_id="voice")
    assert announce(alice, desired_id="voice") == "voice"
    assert open_stream(alice) == "stream-2"


@pytest.mark.transport
@pytest.mark.requirement("STR-18")
@pytest.mark.sockets("bob")
def test_a_new_owner_with_chat_alone_inherits_everything(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": [{"kind": "chat"}], "carol": [{"kind": "chat"}]})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    for kind in (*ENDINGS, "transfer"):
        stream_id = announce(alice)
        about = {"stream_id": stream_id}
        alice.send(kind="stream/transfer-ownership", payload={**about, "new_owner": "bob"})
        bob.send(kind="stream/start", payload=about)
        bob.send(kind="stream/grant-write", payload={**about, "participant_id": "carol"})
        carol.send(kind="stream/data", payload={**about, "sequence": 0, "content": "carol"})
        bob.send(kind="stream/revoke-write", payload={**about, "participant_id": "carol"})
        bob.send(kind="stream/data", payload={**about, "sequence": 0, "content": "bob"})
        bob.frame(stream_id, "frame")
        assert [alice.take("stream/data")["payload"]["content"] for _ in range(2)] == ["carol", "bob"]
        assert alice.take_frame().data == b"frame"
        if kind == "transfer":
            bob.send(kind="stream/transfer-ownership", payload={**about, "new_owner": "carol"})
            alice.take("stream/ownership-transferred")
            assert alice.take("stream/ownership-transferred")["payload"]["new_owner"] == "carol"
        else:
            end(bob, kind, stream_id)
            assert alice.take(kind)["from"] == "bob"
    assert "system/error" not in bob.kinds() + carol.kinds()


# Names


@pytest.mark.requirement("STR-19")
def test_streams_are_numbered_across_requests_and_announces(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    ids = [
        open_stream(alice),
        announce(alice),
        open_stream(alice),
        announce(alice, desired_id="voice"),
        announce(alice),
    ]
    assert ids == ["stream-1", "stream-2", "stream-3", "voice", "stream-4"]
    assert [entry["stream_id"] for entry in streams_now(alice)] == ids


@pytest.mark.requirement("STR-19")
def test_each_space_numbers_its_own_streams(open_space: Transport) -> None:
    one, other = open_space(space_id="one", participants=TWO), open_space(space_id="other", participants=TWO)
    assert open_stream(one.join("alice")) == "stream-1"
    assert open_stream(other.join("alice")) == "stream-1"


@pytest.mark.requirement("STR-20")
def test_a_desired_id_is_honoured_where_free_and_else_suffixed(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    assert [announce(alice, desired_id="voice") for _ in range(4)] == ["voice", "voice_2", "voice_3", "voice_4"]
    assert [announce(alice, desired_id="voice_2") for _ in range(2)] == ["voice_2_2", "voice_2_3"]


@pytest.mark.requirement("STR-20")
def test_a_suffix_does_not_make_an_id_longer_than_one_may_be(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    ids = [announce(alice, desired_id="v" * 64) for _ in range(12)]
    assert len(set(ids)) == 12
    assert {len(stream_id) for stream_id in ids} == {64}
    assert ids[-1] == "v" * 61 + "_12"


@pytest.mark.requirement("STR-21")
@pytest.mark.parametrize(
    "desired",
    [
        "",
        "Voice",
        "-voice",
        "_voice",
        "a b",
        "a/b",
        "a#b",
        "ä",
        "v" * 65,
        "stream-7",
        "stream-0",
        "voice\n",
        7,
        None,
        ["a"],
    ],
)
def test_an_unusable_desired_id_is_ignored(open_space: Transport, desired: Any) -> None:
    lab = open_space(participants=TWO)
    assert announce(lab.join("alice"), desired_id=desired) == "stream-1"


@pytest.mark.requirement("STR-22")
def test_no_id_is_used_twice(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    for expected in ("voice", "voice_2", "voice_3"):
        assert announce(alice, desired_id="voice") == expected
        end(alice, "stream/complete", expected)
    for expected in ("stream-1", "stream-2", "stream-3"):
        assert open_stream(alice) == expected
        end(alice, "stream/close", expected)


@pytest.mark.requirement("STR-22")
@pytest.mark.transports("core")
def test_no_id_is_used_twice_after_a_restart_either(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    for stream_id in (open_stream(alice), announce(alice, desired_id="voice"), announce(alice, desired_id="voice")):
        end(alice, "stream/close", stream_id)
    lab.restart()
    alice = lab.join("alice")
    assert (open_stream(alice), announce(alice, desired_id="voice")) == ("stream-2", "voice_3")


@pytest.mark.requirement("STR-23")
def test_when_the_desired_ids_are_used_up_streams_are_numbered(open_space: Transport) -> None:
    assert Limits().desired_ids == 100_000
    lab = open_space(participants=TWO, limits=Limits(desired_ids=3))
    alice = lab.join("alice")
    ids = [announce(alice, desired_id=desired) for desired in ("a", "a", "b", "c", "a")]
    assert ids == ["a", "a_2", "b", "stream-1", "stream-2"]


@pytest.mark.requirement("STR-24")
def test_a_namespace_is_the_spaces_id_and_the_streams(open_space: Transport) -> None:
    lab = open_space(space_id="studio.7", participants=TWO)
    alice = lab.join("alice")
    open_stream(alice), announce(alice, desired_id="voice")
    assert [entry["stream"]["namespace"] for entry in streams_now(alice)] == ["studio.7/stream-1", "studio.7/voice"]


# References


@pytest.mark.requirement("STR-25")
@pytest.mark.parametrize("kind", ["stream/start", *ENDINGS])
@pytest.mark.parametrize("nested", [True, False])
def test_a_stream_is_named_at_the_top_or_in_stream(open_space: Transport, kind: str, nested: bool) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = announce(alice)
    name = {"stream_id": stream_id}
    alice.send(kind=kind, payload={**WHAT_WENT_WRONG, **({"stream": name} if nested else name)})
    assert bob.take(kind)["payload"]["stream"]["stream_id"] == stream_id


@pytest.mark.requirement("STR-25")
@pytest.mark.parametrize(
    "kind", ["stream/start", "stream/data", "stream/grant-write", "stream/note", "stream/close", "stream/complete"]
)
def test_two_names_that_contradict_each_other_are_refused(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    one, other = announce(alice), open_stream(alice)
    more = {"sequence": 0, "content": 1, "participant_id": "alice"}
    error = refusal(alice, kind, stream_id=one, stream={"stream_id": other}, **more)
    assert error["error"] == "invalid_envelope"
    assert one in error["message"]
    assert other in error["message"]
    assert len(streams_now(alice)) == 2


@pytest.mark.requirement("STR-26")
def test_every_envelope_about_a_stream_carries_its_whole_name(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None, "carol": None})
    alice, bob, _ = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = announce(alice)
    bob.inbox()
    about = {"stream_id": stream_id}
    start(alice, stream_id)
    alice.send(kind="stream/data", payload={**about, "sequence": 0, "content": 1})
    alice.send(kind="stream/note", payload=about)
    alice.send(kind="stream/grant-write", payload={**about, "participant_id": "carol"})
    alice.send(kind="stream/revoke-write", payload={**about, "participant_id": "carol"})
    alice.send(kind="stream/transfer-ownership", payload={**about, "new_owner": "alice"})
    end(alice, "stream/complete", stream_id)
    received = bob.inbox()
    assert len(received) == 7
    for message in received:
        assert message["payload"]["stream"]["stream_id"] == stream_id
        assert message["payload"]["stream"]["namespace"] == f"lab/{stream_id}"
        assert message["context"] == f"lab/{stream_id}"


@pytest.mark.requirement("STR-26")
def test_completing_the_name_changes_nothing_else_of_the_payload(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    payload = f'"a":1.0,"b":12345678901234567890,"stream":{{"mine":1.50}},"stream_id":"{stream_id}"'
    alice.send_bytes(b'{"kind":"stream/note","payload":{%s}}' % payload.encode())
    whole = f'"stream":{{"mine":1.50,"stream_id":"{stream_id}","namespace":"lab/{stream_id}"}}'
    assert f'{{"a":1.0,"b":12345678901234567890,{whole},"stream_id"' in bob.take("stream/note").raw.decode()


@pytest.mark.requirement("STR-26")
def test_the_gateways_own_ending_carries_the_whole_name_too(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice, on_owner_disconnect="close")
    alice.leave()
    closed = bob.take("stream/close")
    assert closed["payload"]["stream"] == {"stream_id": stream_id, "namespace": f"lab/{stream_id}"}
    assert closed["context"] == f"lab/{stream_id}"


@pytest.mark.requirement("STR-27")
@pytest.mark.parametrize("sent", ["mine", {"thread": 7}, "", 0])
def test_a_context_that_the_sender_gave_is_kept(open_space: Transport, sent: Any) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind="stream/data", context=sent, payload={"stream_id": stream_id, "sequence": 0, "content": 1})
    assert bob.take("stream/data")["context"] == sent


@pytest.mark.requirement("STR-27")
@pytest.mark.parametrize("fields", [{}, {"context": None}])
def test_a_context_that_the_sender_left_out_is_the_namespace(open_space: Transport, fields: dict[str, Any]) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": 0, "content": 1}, **fields)
    assert bob.take("stream/data")["context"] == f"lab/{stream_id}"


@pytest.mark.requirement("STR-28")
@pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/grant-write", "stream/note", *ENDINGS])
@pytest.mark.parametrize("wrong", ["elsewhere/stream-1", "stream-1", "lab/stream-2", 7])
def test_a_wrong_namespace_is_refused(open_space: Transport, kind: str, wrong: Any) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    stream_id = announce(alice)
    more = {"sequence": 0, "content": 1, "participant_id": "alice", **WHAT_WENT_WRONG}
    error = refusal(alice, kind, stream={"stream_id": stream_id, "namespace": wrong}, **more)
    assert error["error"] == "invalid_envelope"
    assert "namespace" in error["message"]


@pytest.mark.requirement("STR-28")
def test_a_stream_that_is_no_object_is_refused(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    error = refusal(alice, "stream/complete", stream_id=stream_id, stream=stream_id)
    assert (error["error"], "payload.stream" in error["message"]) == ("invalid_envelope", True)


@pytest.mark.requirement("STR-29")
def test_an_unknown_kind_about_a_stream_is_completed_and_relayed(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": [{"kind": "stream/note"}], "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    bob.send(kind="stream/note", payload={"stream": {"stream_id": stream_id}, "text": "louder"})
    noted = alice.take("stream/note")
    assert noted["payload"]["stream"] == {"stream_id": stream_id, "namespace": f"lab/{stream_id}"}
    assert noted["context"] == f"lab/{stream_id}"
    assert refusal(carol, "stream/note", stream_id=stream_id)["error"] == "capability_violation"


@pytest.mark.requirement("STR-29")
def test_an_unknown_kind_about_no_stream_is_relayed_as_it_came(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    for payload in ({"stream_id": "stream-99", "stream": {"namespace": "x"}}, {"text": "which?"}):
        alice.send(kind="stream/note", payload=payload)
        noted = bob.take("stream/note")
        assert noted["payload"] == payload
        assert "context" not in noted


# Formats


@pytest.mark.requirement("STR-30")
@pytest.mark.parametrize(
    "formats",
    [
        [],
        [{"id": "a"}, {"id": "b"}, {"id": "a"}],
        [{"description": "no id"}],
        [{"id": ""}],
        [{"id": 7}],
        ["text"],
        [{"id": "a", "mime_type": 7}],
        [{"id": "a", "description": None}],
        [{"id": f"f{number}"} for number in range(65)],
    ],
)
def test_formats_have_ids_that_differ_and_are_not_too_many(open_space: Transport, formats: list[Any]) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    assert refusal(alice, "stream/announce", formats=formats)["error"] == "invalid_format"
    assert refusal(alice, "stream/request", formats=formats)["error"] == "invalid_format"
    assert bob.kinds() == ["system/welcome"]


@pytest.mark.requirement("STR-30")
def test_an_announce_needs_formats_and_they_are_a_list(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    assert refusal(alice, "stream/announce")["error"] == "invalid_format"
    assert refusal(alice, "stream/announce", formats=None)["error"] == "invalid_format"
    assert refusal(alice, "stream/announce", formats={"id": "a"})["error"] == "invalid_envelope"
    assert announce(alice, formats=[{"id": f"f{number}"} for number in range(64)]) == "stream-1"


@pytest.mark.requirement("STR-31")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"properties": []},
        "string",
        7,
        [],
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"description": "x" * 2**16},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        {"pattern": "(?<!a)b"},
        {"pattern": r"(a+)\1"},
        {"patternProperties": {"(?!a)": {}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(open_space: Transport, schema: Any) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    error = refusal(alice, "stream/announce", formats=[*TEXT, {"id": "json", "schema": schema}])
    assert error["error"] == "invalid_format"
    assert "payload.formats[1].schema" in error["message"]


@pytest.mark.requirement("STR-31")
@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "(a+)+$"},
        {"description": "x" * 65_000},
    ],
)
def test_a_schema_that_can_be_used_is_accepted(open_space: Transport, schema: Any) -> None:
    lab = open_space(participants=TWO)
    assert announce(lab.join("alice"), formats=[{"id": "json", "schema": schema}]) == "stream-1"


@pytest.mark.requirement("STR-32")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"items": {"$ref": "https://example.org/schema#/a"}},
        {"$dynamicRef": "file:///etc/hostname"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "http://127.0.0.1:9/here", "$ref": "there"},
        {"$defs": {"a": {"$id": "http://127.0.0.1:9/a"}}},
    ],
)
def test_a_schema_that_refers_outside_itself_is_refused(open_space: Transport, schema: dict[str, Any]) -> None:
    lab = open_space(participants=TWO)
    error = refusal(lab.join("alice"), "stream/announce", formats=[{"id": "json", "schema": schema}])
    assert error["error"] == "invalid_format"


@pytest.mark.requirement("STR-32")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}},
        {"$defs": {"a": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
    ],
)
def test_a_schema_may_refer_within_itself(open_space: Transport, schema: dict[str, Any]) -> None:
    lab = open_space(participants=TWO)
    assert announce(lab.join("alice"), formats=[{"id": "json", "schema": schema}]) == "stream-1"


@pytest.mark.requirement("STR-33")
def test_a_request_may_have_formats_or_none(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    open_stream(alice), open_stream(alice, formats=None), open_stream(alice, formats=TEXT)
    assert [entry["stream"]["formats"] for entry in streams_now(alice)] == [[], [], TEXT]
    assert refusal(alice, "stream/request", formats=[])["error"] == "invalid_format"
    assert refusal(alice, "stream/request", formats="text")["error"] == "invalid_envelope"


@pytest.mark.transport
@pytest.mark.requirement("STR-34")
def test_scope_is_named_in_to_and_all_receive(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None, "carol": None})
    clients = [lab.join(name) for name in ("alice", "bob", "carol")]
    clients[0].send(kind="stream/announce", payload={"formats": TEXT, "scope": ["bob", "alice", "absent", "bob"]})
    for client in clients:
        assert client.take("stream/ready")["to"] == ["alice", "bob", "absent"]


# Fields of an opening


@pytest.mark.requirement("STR-35")
@pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("on_owner_disconnect", "panic"),
        ("on_owner_disconnect", True),
        ("validate", "yes"),
        ("validate", 1),
        ("direction", 7),
        ("encoding", ["utf-8"]),
        ("target", "bob"),
        ("target", [7]),
        ("scope", "bob"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(open_space: Transport, kind: str, field: str, wrong: Any) -> None:
    lab = open_space(participants=TWO)
    error = refusal(lab.join("alice"), kind, **{"formats": TEXT, field: wrong})
    assert error["error"] == "invalid_envelope"
    assert field in error["message"]


@pytest.mark.requirement("STR-36")
@pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
def test_a_target_has_to_be_present(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None, "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    error = refusal(alice, kind, formats=TEXT, target=["carol", "bob", "nobody"])
    assert (error["error"], error["targets"]) == ("target_not_found", ["carol", "nobody"])
    error = refusal(alice, kind, formats=TEXT, target=[])
    assert (error["error"], error["targets"]) == ("target_not_found", [])
    assert bob.kinds() == ["system/welcome"]
    assert streams_now(alice) == []


@pytest.mark.requirement("STR-37")
@pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
def test_a_stream_is_described_in_so_many_bytes(open_space: Transport, kind: str) -> None:
    assert Limits().stream_request_bytes == 256 * 2**10
    lab = open_space(participants=TWO, limits=Limits(stream_request_bytes=1_000))
    alice = lab.join("alice")
    start_of_payload = len('{"formats":[{"id":"text"}],"description":""}')
    too_long = "x" * (1_001 - start_of_payload)
    assert refusal(alice, kind, formats=TEXT, description=too_long)["error"] == "quota_exceeded"
    alice.send(kind=kind, payload={"formats": TEXT, "description": too_long[1:]})
    assert len(streams_now(alice)) == 1


@pytest.mark.requirement("STR-38")
def test_a_space_has_a_limit_of_concurrent_streams(open_space: Transport) -> None:
    assert Limits().streams == 1_000
    lab = open_space(participants=TWO, limits=Limits(streams=2))
    alice = lab.join("alice")
    open_stream(alice), announce(alice)
    assert refusal(alice, "stream/request")["error"] == "quota_exceeded"
    assert refusal(alice, "stream/announce", formats=TEXT)["error"] == "quota_exceeded"
    end(alice, "stream/close", "stream-1")
    assert open_stream(alice) == "stream-3"


@pytest.mark.transport
@pytest.mark.requirement("STR-39")
def test_an_opening_that_was_posted_is_answered_with_the_streams_name(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    answer = lab.post("alice", {"id": "one", "kind": "stream/request", "payload": {}}).body
    assert answer == {"id": "one", "status": "stream_opened", "stream_id": "stream-1", "timestamp": answer["timestamp"]}
    answer = lab.post("alice", {"kind": "stream/announce", "payload": {"formats": TEXT, "desired_id": "voice"}}).body
    assert (answer["status"], answer["stream_id"], answer["namespace"]) == ("stream_ready", "voice", "lab/voice")
    assert set(answer) == {"id", "status", "stream_id", "namespace", "timestamp"}
    start_answer = lab.post("alice", {"kind": "stream/start", "payload": {"stream_id": "voice"}}).body
    assert start_answer["status"] == "accepted"


# Schemas that are expensive to validate


@pytest.mark.requirement("STR-40")
@pytest.mark.parametrize(
    "schema",
    [
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                **{f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(30)},
                "d30": {"type": "integer"},
            },
        },
        {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        {"$ref": "#"},
    ],
)
def test_a_schema_that_meets_one_value_too_often_is_refused(open_space: Transport, schema: dict[str, Any]) -> None:
    lab = open_space(participants=TWO)
    error = refusal(lab.join("alice"), "stream/announce", formats=[{"id": "json", "schema": schema}])
    assert error["error"] == "invalid_format"


def open_many(client: Client, count: int, **payload: Any) -> list[str]:
    return [open_stream(client, **payload) for _ in range(count)]


@pytest.mark.transport
@pytest.mark.requirement("STR-41")
@pytest.mark.sockets("alice", "bob")
def test_a_participant_has_so_many_open_streams(open_space: Transport) -> None:
    assert Limits().streams_per_participant == 256
    lab = open_space(participants={"alice": ALL, "bob": ALL}, limits=Limits(streams_per_participant=2))
    alice, bob = lab.join("alice"), lab.join("bob")
    first, _ = open_many(alice, 2)
    for kind in ("stream/request", "stream/announce"):
        error = refusal(alice, kind, formats=TEXT)
        assert (error["error"], error["quota"]) == ("quota_exceeded", "streams_per_participant")
        assert (error["limit"], error["value"]) == (2, 3)
        assert "close one first" in error["message"]
    end(alice, "stream/close", first)
    open_many(alice, 1)
    assert len(open_many(bob, 2)) == 2


@pytest.mark.requirement("STR-41")
@pytest.mark.sockets("alice", "bob")
def test_a_transfer_moves_no_quota(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": ALL}, limits=Limits(streams_per_participant=2))
    alice, bob = lab.join("alice"), lab.join("bob")
    for stream_id in open_many(alice, 2):
        transfer_ownership(alice, stream_id, "bob")
    assert refusal(alice, "stream/request")["quota"] == "streams_per_participant"
    assert len(open_many(bob, 2)) == 2
    end(bob, "stream/close", "stream-1")
    assert open_stream(alice) == "stream-5"


@pytest.mark.requirement("STR-42")
@pytest.mark.sockets("alice", "bob")
def test_what_is_stored_of_streams_is_bounded_by_participant_and_by_space(open_space: Transport) -> None:
    assert Limits().stream_metadata_bytes_per_participant == 2**20
    assert Limits().stream_metadata_bytes == 2 * 2**20
    limits = Limits(stream_metadata_bytes_per_participant=1_000, stream_metadata_bytes=1_600)
    lab = open_space(participants={"alice": ALL, "bob": ALL}, limits=limits)
    alice, bob = lab.join("alice"), lab.join("bob")
    others = len('direction"upload"') + len('encoding"utf-8"') + len('description""')
    described = {"description": "x" * (500 - others)}
    first, _ = open_many(alice, 2, **described)
    open_stream(bob, **described)
    own = refusal(alice, "stream/request", **described)
    assert (own["quota"], own["limit"], own["value"]) == ("stream_metadata_bytes_per_participant", 1_000, 1_500)
    assert "with this one it is 1500" in own["message"]
    shared = refusal(bob, "stream/request", **described)
    assert (shared["quota"], shared["limit"], shared["value"]) == ("stream_metadata_bytes", 1_600, 2_000)
    announced = refusal(alice, "stream/announce", formats=TEXT, **described)
    assert announced["value"] == 1_500 + len('formats[{"id":"text"}]')
    end(alice, "stream/close", first)
    open_stream(bob, **described)


@pytest.mark.requirement("STR-42")
@pytest.mark.transports("core")
def test_quotas_count_what_was_open_before_a_restart(open_space: Transport) -> None:
    lab = open_space(participants=TWO, limits=Limits(streams_per_participant=1))
    open_stream(lab.join("alice"), on_owner_disconnect="keep")
    lab.restart()
    assert refusal(lab.join("alice"), "stream/request")["quota"] == "streams_per_participant"
