"""The metrics of the gateway, parsed as Prometheus parses them."""

from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.requirements.transports.websocket import WebsocketSpace

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


def test_connections_streams_and_queues_have_gauges(lab: WebsocketSpace) -> None:
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


def test_proposals_are_counted_while_open_and_by_outcome() -> None:
    proposing = [{"kind": "mcp/proposal"}]
    people = {"alice": [{"kind": "*"}], "bob": proposing, "carol": proposing}
    lab = WebsocketSpace(participants=people, allow_anonymous=True, defaults=proposing)
    try:
        alice, bob, carol, guest = lab.join("alice"), lab.join("bob"), lab.join("carol"), lab.connect()
        guest.send(type="join", participantId="guest")
        before = proposals(figures(lab))
        for client in (guest, bob, bob, bob, carol):
            propose(client)
        assert proposals(figures(lab))[("mew_open_proposals", "lab")] == 5
        assert proposals(figures(lab))[("mew_open_proposal_bytes", "lab")] == 5 * len('{"method":"m"}[]')
        first, second, third = list(lab.state.proposals)[1:4]
        for kind, name, fields in (
            ("mcp/request", first, {"method": "m"}),
            ("mcp/reject", second, {}),
            ("mcp/request", "no proposal", {"method": "m", "proposal": {}}),
        ):
            alice.send(kind=kind, correlation_id=[name], payload=fields)
        bob.send(kind="mcp/withdraw", correlation_id=[third], payload={})
        guest.leave()
        alice.send(kind="space/kick", payload={"participant_id": "carol"})
        propose(bob, seconds=10)
        lab.advance(11)
        for _ in range(65):
            propose(bob)
        after = proposals(figures(lab))
    finally:
        lab.close()
    outcomes = ("fulfilled", "rejected", "withdrawn", "expired", "dropped", "kicked", "left")
    expected: Figures = {("mew_closed_proposals_total", "lab", outcome): 1 for outcome in outcomes}
    expected |= {("mew_open_proposals", "lab"): 64, ("mew_open_proposal_bytes", "lab"): 64 * 16}
    assert before == dict.fromkeys(expected, 0)
    assert after == expected


def proposals(shown: Figures) -> Figures:
    """The figures about proposals; the value of another label comes after the space's."""
    return {
        (name[0], *sorted(name[1:], key="lab".__ne__)): value for name, value in shown.items() if "proposal" in name[0]
    }


def propose(client: Any, seconds: float = 300) -> None:
    client.send(kind="mcp/proposal", payload={"method": "m"}, proposal={"expires_in_seconds": seconds})


def test_no_label_has_the_name_of_a_participant_or_a_stream(lab: WebsocketSpace) -> None:
    alice = lab.join("alice")
    alice.send(kind="stream/announce", payload={"formats": [{"id": "f"}], "desired_id": "positions"})
    alice.frame("nowhere", "x")
    labels = {value for name in figures(lab) for value in name[1:]}
    assert labels.isdisjoint({"alice", "bob", "positions", "nowhere"})
