"""The space in memory that other people's tests stand on: its example runs, and its failures can be read."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

import mew.testing
from mew.protocol import Limits, SpaceState, snapshot
from mew.testing import Client, MemorySpace, ReceivedFrame

EVERYTHING = [{"kind": "*"}]
LIMIT = Limits(connections=1)


def open_lab(**configuration: Any) -> MemorySpace:
    return MemorySpace(participants={"alice": EVERYTHING, "bob": None}, **configuration)


def said_by(failing: Callable[[], object]) -> str:
    """What a failed assertion says."""
    with pytest.raises(AssertionError) as caught:
        failing()
    return str(caught.value)


def example(docstring: str | None) -> str:
    """The indented lines of a docstring."""
    lines = (docstring or "").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))


def test_the_example_at_its_head_runs() -> None:
    source = example(mew.testing.__doc__)
    assert sum(isinstance(node, ast.Assert) for node in ast.parse(source).body) == 1
    exec(source, {"MemorySpace": MemorySpace})


# ------------------------------------------------------------------------------------------- failures to be read


def test_the_error_names_the_missing_envelope_and_those_that_arrived() -> None:
    lab = open_lab()
    bob = lab.join("bob")
    bob.send(kind="mcp/request", payload={"method": "tools/call"})
    error_text = said_by(lambda: bob.take("mcp/request"))
    assert error_text.startswith(
        "bob received no 'mcp/request'; unread: system/welcome, system/error (capability_violation: "
    )
    assert "protocol" not in error_text


def test_a_missing_frame_is_missed_by_name() -> None:
    lab = open_lab()
    alice = lab.join("alice")
    alice.send(kind="stream/request", payload={"target": ["alice"]})
    alice.inbox()
    assert said_by(alice.take_frame) == "alice received no frame; unread: nothing"
    alice.frame("stream-1", "data")
    assert said_by(lambda: alice.take("chat")) == "alice received no 'chat'; unread: #stream-1#"


def test_who_has_not_joined_is_called_by_its_connection() -> None:
    client = open_lab().connect()
    assert said_by(client.error) == "c1 received no 'system/error'; unread: nothing"


# ------------------------------------------------------------------------------------------------ what came in


def test_what_was_taken_is_gone_and_the_rest_stays_in_order() -> None:
    lab = open_lab()
    alice = lab.join("alice")
    for text in ("one", "two"):
        alice.send(kind="chat", payload={"text": text})
    assert alice.take("chat")["payload"]["text"] == "one"
    assert alice.kinds() == ["system/welcome", "chat"]
    assert alice.inbox() == []


def test_frames_keep_bytes_and_opcode() -> None:
    alice = open_lab().join("alice")
    alice.send(kind="stream/request")
    alice.inbox()
    alice.frame("stream-1", b"\x00#\xff", text=False)
    alice.frame("stream-1", "text")
    assert alice.kinds() == ["#", "#"]
    alice.send(kind="chat", payload={"text": "before the frame"})
    alice.frame("stream-1", b"\x00#\xff", text=False)
    assert alice.take_frame() == ReceivedFrame("stream-1", b"\x00#\xff", text=False)


def test_an_envelope_keeps_its_text() -> None:
    alice = open_lab().join("alice")
    alice.send_bytes(b'{"kind":"chat","payload":{"text":"x","own":1.0}}')
    assert b'"own":1.0' in alice.take("chat").raw


def test_fields_may_be_given_either_way() -> None:
    alice = open_lab().join("alice")
    alice.send({"kind": "chat", "from": "bob"}, payload={"text": "x"})
    assert alice.take("chat")["from"] == "alice"


# ------------------------------------------------------------------------------------------- connections and endpoints


def test_a_closed_connection_receives_nothing_and_cannot_join_any_more() -> None:
    lab = open_lab(limits=LIMIT)
    alice, bob = lab.join("alice"), lab.join("bob")
    assert (bob.closed, bob.kinds()) == (1013, ["system/error"])
    alice.leave()
    bob.send(type="join", token=lab.token("bob"))
    assert bob.inbox() == []


def test_an_observers_token_is_not_the_participants() -> None:
    lab = open_lab()
    alice, onlooker = lab.join("alice"), lab.observe("alice")
    assert (alice.closed, onlooker.observer, alice.observer) == (None, True, False)


def test_a_post_is_answered_and_polled() -> None:
    lab = open_lab()
    answer = lab.post("bob", b'{"kind":"chat","payload":{"text":"x"}}')
    assert answer.body["status"] == "accepted"
    assert [message["kind"] for message in lab.poll("bob") if not isinstance(message, ReceivedFrame)] == [
        "system/welcome",
        "chat",
    ]
    assert lab.poll("bob") == []


def test_a_post_with_a_wrong_token_is_not_handled() -> None:
    lab = open_lab()
    before = len(lab.records)
    assert lab.post("bob", {"kind": "chat"}, token="of no participant").body["error"] == "unauthorized"
    assert len(lab.records) == before


def test_a_log_is_read_from_its_beginning() -> None:
    lab = open_lab(output_logs=frozenset({"bob"}))
    lab.post("bob", {"kind": "chat", "payload": {"text": "x"}})
    assert lab.log("bob").kinds() == ["system/welcome", "chat"]
    assert lab.log("bob").kinds() == []


# --------------------------------------------------------------------------------------------- time and the journal


def test_time_passes_only_with_advance() -> None:
    lab = open_lab()
    alice = lab.join("alice")
    stamps = []
    for seconds in (0, 1.5):
        lab.advance(seconds)
        alice.send(kind="chat", payload={"text": "x"})
        stamps.append(alice.take("chat")["ts"])
    assert stamps == ["2025-11-15T12:00:00.000000Z", "2025-11-15T12:00:01.500000Z"]


def test_a_space_may_begin_at_another_time() -> None:
    alice = MemorySpace(now=0, participants={"alice": None}).join("alice")
    assert alice.take("system/welcome")["ts"].startswith("1970-01-01T00:00:00")


def test_the_records_are_the_whole_state() -> None:
    lab = open_lab()
    lab.join("alice").send(kind="stream/request")
    assert isinstance(lab.folded(), SpaceState)
    assert snapshot(lab.folded()) == snapshot(lab.state)


def test_a_restart_ends_every_connection_and_keeps_the_record() -> None:
    lab = open_lab()
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request")
    bob.inbox()
    lab.restart()
    alice.send(kind="chat", payload={"text": "too late"})
    again = lab.join("alice")
    assert bob.inbox() == []
    assert again.view is not None
    assert list(again.view.streams) == ["stream-1"]


def test_frames_can_be_lost_on_purpose() -> None:
    lab = open_lab()
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request")
    bob.inbox()
    lab.lose("bob", "stream-1", 3, 7)
    gap = bob.take("stream/gap")["payload"]
    assert (gap["from"], gap["to"], gap["dropped"]) == (3, 7, 5)


def test_a_client_that_has_no_welcome_has_no_view() -> None:
    lab = open_lab()
    client: Client = lab.connect()
    assert client.view is None
    client.deliver(b'{"from":"alice","kind":"chat","payload":{"text":"x"}}')
    client.deliver_frame(b"#s#data", text=True)
    assert client.view is None
    assert client.kinds() == ["chat", "#"]
