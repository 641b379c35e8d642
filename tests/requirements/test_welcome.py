"""The welcome: the participant itself, the others, and every open stream (protocol §2, Welcome; j8v)."""

from typing import Any

import pytest

from tests.requirements.transports import Transport

EVERYTHING = [{"kind": "*"}]
WIDE = {"participants": {"alice": EVERYTHING, "bob": EVERYTHING, "carol": None}}
FORMATS = [{"id": "json", "mime_type": "application/json"}]


def open_stream(client: Any, **payload: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=payload)
    stream_id: str = client.take("stream/open")["payload"]["stream_id"]
    return stream_id


def announce(client: Any, **payload: Any) -> str:
    client.inbox()
    client.send(kind="stream/announce", payload={"formats": FORMATS, **payload})
    stream_id: str = client.take("stream/ready")["payload"]["stream"]["stream_id"]
    return stream_id


def grant_write(owner: Any, stream_id: str, participant: str) -> None:
    owner.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": participant})


def welcome(client: Any) -> Any:
    """Join again, and return the payload of the new welcome."""
    client.inbox()
    client.send(type="join")
    return client.take("system/welcome")["payload"]


def only_entry(client: Any) -> Any:
    """The one open stream in a new welcome."""
    (entry,) = welcome(client)["active_streams"]
    return entry


@pytest.mark.transport
@pytest.mark.requirement("WEL-01")
def test_a_welcome_has_these_parts(open_space: Transport) -> None:
    welcome_message = open_space(**WIDE).join("alice").take("system/welcome")
    assert (welcome_message["from"], welcome_message["to"]) == ("system:gateway", ["alice"])
    assert list(welcome_message["payload"]) == ["you", "participants", "active_streams", "open_proposals", "position"]
    assert list(welcome_message["payload"]["you"]) == ["id", "capabilities"]


