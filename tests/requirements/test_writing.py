"""Raw frames and `stream/data`: which are accepted, who receives them, how they are counted (protocol §4)."""

from collections.abc import Iterator
from typing import Any

import pytest

from mew.protocol import Limits, StreamSettings
from mew.testing import Client, ReceivedFrame
from tests.requirements.steps import TEXT, announce, grant_write, open_stream, start, transfer_ownership
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
TWO = {"alice": ALL, "bob": None}
THREE = {"alice": ALL, "bob": None, "carol": None}
LAST = 2**53 - 1


def data(client: Client, stream_id: str, sequence: Any, content: Any = "x", **fields: Any) -> None:
    payload = {"stream": {"stream_id": stream_id}, "sequence": sequence, "content": content, **fields}
    client.send(kind="stream/data", payload=payload)


def refusal(client: Client, stream_id: str, sequence: Any, content: Any = "x", **fields: Any) -> dict[str, Any]:
    """Send a `stream/data` that is rejected, and return the error: its only effect."""
    client.inbox()
    data(client, stream_id, sequence, content, **fields)
    error = client.error()
    assert client.inbox() == []
    return error


def frame_refusal(client: Client, stream_id: str, payload: bytes | str = "x") -> dict[str, Any]:
    client.inbox()
    client.frame(stream_id, payload)
    error = client.error()
    assert client.inbox() == []
    return error


def written(client: Client) -> list[Any]:
    """The data that a client received in frames and envelopes, in order."""
    return list(_written(client))


def _written(client: Client) -> Iterator[Any]:
    for message in client.inbox():
        if isinstance(message, ReceivedFrame):
            yield message.data
        elif message["kind"] == "stream/data":
            yield message["payload"]["content"]


# Frames


@pytest.mark.transport
@pytest.mark.requirement("WRT-01")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize(
    "payload", [b"", b"hello", bytes(range(256)), b"#", b"##a#b#", b"\xff\xfe", b"\x00", b'{"a":1}']
)
def test_a_frame_reaches_everyone_byte_for_byte(open_space: Transport, payload: bytes) -> None:
    lab = open_space(participants=TWO)
    alice, bob, onlooker = lab.join("alice"), lab.join("bob"), lab.observe()
    stream_id = open_stream(alice)
    alice.frame(stream_id, payload, text=False)
    for client in (alice, bob, onlooker):
        frame = client.take_frame()
        assert (frame.stream_id, frame.data) == (stream_id, payload)


