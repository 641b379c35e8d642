"""The logs of a space: their lines, the order of their keys, and what they never contain."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.history_log import LINE_BYTES, EnvelopeHistory, LineLog
from mew.protocol import Record
from tests.gateway.raw import TEXT, closing, frame, joined, running
from tests.requirements.transports.websocket import WebsocketSpace

ALL = [{"kind": "*"}]
HISTORY_KEYS = [
    *("timestamp", "event", "id", "envelope", "participant", "space_id", "direction", "transport", "metadata"),
]
DECISION_KEYS = [
    *("timestamp", "event", "envelope_id", "participant", "space_id", "result", "required_capability"),
    *("matched_capability", "matched_source", "granted_capabilities", "metadata"),
]


def read(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def within(seconds: float, happened: Callable[[], bool]) -> bool:
    """Whether something happens within this time."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def lab() -> Iterator[WebsocketSpace]:
    lab = WebsocketSpace(participants={"alice": ALL, "bob": None}, output_logs=frozenset({"watcher"}))
    yield lab
    lab.close()


def logged(lab: WebsocketSpace, name: str) -> list[dict[str, Any]]:
    """All lines of a log, after everything has been written."""
    path = lab.directory / ".mew" / "logs" / name
    for log in (lab.hub.fanout.history, lab.hub.decisions):
        assert log is not None
        assert within(10, partial(is_written, log._log))
    return read(path)


def is_written(log: LineLog) -> bool:
    return log._put_bytes == log._written_bytes


def test_an_envelope_has_a_line_received_and_a_line_per_recipient(lab: WebsocketSpace) -> None:
    alice, _ = lab.join("alice"), lab.join("bob")
    lab.log("watcher")
    alice.send(kind="chat", id="hello", payload={"text": "hi"})
    lines = [line for line in logged(lab, "envelope-history.jsonl") if line["id"] == "hello"]
    assert [list(line) for line in lines] == [HISTORY_KEYS] * 4
    assert {(line["event"], line["participant"], line["direction"], line["transport"]) for line in lines} == {
        ("received", "alice", "inbound", "websocket"),
        ("delivered", "alice", "outbound", "websocket"),
        ("delivered", "bob", "outbound", "websocket"),
        ("delivered", "watcher", "outbound", "virtual"),
    }
    assert all(line["envelope"]["payload"] == {"text": "hi"} for line in lines)
    assert {line["space_id"] for line in lines} == {"lab"}


def test_a_refused_envelope_has_a_line_received_and_a_line_rejected_with_the_reason(lab: WebsocketSpace) -> None:
    bob = lab.join("bob")
    bob.send(kind="mcp/request", id="tried", payload={"method": "x"})
    lab.post("bob", {"kind": "space/kick", "id": "posted", "payload": {}})
    lines = [line for line in logged(lab, "envelope-history.jsonl") if line["id"] in ("tried", "posted")]
    assert [(line["id"], line["event"], line["transport"], line["metadata"]) for line in lines] == [
        ("tried", "received", "websocket", {}),
        ("tried", "rejected", "websocket", {"reason": "capability_violation"}),
        ("posted", "received", "http", {}),
        ("posted", "rejected", "http", {"reason": "capability_violation"}),
    ]


def test_a_decision_has_the_required_and_the_matching_capability(lab: WebsocketSpace) -> None:
    bob = lab.join("bob")
    bob.send(kind="chat", id="yes", payload={"text": "hi"})
    bob.send(kind="note", id="no")
    lines = logged(lab, "capability-decisions.jsonl")
    assert [list(line) for line in lines] == [DECISION_KEYS] * 2
    assert [(line["envelope_id"], line["result"], line["required_capability"]) for line in lines] == [
        ("yes", "allowed", "chat"),
        ("no", "denied", "note"),
    ]
    assert [line["matched_capability"] for line in lines] == [{"kind": "chat"}, None]
    assert lines[0]["granted_capabilities"] == [{"kind": "chat"}, {"kind": "mcp/response"}]


def test_no_log_contains_a_token(lab: WebsocketSpace) -> None:
    alice = lab.join("alice")
    alice.send({"kind": "system/join", "token": lab.token("alice")})
    alice.send({"type": "join", "token": lab.token("bob"), "participantId": "bob"})
    alice.send(kind="space/invite", payload={"participant_id": "carol"})
    token = alice.take("space/invite-ack")["payload"]["token"]
    logged(lab, "envelope-history.jsonl")
    written = b"".join(path.read_bytes() for path in (lab.directory / ".mew" / "logs").iterdir())
    assert b"invite-ack" in written
    for secret in (token, lab.token("alice"), lab.token("bob")):
        assert secret.encode() not in written