@pytest.mark.transport
@pytest.mark.requirement("WEL-02")
@pytest.mark.sockets("carol")
def test_the_others_are_listed_in_order_of_joining(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    carol, bob = lab.join("carol"), lab.join("bob")
    assert welcome(bob)["participants"] == [
        {"id": "carol", "capabilities": [{"kind": "chat"}, {"kind": "mcp/response"}]}
    ]
    lab.join("alice")
    lab.join("carol")
    assert [participant["id"] for participant in welcome(bob)["participants"]] == ["carol", "alice"]
    carol.leave()
    lab.join("carol").leave()
    lab.join("carol")
    assert [participant["id"] for participant in welcome(bob)["participants"]] == ["alice", "carol"]


@pytest.mark.transport
@pytest.mark.requirement("WEL-03")
def test_active_streams_are_there_even_if_there_are_none(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    assert lab.join("alice").take("system/welcome")["payload"]["active_streams"] == []


@pytest.mark.requirement("WEL-03")
def test_a_welcome_after_a_capability_change_lists_the_streams_too(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, carol = lab.join("alice"), lab.join("carol")
    stream_id = open_stream(alice)
    for kind in ("capability/grant", "capability/revoke"):
        carol.inbox()
        alice.send(kind=kind, payload={"recipient": "carol", "capabilities": [{"kind": "mcp/request"}]})
        payload = carol.take("system/welcome")["payload"]
        assert [stream["stream_id"] for stream in payload["active_streams"]] == [stream_id]


@pytest.mark.requirement("WEL-04")
def test_open_streams_are_listed_in_order_of_creation(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    live, ready, started = open_stream(alice), announce(alice, desired_id="a"), announce(bob, desired_id="b")
    bob.send(kind="stream/start", payload={"stream": {"stream_id": started}})
    listed = [(stream["stream_id"], stream["stream"]["status"]) for stream in welcome(alice)["active_streams"]]
    assert listed == [(live, "live"), (ready, "ready"), (started, "live")]


@pytest.mark.requirement("WEL-04")
@pytest.mark.parametrize("ending", ["stream/close", "stream/complete", "stream/error"])
def test_ended_streams_are_not_listed(open_space: Transport, ending: str) -> None:
    alice = open_space(**WIDE).join("alice")
    ended, open_one = open_stream(alice), open_stream(alice)
    alice.send(kind=ending, payload={"stream_id": ended, "code": "x", "message": "x"})
    assert only_entry(alice)["stream_id"] == open_one


APPLICATION = {
    "description": "positions of the players",
    "content_type": "application/json",
    "format": {"type": "quadtree", "depth": [1, [2, {"x": None}]]},
    "bitrate": 1.5,
    "résumé": "✓",
    "": "a field without a name",
    "empty": {},
    "nothing": None,
}


@pytest.mark.requirement("WEL-05")
def test_an_entry_repeats_every_field_of_a_request(open_space: Transport) -> None:
    alice = open_space(**WIDE).join("alice")
    requested = {**APPLICATION, "target": ["alice"], "validate": False, "on_owner_disconnect": "keep"}
    open_stream(alice, **requested)
    entry = only_entry(alice)
    assert {name: entry[name] for name in requested} == requested


@pytest.mark.requirement("WEL-05")
def test_an_entry_repeats_every_field_of_an_announce(open_space: Transport) -> None:
    alice = open_space(**WIDE).join("alice")
    requested = {**APPLICATION, "intent": "share", "desired_id": "mine", "scope": ["bob"], "formats": FORMATS}
    announce(alice, **requested)
    entry = only_entry(alice)
    assert {name: entry[name] for name in requested} == requested


@pytest.mark.transport
@pytest.mark.requirement("WEL-05")
@pytest.mark.parametrize("value", [b"1.0", b"12345678901234567890123", b'{"a":1,"a":2}', b'"\\u00e9"', b"1e2"])
def test_an_entry_repeats_values_as_they_were_written(open_space: Transport, value: bytes) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.send_bytes(b'{"kind":"stream/request","payload":{"own":' + value + b"}}")
    welcome_message = lab.join("bob").take("system/welcome")
    assert b'"own":' + value + b"," in welcome_message.raw


@pytest.mark.requirement("WEL-05")
@pytest.mark.parametrize(
    "deepest",
    [
        b'"own":' + b"[" * 126 + b"]" * 126,
        b'"formats":[{"id":"x","own":' + b"[" * 124 + b"]" * 124 + b"}]",
    ],
)
def test_an_entry_can_be_read_however_deep_its_request_was_nested(open_space: Transport, deepest: bytes) -> None:
    lab = open_space(**WIDE)
    lab.join("alice").send_bytes(b'{"kind":"stream/request","payload":{' + deepest + b"}}")
    assert [stream.owner for stream in lab.join("bob").view.streams.values()] == ["alice"]


@pytest.mark.requirement("WEL-05")
@pytest.mark.parametrize("payload", [b"", b',"payload":{}'])
def test_a_request_may_say_nothing_at_all(open_space: Transport, payload: bytes) -> None:
    alice = open_space(**WIDE).join("alice")
    alice.send_bytes(b'{"kind":"stream/request"' + payload + b"}")
    assert only_entry(alice)["owner"] == "alice"


FORGED: dict[str, Any] = {
    "stream_id": "mine",
    "owner": "bob",
    "authorized_writers": ["bob"],
    "created": "1999-01-01T00:00:00Z",
    "stream": {"status": "forged", "creator": "bob", "own": 1},
}


@pytest.mark.requirement("WEL-06")
@pytest.mark.parametrize("opened_by", [open_stream, announce])
def test_no_request_can_set_what_the_gateway_says(open_space: Transport, opened_by: Any) -> None:
    alice = open_space(**WIDE).join("alice")
    assert opened_by(alice, **FORGED) == "stream-1"
    entry = only_entry(alice)
    assert [name for name, forged in FORGED.items() if entry[name] == forged] == []
    assert (entry["stream_id"], entry["owner"], entry["authorized_writers"]) == ("stream-1", "alice", ["alice"])
    assert [name for name, forged in FORGED["stream"].items() if entry["stream"].get(name) == forged] == []


@pytest.mark.requirement("WEL-07")
@pytest.mark.parametrize("opened_by", [open_stream, announce])
def test_an_applications_own_fields_are_not_hidden(open_space: Transport, opened_by: Any) -> None:
    alice = open_space(**WIDE).join("alice")
    own = {"status": "mine", "creator": "me", "namespace": "ours", "frames": "many", "owner_connected": "maybe"}
    opened_by(alice, **own)
    entry = only_entry(alice)
    assert {name: entry[name] for name in own} == own
    assert (entry["stream"]["creator"], entry["stream"]["namespace"]) == ("alice", "lab/stream-1")


@pytest.mark.requirement("WEL-08")
@pytest.mark.parametrize("opened_by", [open_stream, announce])
@pytest.mark.parametrize(
    ("requested", "shown"),
    [
        ({}, ("upload", "utf-8")),
        ({"direction": None, "encoding": None}, ("upload", "utf-8")),
        ({"direction": "download", "encoding": "binary"}, ("download", "binary")),
        ({"direction": "", "encoding": ""}, ("", "")),
    ],
)
def test_direction_and_encoding_are_the_requests_or_the_usual(
    open_space: Transport, opened_by: Any, requested: dict[str, Any], shown: tuple[str, str]
) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    stream_id = opened_by(alice, **requested)
    view_entry = alice.view.streams[stream_id].entry
    entry = only_entry(alice)
    assert (entry["direction"], entry["encoding"]) == shown
    assert (view_entry["direction"], view_entry["encoding"]) == shown


@pytest.mark.requirement("WEL-09")
@pytest.mark.parametrize(("ask", "answer"), [("stream/request", "stream/open"), ("stream/announce", "stream/ready")])
def test_created_is_when_the_stream_was_opened_and_stays(open_space: Transport, ask: str, answer: str) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    lab.join("bob")
    lab.advance(5)
    alice.send(kind=ask, ts="2001-01-01T00:00:00Z", payload={"formats": FORMATS})
    created = alice.take(answer)["ts"]
    lab.advance(5)
    transfer = {"stream_id": "stream-1", "new_owner": "bob"}
    alice.send(kind="stream/transfer-ownership", payload=transfer)
    assert only_entry(alice)["created"] == created
    assert created.endswith("Z")


@pytest.mark.requirement("WEL-10")
def test_writers_are_listed_with_the_owner_first_then_by_time_of_grant(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, _bob, _carol = (lab.join(name) for name in WIDE["participants"])
    stream_id = open_stream(alice)
    assert only_entry(alice)["authorized_writers"] == ["alice"]
    for name in ("carol", "bob"):
        grant_write(alice, stream_id, name)
    assert only_entry(alice)["authorized_writers"] == ["alice", "carol", "bob"]
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": stream_id, "new_owner": "bob"})
    assert only_entry(alice)["authorized_writers"] == ["bob", "carol"]


@pytest.mark.requirement("WEL-11")
def test_the_stream_object_holds_the_gateways_own_knowledge(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    stream_id = announce(alice, desired_id="mine")
    knowledge = {
        "stream_id": "mine",
        "namespace": "lab/mine",
        "status": "ready",
        "creator": "alice",
        "formats": FORMATS,
        "owner_connected": True,
        "frames": 0,
    }
    assert only_entry(alice)["stream"] == knowledge
    alice.send(kind="stream/start", payload={"stream_id": stream_id})
    bob = lab.join("bob")
    alice.leave()
    assert only_entry(bob)["stream"] == {**knowledge, "status": "live", "owner_connected": False}


@pytest.mark.requirement("WEL-11")
@pytest.mark.parametrize("requested", [{}, {"formats": None}])
def test_a_stream_without_formats_has_an_empty_list_of_them(open_space: Transport, requested: dict[str, Any]) -> None:
    alice = open_space(**WIDE).join("alice")
    stream_id = open_stream(alice, **requested)
    assert alice.view.streams[stream_id].formats == []
    assert only_entry(alice)["stream"]["formats"] == []


@pytest.mark.requirement("WEL-12")
def test_the_creator_stays_when_the_owner_changes(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    lab.join("bob")
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": open_stream(alice), "new_owner": "bob"})
    entry = only_entry(alice)
    assert (entry["owner"], entry["stream"]["creator"]) == ("bob", "alice")


@pytest.mark.transport
@pytest.mark.requirement("WEL-13")
@pytest.mark.sockets("alice", "bob")
def test_frames_counts_what_was_accepted(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for sequence in (1, 2, 2, 3):
        alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": sequence, "content": sequence})
    alice.frame(stream_id, "mine")
    bob.frame(stream_id, "refused")
    assert only_entry(alice)["stream"]["frames"] == 4


@pytest.mark.requirement("WEL-14")
@pytest.mark.parametrize("opened_by", [open_stream, announce])
def test_the_keys_of_an_entry_come_in_order(open_space: Transport, opened_by: Any) -> None:
    alice = open_space(**WIDE).join("alice")
    opened_by(alice, zeta=1, encoding="binary", stream={}, owner="me", formats=FORMATS, alpha=2, direction="both")
    overlaid = ["stream_id", "owner", "authorized_writers", "created", "direction", "encoding"]
    own = ["zeta", "formats", "alpha"] if opened_by is open_stream else ["formats", "zeta", "alpha"]
    assert list(only_entry(alice)) == [*overlaid, *own, "stream"]


@pytest.mark.transport
@pytest.mark.requirement("WEL-15")
def test_effective_capabilities_are_shown_to_oneself_and_to_others(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": [{"kind": "chat"}, {"kind": "mcp/request"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    grant = {"recipient": "bob", "capabilities": [{"kind": "reasoning/*", "payload": {"depth": 1}}]}
    alice.send(kind="capability/grant", payload=grant)
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "chat"}]})
    capabilities = [{"kind": "mcp/request"}, {"kind": "mcp/response"}, {"kind": "reasoning/*", "payload": {"depth": 1}}]
    assert welcome(bob)["you"]["capabilities"] == capabilities
    assert welcome(alice)["participants"] == [{"id": "bob", "capabilities": capabilities}]


@pytest.mark.requirement("WEL-16")
@pytest.mark.parametrize(
    ("defaults", "capabilities"),
    [
        (None, [{"kind": "chat"}]),
        ([{"kind": "reasoning/*"}], [{"kind": "reasoning/*"}]),
        ([], []),
    ],
)
def test_who_is_configured_without_capabilities_has_the_defaults(
    open_space: Transport, defaults: list[Any] | None, capabilities: list[Any]
) -> None:
    lab = open_space(participants={"alice": None, "bob": [{"kind": "mcp/request"}]}, defaults=defaults)
    assert welcome(lab.join("alice"))["you"]["capabilities"] == [*capabilities, {"kind": "mcp/response"}]
    assert welcome(lab.join("bob"))["you"]["capabilities"] == [{"kind": "mcp/request"}, {"kind": "mcp/response"}]


@pytest.mark.requirement("WEL-17")
@pytest.mark.parametrize("configured", [None, [], [{"kind": "chat"}], [{"kind": "mcp/response"}], EVERYTHING])
def test_every_participant_may_answer(open_space: Transport, configured: list[Any] | None) -> None:
    alice = open_space(participants={"alice": configured}).join("alice")
    assert welcome(alice)["you"]["capabilities"].count({"kind": "mcp/response"}) == 1
    alice.send(kind="mcp/response", payload={"result": 1})
    assert alice.kinds() == ["mcp/response"]


@pytest.mark.requirement("WEL-18")
def test_two_asterisks_stand_beside_one(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": [{"kind": "*", "to": "alice"}], "carol": None})
    assert welcome(lab.join("alice"))["you"]["capabilities"][:2] == [{"kind": "*"}, {"kind": "**"}]
    capabilities = welcome(lab.join("bob"))["you"]["capabilities"]
    assert capabilities[:2] == [{"kind": "*", "to": "alice"}, {"kind": "**", "to": "alice"}]
    assert {"kind": "**"} not in welcome(lab.join("carol"))["you"]["capabilities"]


def writable(capabilities: list[dict[str, Any]]) -> list[str]:
    return [capability["kind"] for capability in capabilities if capability["kind"].startswith("stream/write:")]


@pytest.mark.requirement("WEL-19")
def test_your_capabilities_mirror_the_lists_of_writers_that_name_you(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    first, second, third = open_stream(alice), open_stream(bob), open_stream(alice)
    grant_write(alice, third, "bob")
    assert writable(welcome(bob)["you"]["capabilities"]) == [f"stream/write:{second}", f"stream/write:{third}"]
    assert writable(welcome(alice)["you"]["capabilities"]) == [f"stream/write:{first}", f"stream/write:{third}"]
    bob.send(kind="stream/close", payload={"stream_id": second})
    alice.send(kind="stream/revoke-write", payload={"stream_id": third, "participant_id": "bob"})
    assert writable(welcome(bob)["you"]["capabilities"]) == []


@pytest.mark.requirement("WEL-19")
def test_only_the_participant_itself_sees_which_streams_it_may_write(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(bob)
    (other,) = welcome(alice)["participants"]
    assert writable(other["capabilities"]) == []
    grant = {"recipient": "bob", "capabilities": [{"kind": "reasoning/start"}]}
    alice.send(kind="capability/grant", payload=grant)
    assert writable(alice.take("system/presence")["payload"]["participant"]["capabilities"]) == []
    bob.leave()
    assert writable(alice.take("system/presence")["payload"]["participant"]["capabilities"]) == []


@pytest.mark.transport
@pytest.mark.requirement("WEL-20")
def test_the_position_is_that_of_the_last_record_before_the_welcomes_own(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    open_stream(alice)
    for client in (alice, lab.join("bob"), lab.observe()):
        position = welcome(client)["position"]
        (own,) = [record for record in lab.records if record.event == "welcome" and record.position > position]
        assert own.position == position + 1


@pytest.mark.transport
@pytest.mark.requirement("WEL-20")
def test_positions_only_grow(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    first, second = welcome(alice)["position"], welcome(alice)["position"]
    assert 0 <= first < second


@pytest.mark.transport
@pytest.mark.requirement("WEL-21")
@pytest.mark.sockets("alice")
def test_an_early_participant_knows_what_a_new_one_gets_in_its_welcome(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    shared, handed_over, ended = open_stream(alice), announce(bob, desired_id="mine"), open_stream(bob)
    grant_write(alice, shared, "bob")
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "reasoning/*"}]})
    bob.send(kind="stream/start", payload={"stream_id": handed_over})
    bob.send(kind="stream/transfer-ownership", payload={"stream_id": handed_over, "new_owner": "alice"})
    bob.send(kind="stream/close", payload={"stream_id": ended})
    alice.frame(shared, "data")
    lab.join("carol")
    view = lab.observe().view
    assert view.streams == alice.view.streams == bob.view.streams
    assert list(view.participants) == ["alice", *alice.view.participants]
    assert alice.view.participants.items() <= view.participants.items()
    assert bob.view.participants["alice"] == view.participants["alice"]