@pytest.mark.transport
@pytest.mark.requirement("WRT-02")
@pytest.mark.sockets("alice")
def test_a_frame_keeps_its_opcode(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for text in (True, False, True):
        alice.frame(stream_id, "same", text=text)
    assert [bob.take_frame().text for _ in range(3)] == [True, False, True]


@pytest.mark.transport
@pytest.mark.requirement("WRT-03")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("announced", [True, False])
def test_either_kind_of_stream_takes_frames_and_data_mixed(open_space: Transport, announced: bool) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    if announced:
        stream_id = announce(alice)
        start(alice, stream_id)
    else:
        stream_id = open_stream(alice)
    alice.frame(stream_id, "one")
    data(alice, stream_id, 0, "two")
    alice.frame(stream_id, "three")
    data(alice, stream_id, 1, "four")
    assert written(bob) == [b"one", "two", b"three", "four"]


@pytest.mark.transport
@pytest.mark.requirement("WRT-04")
@pytest.mark.sockets("bob")
def test_a_frame_of_a_non_writer_reaches_no_reader_and_its_sender_gets_the_error(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": ALL, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    for client in (alice, bob, carol):
        client.inbox()
    bob.frame(stream_id, "mine?")
    refused = bob.take("system/error")
    assert refused["payload"]["error"] == "unauthorized_stream_write"
    assert refused["payload"]["stream_id"] == stream_id
    assert refused["to"] == ["bob"]
    assert "correlation_id" not in refused
    assert [client.inbox() for client in (alice, bob, carol)] == [[], [], []]


@pytest.mark.requirement("WRT-04")
def test_an_observer_writes_to_no_stream(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, onlooker = lab.join("alice"), lab.observe()
    stream_id = open_stream(alice)
    assert frame_refusal(onlooker, stream_id)["error"] == "unauthorized_stream_write"
    assert written(alice) == []


@pytest.mark.transport
@pytest.mark.requirement("WRT-05")
@pytest.mark.sockets("alice", "bob", "carol")
def test_owner_and_writers_write_in_turn_and_order_is_kept(open_space: Transport) -> None:
    lab = open_space(participants=THREE)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    for writer in ("bob", "carol"):
        grant_write(alice, stream_id, writer)
    for turn in range(5):
        for client in (carol, alice, bob):
            client.frame(stream_id, f"{client.participant}{turn}")
    expected = [f"{name}{turn}".encode() for turn in range(5) for name in ("carol", "alice", "bob")]
    assert [written(client) for client in (alice, bob, carol)] == [expected] * 3


@pytest.mark.transport
@pytest.mark.requirement("WRT-06")
@pytest.mark.sockets("alice")
def test_a_frame_needs_a_stream_that_is_live(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    ready, ended = announce(alice), open_stream(alice)
    alice.send(kind="stream/close", payload={"stream_id": ended})
    error = frame_refusal(alice, ready)
    assert (error["error"], error["stream_id"]) == ("stream_not_live", ready)
    for stream_id in (ended, "stream-99", "stream-", "Ünbekannt"):
        error = frame_refusal(alice, stream_id)
        assert (error["error"], error["stream_id"]) == ("unauthorized_stream_write", stream_id)
    assert written(bob) == []


@pytest.mark.transport
@pytest.mark.requirement("WRT-06")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_stream_id_that_is_no_text_is_an_unknown_stream(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    alice.send_bytes(b"#\xff\xfe#x", text=False)
    assert alice.error()["error"] == "unauthorized_stream_write"


@pytest.mark.transport
@pytest.mark.requirement("WRT-07")
@pytest.mark.sockets("bob")
def test_the_checks_of_a_frame_have_an_order(open_space: Transport) -> None:
    limits = Limits(message_bytes=300, frames_per_second=1, frame_burst=4)
    lab = open_space(participants={"alice": ALL, "bob": None}, limits=limits)
    alice, bob = lab.join("alice"), lab.join("bob")
    ready = announce(alice)
    assert frame_refusal(bob, ready)["error"] == "stream_not_live"
    alice.send(kind="participant/pause", to=["bob"])
    assert frame_refusal(bob, "stream-99")["error"] == "paused"
    bob.send_bytes(b"#no end")
    assert bob.error()["error"] == "invalid_envelope"
    bob.send_bytes(b"##no name")
    bob.inbox()
    assert frame_refusal(bob, "stream-99")["error"] == "rate_limited"
    bob.send_bytes(b"#no end" + b"x" * 300)
    assert bob.error()["error"] == "message_too_large"
    assert bob.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("WRT-07")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("message", [b"#", b"#stream-1", b"##", b"##data"])
def test_a_frame_without_a_name_is_refused(open_space: Transport, message: bytes) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(alice)
    bob.inbox()
    alice.send_bytes(message)
    assert alice.error()["error"] == "invalid_envelope"
    assert bob.inbox() == []
    assert alice.closed is None


@pytest.mark.transport
@pytest.mark.requirement("WRT-08")
@pytest.mark.transports("core", "memory", "websocket")
def test_frame_errors_are_sent_immediately_and_then_four_a_second(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    bob = lab.join("bob")
    bob.inbox()
    errors = []
    for step in range(21):
        if step:
            lab.advance(0.05)
        bob.frame("stream-99", "x")
        errors += [(step, message["payload"].get("suppressed", 0)) for message in bob.inbox()]
    assert errors == [(0, 0), (5, 4), (10, 4), (15, 4), (20, 4)]


@pytest.mark.transport
@pytest.mark.requirement("WRT-08")
@pytest.mark.sockets("bob", "carol")
def test_frame_errors_are_counted_per_participant_stream_and_code(open_space: Transport) -> None:
    lab = open_space(participants=THREE)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    ready = announce(alice)
    for client in (bob, carol):
        client.inbox()
        for stream_id in (ready, "stream-98", "stream-99", "stream-99"):
            client.frame(stream_id, "x")
        assert [message["payload"]["error"] for message in client.inbox()] == [
            "stream_not_live",
            "unauthorized_stream_write",
            "unauthorized_stream_write",
        ]
    start(alice, ready)
    assert frame_refusal(bob, ready)["error"] == "unauthorized_stream_write"


@pytest.mark.transport
@pytest.mark.requirement("WRT-09")
@pytest.mark.transports("core", "memory", "websocket")
def test_beyond_sixty_four_combinations_one_allowance_is_shared(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    bob = lab.join("bob")
    bob.inbox()
    for number in range(200):
        bob.frame(f"stream-{number}", "x")
    assert len(bob.inbox()) == 64 + 1
    lab.advance(1)
    bob.frame("another", "x")
    assert bob.error()["suppressed"] == 200 - 64 - 1


@pytest.mark.transport
@pytest.mark.requirement("WRT-10")
@pytest.mark.sockets("alice")
def test_frames_are_not_limited_by_default(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for _ in range(6_000):
        alice.frame(stream_id, "x")
    assert len(written(bob)) == 6_000


@pytest.mark.transport
@pytest.mark.requirement("WRT-10")
@pytest.mark.sockets("alice", "carol")
def test_frames_above_a_configured_rate_are_dropped(open_space: Transport) -> None:
    lab = open_space(participants=THREE, limits=Limits(frames_per_second=2, frame_burst=3))
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant_write(alice, stream_id, "carol")
    for number in range(5):
        alice.frame(stream_id, str(number))
    assert written(bob) == [b"0", b"1", b"2"]
    assert alice.error()["error"] == "rate_limited"
    carol.frame(stream_id, "her own allowance")
    assert written(bob) == [b"her own allowance"]
    lab.advance(0.5)
    alice.frame(stream_id, "again")
    alice.frame(stream_id, "too soon")
    assert written(bob) == [b"again"]


@pytest.mark.transport
@pytest.mark.requirement("WRT-11")
@pytest.mark.sockets("alice", "bob")
def test_frames_and_data_are_counted_together(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.frame(stream_id, "1")
    data(alice, stream_id, 0)
    bob.frame(stream_id, "refused")
    data(alice, stream_id, 0)
    alice.frame(stream_id, "3")
    bob.inbox()
    bob.send(type="join")
    [entry] = bob.take("system/welcome")["payload"]["active_streams"]
    assert entry["stream"]["frames"] == 3


@pytest.mark.transport
@pytest.mark.requirement("WRT-11")
@pytest.mark.sockets("alice", "bob")
def test_the_journal_numbers_frames_and_data_without_a_gap(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    one, other = open_stream(alice), open_stream(alice)
    for stream_id in (one, other):
        alice.frame(stream_id, "1")
        alice.frame(stream_id, "2")
        data(alice, stream_id, 0)
        bob.frame(stream_id, "refused")
        data(alice, stream_id, 0)
        alice.frame(stream_id, "4")
    for stream_id in (one, other):
        numbers = [record.frame_number for record in lab.records if record.stream_id == stream_id]
        assert [number for number in numbers if number is not None] == [1, 2, 3, 4]


# stream/data


@pytest.mark.transport
@pytest.mark.requirement("WRT-12")
def test_data_is_relayed_to_all_byte_for_byte(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    content = b'{"x":1.0,"y":12345678901234567890,"z":"\xc3\xa4\\u00e4","d":{"k":1,"k":2}}'
    name = stream_id.encode()
    alice.send_bytes(b'{"kind":"stream/data","payload":{"stream_id":"%s","sequence":7,"content":%s}}' % (name, content))
    for client in (alice, bob):
        message = client.take("stream/data")
        assert (message["from"], message["payload"]["sequence"]) == ("alice", 7)
        assert b'"content":' + content in message.raw


@pytest.mark.requirement("WRT-12")
@pytest.mark.parametrize("content", [None, False, 0, "", [], {}])
def test_any_json_is_content(open_space: Transport, content: Any) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    data(alice, open_stream(alice), 0, content)
    assert written(bob) == [content]


@pytest.mark.transport
@pytest.mark.requirement("WRT-13")
def test_data_needs_a_stream_that_is_live(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    ready, ended = announce(alice), open_stream(alice)
    alice.send(kind="stream/close", payload={"stream_id": ended})
    alice.inbox()
    nameless: list[dict[str, Any]] = [{}, {"stream": {}}, {"stream": {"stream_id": 7}}, {"stream_id": None}]
    for payload in nameless:
        alice.send(kind="stream/data", payload={**payload, "sequence": 0, "content": "x"})
        assert alice.error()["error"] == "invalid_envelope"
    for stream_id in (ended, "stream-99"):
        assert refusal(alice, stream_id, 0)["error"] == "stream_not_found"
    assert refusal(alice, ready, 0)["error"] == "stream_not_live"


@pytest.mark.requirement("WRT-14")
@pytest.mark.parametrize("pattern", ["*", "stream/data", "stream/manage", "chat"])
def test_data_is_for_writers_whatever_the_capabilities(open_space: Transport, pattern: str) -> None:
    lab = open_space(participants={"alice": ALL, "bob": [{"kind": pattern}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.inbox()
    error = refusal(bob, stream_id, 0)
    assert (error["error"], error["stream_id"]) == ("unauthorized_stream_write", stream_id)
    assert alice.inbox() == []
    grant_write(alice, stream_id, "bob")
    data(bob, stream_id, 0)
    assert written(alice) == ["x"]


@pytest.mark.requirement("WRT-15")
@pytest.mark.parametrize("sequence", [b"null", b"true", b"1.0", b"1e0", b'"1"', b"-1", b"9007199254740992", b"[1]"])
def test_a_sequence_is_a_whole_number(open_space: Transport, sequence: bytes) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    values = (stream_id.encode(), sequence)
    alice.send_bytes(b'{"kind":"stream/data","payload":{"stream_id":"%s","sequence":%s,"content":1}}' % values)
    error = alice.error()
    assert (error["error"], "payload.sequence" in error["message"]) == ("invalid_envelope", True)
    assert written(bob) == []


@pytest.mark.requirement("WRT-15")
def test_a_sequence_may_not_be_missing(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    alice.send(kind="stream/data", payload={"stream_id": stream_id, "content": 1})
    assert alice.error()["error"] == "invalid_envelope"


@pytest.mark.requirement("WRT-15")
def test_the_first_and_the_last_sequence_are_accepted(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    data(alice, stream_id, 0, "first")
    data(alice, stream_id, LAST, "last")
    assert written(bob) == ["first", "last"]


@pytest.mark.transport
@pytest.mark.requirement("WRT-16")
@pytest.mark.parametrize("sequence", [5, 4, 0])
def test_a_sequence_has_to_grow(open_space: Transport, sequence: int) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    data(alice, stream_id, 5, "kept")
    error = refusal(alice, stream_id, sequence)
    assert (error["error"], error["last_sequence"], error["stream_id"]) == ("sequence_out_of_order", 5, stream_id)
    assert written(bob) == ["kept"]


@pytest.mark.requirement("WRT-17")
def test_a_sequence_may_skip(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for sequence in (3, 4, 10, 1_000_000):
        data(alice, stream_id, sequence, sequence)
    assert written(bob) == [3, 4, 10, 1_000_000]


@pytest.mark.requirement("WRT-18")
def test_sequences_are_counted_per_writer_and_stream(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    one, other = open_stream(alice), open_stream(alice)
    grant_write(alice, one, "bob")
    data(alice, one, 7, "alice on one")
    data(bob, one, 3, "bob on one")
    data(alice, other, 0, "alice on other")
    assert written(bob) == ["alice on one", "bob on one", "alice on other"]
    assert refusal(bob, one, 3)["last_sequence"] == 3
    assert refusal(alice, one, 7)["last_sequence"] == 7
    assert refusal(alice, other, 0)["last_sequence"] == 0


@pytest.mark.requirement("WRT-19")
def test_a_last_sequence_survives_revoke_and_grant(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant_write(alice, stream_id, "bob")
    data(bob, stream_id, 9)
    alice.send(kind="stream/revoke-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    grant_write(alice, stream_id, "bob")
    assert refusal(bob, stream_id, 9)["last_sequence"] == 9


@pytest.mark.requirement("WRT-19")
def test_a_last_sequence_survives_transfer_and_back(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    data(alice, stream_id, 9)
    transfer_ownership(alice, stream_id, "bob")
    data(bob, stream_id, 0, "its own")
    transfer_ownership(bob, stream_id, "alice")
    assert refusal(alice, stream_id, 9)["last_sequence"] == 9


@pytest.mark.transport
@pytest.mark.requirement("WRT-19")
@pytest.mark.sockets("alice", "bob")
def test_a_last_sequence_survives_reconnecting(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant_write(alice, stream_id, "bob")
    data(alice, stream_id, 9)
    data(bob, stream_id, 8)
    alice.leave(), bob.leave()
    alice, bob = lab.join("alice"), lab.join("bob")
    grant_write(alice, stream_id, "bob")
    assert refusal(alice, stream_id, 9)["last_sequence"] == 9
    assert refusal(bob, stream_id, 8)["last_sequence"] == 8


@pytest.mark.requirement("WRT-19")
@pytest.mark.transports("core")
def test_a_last_sequence_survives_a_restart(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    data(alice, stream_id, 9)
    lab.restart()
    alice = lab.join("alice")
    assert refusal(alice, stream_id, 9)["last_sequence"] == 9
    data(alice, stream_id, 10, "on")
    assert written(alice) == ["on"]


@pytest.mark.requirement("WRT-20")
def test_refused_data_does_not_advance_the_sequence(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    schema = {"type": "string"}
    stream_id = open_stream(alice, formats=[{"id": "text", "schema": schema}], validate=True)
    data(alice, stream_id, 1, "kept")
    refusal(alice, stream_id, 50, 7)
    refusal(alice, stream_id, 60, "x", format_id="other")
    refusal(alice, stream_id, True)
    refusal(bob, stream_id, 70)
    data(alice, stream_id, 2, "kept too")
    assert written(bob) == ["kept too"]


@pytest.mark.requirement("WRT-21")
def test_the_checks_of_data_have_an_order(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    schema = {"type": "string"}
    stream_id = announce(alice, formats=[{"id": "a", "schema": schema}, {"id": "b"}], validate=True)
    wrong: dict[str, Any] = {"stream_id": 7, "sequence": "no", "format_id": "none"}

    def code_and_cause(client: Client, **corrected: Any) -> tuple[str, bool]:
        wrong.update(corrected)
        client.inbox()
        client.send(kind="stream/data", payload=wrong)
        payload = client.error()
        return payload["error"], "`payload.content`" in payload["message"]

    assert code_and_cause(bob) == ("invalid_envelope", False)
    assert code_and_cause(bob, stream_id="stream-99") == ("stream_not_found", False)
    assert code_and_cause(bob, stream_id=stream_id) == ("stream_not_live", False)
    start(alice, stream_id)
    assert code_and_cause(bob) == ("unauthorized_stream_write", False)
    data(alice, stream_id, 4, format_id="b")
    assert code_and_cause(alice) == ("invalid_envelope", False)
    assert code_and_cause(alice, sequence=4) == ("sequence_out_of_order", False)
    assert code_and_cause(alice, sequence=5) == ("invalid_envelope", True)
    assert code_and_cause(alice, content=7) == ("unknown_format", False)
    assert code_and_cause(alice, format_id="a") == ("schema_violation", False)
    data(alice, stream_id, 5, "fits", format_id="a")
    assert written(alice) == ["fits"]


@pytest.mark.requirement("WRT-22")
def test_a_format_has_to_be_one_of_the_streams(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    one = open_stream(alice, formats=TEXT)
    several = open_stream(alice, formats=[{"id": "text"}, {"id": "json"}])
    none = open_stream(alice)
    for stream_id in (one, several):
        for format_id in ("other", "", 7, ["text"]):
            assert refusal(alice, stream_id, 0, format_id=format_id)["error"] == "unknown_format"
    error = refusal(alice, several, 0)
    assert (error["error"], error["formats"]) == ("unknown_format", ["text", "json"])
    bob.inbox()
    data(alice, one, 0, "left out")
    data(alice, one, 1, "named", format_id="text")
    data(alice, several, 0, "one of several", format_id="json")
    data(alice, none, 0, "none at all")
    data(alice, none, 1, "any", format_id="whatever")
    data(alice, none, 2, "anything", format_id=7)
    assert written(bob) == ["left out", "named", "one of several", "none at all", "any", "anything"]


@pytest.mark.requirement("WRT-23")
@pytest.mark.parametrize(
    ("configured", "requested", "checked"),
    [
        (False, {}, False),
        (False, {"validate": None}, False),
        (False, {"validate": False}, False),
        (False, {"validate": True}, True),
        (True, {}, True),
        (True, {"validate": True}, True),
    ],
)
def test_content_is_checked_where_stream_or_configuration_asks(
    open_space: Transport, configured: bool, requested: dict[str, Any], checked: bool
) -> None:
    lab = open_space(participants=TWO, streams=StreamSettings(validate=configured))
    alice, bob = lab.join("alice"), lab.join("bob")
    position = {"type": "object", "properties": {"at": {"items": {"type": "number"}}}, "required": ["at"]}
    stream_id = open_stream(alice, formats=[{"id": "position", "schema": position}], **requested)
    data(alice, stream_id, 0, {"at": [1, 2.5]})
    if checked:
        error = refusal(alice, stream_id, 1, {"at": [1, "here"]})
        assert (error["error"], error["format_id"], error["path"]) == ("schema_violation", "position", "at/1")
        assert written(bob) == [{"at": [1, 2.5]}]
    else:
        data(alice, stream_id, 1, {"at": [1, "here"]})
        assert len(written(bob)) == 2


@pytest.mark.requirement("WRT-23")
def test_a_format_without_schema_takes_any_content(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    data(alice, open_stream(alice, formats=TEXT, validate=True), 0, {"any": "thing"})
    assert written(bob) == [{"any": "thing"}]


# Targets


@pytest.mark.transport
@pytest.mark.requirement("WRT-24")
@pytest.mark.sockets("alice", "carol")
@pytest.mark.parametrize("announced", [True, False])
def test_data_reaches_the_targets_only_and_lifecycle_reaches_all(open_space: Transport, announced: bool) -> None:
    lab = open_space(participants=THREE)
    alice, bob, carol, onlooker = lab.join("alice"), lab.join("bob"), lab.join("carol"), lab.observe()
    stream_id = (announce if announced else open_stream)(alice, target=["bob", "bob"])
    if announced:
        start(alice, stream_id)
    for client in (alice, bob, carol, onlooker):
        client.inbox()
    alice.frame(stream_id, "frame")
    data(alice, stream_id, 0, "data")
    grant_write(alice, stream_id, "carol")
    carol.frame(stream_id, "of a writer")
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    assert bob.kinds() == ["#", "stream/data", "stream/write-granted", "#", "stream/close"]
    for client in (alice, carol, onlooker):
        assert client.kinds() == ["stream/write-granted", "stream/close"]


@pytest.mark.transport
@pytest.mark.requirement("WRT-24")
@pytest.mark.sockets("alice")
def test_the_sender_has_its_echo_if_it_is_a_target(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice, target=["alice", "bob"])
    alice.frame(stream_id, "echo")
    data(alice, stream_id, 0, "echo")
    assert written(alice) == written(bob) == [b"echo", "echo"]


@pytest.mark.transport
@pytest.mark.requirement("WRT-25")
@pytest.mark.sockets("alice", "carol")
def test_targets_stay_as_they_were(open_space: Transport) -> None:
    lab = open_space(participants={**THREE, "dave": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice, target=["bob"])
    bob.leave()
    alice.frame(stream_id, "while away")
    bob, dave = lab.join("bob"), lab.join("dave")
    [entry] = dave.take("system/welcome")["payload"]["active_streams"]
    assert (entry["stream_id"], entry["target"]) == (stream_id, ["bob"])
    alice.frame(stream_id, "back")
    transfer_ownership(alice, stream_id, "carol")
    carol.frame(stream_id, "of the new owner")
    assert written(bob) == [b"back", b"of the new owner"]
    assert [written(client) for client in (alice, carol, dave)] == [[], [], []]


# Lost frames


@pytest.mark.transport
@pytest.mark.requirement("WRT-26")
@pytest.mark.transports("core", "memory", "websocket")
def test_lost_frames_are_reported_only_to_their_reader(open_space: Transport) -> None:
    lab = open_space(participants=THREE)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    for client in (alice, bob, carol):
        client.inbox()
    lab.lose("bob", stream_id, first=3, last=9)
    gap = bob.take("stream/gap")
    assert (gap["from"], gap["to"], gap["context"]) == ("system:gateway", ["bob"], f"lab/{stream_id}")
    assert gap["payload"] == {
        "stream_id": stream_id,
        "from": 3,
        "to": 9,
        "dropped": 7,
        "stream": {"stream_id": stream_id, "namespace": f"lab/{stream_id}"},
    }
    assert [client.inbox() for client in (alice, bob, carol)] == [[], [], []]


@pytest.mark.transport
@pytest.mark.requirement("WRT-26")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_loss_is_recorded_though_its_reader_or_its_stream_is_gone(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    lab.lose("bob", stream_id, first=1, last=2)
    assert bob.take("stream/gap")["payload"]["dropped"] == 2
    bob.leave()
    alice.inbox()
    lab.lose("bob", stream_id, first=3, last=3)
    assert alice.inbox() == []
    gaps = [record for record in lab.records if record.event == "gap"]
    assert [(record.participant, record.stream_id) for record in gaps] == [("bob", stream_id)] * 2
    assert all(record.size >= len(record.payload) > 0 for record in gaps)