def test_a_line_is_visible_within_100_ms(tmp_path: Path) -> None:
    """The fastest of ten lines counts: how long a thread waits for a processor depends on the machine."""
    seconds = list[float]()
    for number in range(10):
        path = tmp_path / "logs" / f"{number}.jsonl"
        log, began = LineLog(path), time.monotonic()
        log.put(lambda: b"{}", size=2)
        assert within(5, path.exists)
        seconds.append(time.monotonic() - began)
        log.close()
    assert min(seconds) < 0.1


def test_a_regular_stop_loses_no_line_and_truncates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"before":1}\n')
    log = LineLog(path)
    for number in range(1_000):
        log.put(msgspec.json.encode, {"n": number}, size=10)
    log.close()
    assert read(path) == [{"before": 1}, *({"n": number} for number in range(1_000))]


def test_a_log_that_is_too_slow_counts_the_dropped_lines(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "a.jsonl", queued_bytes=100)
    for _ in range(25):
        log.put(lambda: b"{}", size=10)
    log.close()
    lines = read(tmp_path / "a.jsonl")
    dropped = [line["count"] for line in lines if line.get("event") == "dropped"]
    assert lines.count({}) + sum(dropped) == 25
    assert lines.count({}) >= 10


def presence(position: int, time: int) -> Record:
    return Record(position, time, "envelope", "system:gateway", "system/presence", f"e-{position}", payload=b"{}")


def test_many_concurrent_joins_get_a_bounded_part_of_the_history(tmp_path: Path) -> None:
    """Otherwise each of two thousand joins would have a line for each of two thousand participants."""
    log, recipients = LineLog(tmp_path / "a.jsonl"), [(f"p{number}", "websocket") for number in range(4)]
    size = 4 * (LINE_BYTES + 2)
    history = EnvelopeHistory(log, "lab", crowd_bytes=3 * size, crowd_bytes_per_second=size)
    for position in range(10):
        history.delivered(presence(position, 1_000), recipients)
    chat = Record(10, 1_000, "envelope", "alice", "chat", "said", payload=b"{}")
    history.delivered(chat, recipients)
    history.delivered(presence(11, 1_000_000), recipients, "p0")
    history.delivered(presence(12, 1_000_001), recipients)
    log.close()
    lines = read(tmp_path / "a.jsonl")
    dropped = [line["count"] for line in lines if line["event"] == "dropped"]
    written = Counter(line["id"] for line in lines if line["event"] == "delivered")
    assert written == {"e-0": 4, "e-1": 4, "e-2": 4, "said": 4, "e-11": 3}
    assert sum(dropped) == 8 * 4


def test_a_large_log_is_rotated_and_the_oldest_file_is_deleted(tmp_path: Path) -> None:
    for number in range(8):
        log = LineLog(tmp_path / "a.jsonl", rotated_bytes=20)
        log.put(msgspec.json.encode, {"number": number, "x": "x" * 20}, size=40)
        log.close()
    numbers = {path.name: read(path)[0]["number"] for path in tmp_path.iterdir()}
    assert numbers == {f"a.jsonl.{place}": 8 - place for place in range(1, 6)}


def test_a_log_that_cannot_be_written_continues_when_it_can_again(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.jsonl"
    log = LineLog(path)
    path.parent.rmdir()
    tried: list[int] = []

    def encode(number: int) -> bytes:
        tried.append(number)
        return msgspec.json.encode({"n": number})

    log.put(encode, 1, size=10)
    assert within(10, lambda: tried == [1])
    assert within(10, lambda: log._written_bytes == 10)
    path.parent.mkdir()
    log.put(encode, 2, size=10)
    log.close()
    assert read(path) == [{"n": 2}]


def test_a_message_delivered_before_the_answer_to_a_close_has_one_line(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        alice = joined(gateway)
        chat = msgspec.json.encode({"kind": "chat", "id": "last message", "payload": {"text": "bye"}})
        alice.send(frame(TEXT, chat), closing(1000))
        assert alice.envelope("chat")["id"] == "last message"
        assert alice.closed() == 1000
    lines = read(tmp_path / ".mew" / "logs" / "envelope-history.jsonl")
    assert [line["event"] for line in lines if line["id"] == "last message"] == ["received", "delivered"]
