"""What the gateway counts, read as Prometheus reads it."""

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.interaction.doors.websocket import WebsocketSpace

Figures = dict[tuple[str, ...], float]


def figures(lab: WebsocketSpace) -> Figures:
    """Every sample by its name and the values of its labels, in the order of the labels' names."""
    with urlopen(f"{lab.url}/metrics", timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.read().decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


@pytest.fixture
def lab() -> Iterator[WebsocketSpace]:
    lab = WebsocketSpace(participants={"alice": [{"kind": "*"}], "bob": None})
    yield lab
    lab.close()


def test_everything_that_happens_is_counted(lab: WebsocketSpace) -> None:
    alice, bob = lab.join("alice"), lab.join("bob")
    lab.observe()
    alice.send(kind="stream/request")
    stream_id = alice.take("stream/open")["payload"]["stream_id"]
    before = figures(lab)
    for _ in range(5):
        alice.frame(stream_id, "x" * 100)
    alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": 1, "content": 1})
    alice.send(kind="chat", payload={"text": "hello"})
    bob.frame(stream_id, "no")
    bob.send(kind="note")
    after = figures(lab)
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert grown.pop(("mew_delivered_bytes_total", "lab")) > 5 * 3 * 100
    grown.pop(("mew_loop_lag_seconds",), None)
    assert grown == {
        ("mew_frames_total", "lab"): 6,
        ("mew_envelopes_total", "lab"): 1,
        ("mew_deliveries_total", "lab"): 7 * 3 + 2,
        ("mew_refusals_total", "unauthorized_stream_write", "lab"): 1,
        ("mew_refusals_total", "capability_violation", "lab"): 1,
    }


def test_what_is_there_is_shown(lab: WebsocketSpace) -> None:
    alice = lab.join("alice")
    lab.observe()
    lab.post("bob", {"kind": "chat", "payload": {"text": "hello"}})
    alice.send(kind="stream/request")
    shown = figures(lab)
    assert {name: value for name, value in shown.items() if name[0] in ("mew_connections", "mew_streams")} == {
        ("mew_connections", "lab", "websocket"): 1,
        ("mew_connections", "lab", "observer"): 1,
        ("mew_connections", "lab", "http"): 1,
        ("mew_streams", "lab"): 1,
    }
    assert shown[("mew_sockets",)] == 2
    assert shown[("mew_queue_bytes", "data")] == shown[("mew_queue_bytes", "control")] == 0


def test_no_label_holds_the_name_of_a_participant_or_a_stream(lab: WebsocketSpace) -> None:
    alice = lab.join("alice")
    alice.send(kind="stream/announce", payload={"formats": [{"id": "f"}], "desired_id": "positions"})
    alice.frame("nowhere", "x")
    labels = {value for name in figures(lab) for value in name[1:]}
    assert labels.isdisjoint({"alice", "bob", "positions", "nowhere"})
