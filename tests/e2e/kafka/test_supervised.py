"""`journal.kafka`: the gateway has its journal shipped, is not hurt by whatever happens to that, and ends it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mew.journal.block_format import decode_block
from mew.journal.reader import Journal
from tests.e2e.kafka.broker import Broker
from tests.e2e.kafka.shipping import sent
from tests.journal.gateway_process import GatewayProcess, gateway, until_gone
from tests.support.polling import until

pytestmark = pytest.mark.timeout(150)
ALL = {"capabilities": [{"kind": "*"}]}


@pytest.fixture
def lab(tmp_path: Path, topic: str) -> Iterator[GatewayProcess]:
    """A gateway that ships its journal, not started yet."""
    address, _, name = topic.rpartition("/")
    journal = {"kafka": {"to": address, "topic": name}, "segment_seconds": 0.5}
    with gateway(tmp_path, participants={"alice": ALL}, journal=journal) as process:
        yield process


def events(lab: GatewayProcess, name: str) -> list[dict[str, Any]]:
    return [event for event in lab.events() if event["event"] == name]


def chat(lab: GatewayProcess, text: str) -> None:
    assert lab.post("alice", "chat", text=text).status == 200


def sent_text(topic: str) -> str:
    """All that the topic has."""
    return " ".join(repr(record.payload) for message in sent(topic) for record in decode_block(message.data))


def test_a_shipper_runs_with_the_gateway_is_started_again_and_ends_with_it(lab: GatewayProcess, topic: str) -> None:
    lab.start()
    chat(lab, "first words")
    (started,) = until(lambda: events(lab, "shipper started"), "the shipper")
    _until_said(lab, topic, "first words")
    os.kill(started["process"], signal.SIGKILL)
    again = until(lambda: events(lab, "shipper started")[1:], "the next shipper")[0]["process"]
    assert events(lab, "shipper ended")[0]["code"] == -signal.SIGKILL
    chat(lab, "second words")
    _until_said(lab, topic, "second words")
    assert lab.stop() == 0
    until_gone([again])
    shipped = {record.position: record for message in sent(topic) for record in decode_block(message.data)}
    journal_records = list(Journal(lab.journal.root, "lab").records())
    assert list(shipped.values()) == journal_records[: len(shipped)]


def _until_said(lab: GatewayProcess, topic: str, words: str) -> None:
    from mew.journal.retention import registered_positions

    last = Journal(lab.journal.root, "lab").last or 0
    until(lambda: max(registered_positions(lab.journal).values(), default=-1) > last, "the blocks")
    until(lambda: words in sent_text(topic), "the end of the commit")


def test_a_gateway_that_is_killed_takes_its_shipper_along(lab: GatewayProcess) -> None:
    lab.start()
    (started,) = until(lambda: events(lab, "shipper started"), "the shipper")
    lab.kill()
    until_gone([started["process"]])


def test_a_gateway_whose_broker_is_away_works_as_ever_and_everything_arrives_later(
    broker: Broker, lab: GatewayProcess, topic: str
) -> None:
    broker.stop()
    try:
        lab.start()
        for number in range(20):
            chat(lab, f"words {number}")
        until(lambda: events(lab, "kafka unavailable, retrying"), "the complaint")
        assert lab.get("/health").json["status"] == "ok"
        assert lab.get("/ready").status == 200
        chat(lab, "final message")
    finally:
        broker.start()
    until(lambda: events(lab, "kafka available again"), "the broker's return")
    assert len(events(lab, "kafka unavailable, retrying")) == 1
    assert events(lab, "shipper ended") == []
    _until_said(lab, topic, "final message")
    assert lab.stop() == 0


@pytest.mark.parametrize(
    ("journal", "error_text"),
    [
        ({"kafka": {"to": "broker/lab"}}, "expected kafka://host:port"),
        ({"kafka": {"to": "kafka://broker:9092"}}, "names no topic"),
        ({"kafka": {"topic": "lab"}}, "to"),
        ({"kafka": {"to": "kafka://broker:9092/lab", "topic": "den"}}, "beside it"),
        ({"kafka": {"to": "kafka://broker:9092/lab"}, "enabled": False}, "journal.enabled"),
    ],
)
def test_what_cannot_be_meant_is_named_by_its_place(tmp_path: Path, journal: dict[str, Any], error_text: str) -> None:
    from mew.config import ConfigError
    from mew.config.loader import load_config

    with gateway(tmp_path, journal=journal):
        with pytest.raises(ConfigError, match=error_text) as refused:
            load_config([tmp_path / "space.yaml"], environ={})
        assert "journal.kafka" in str(refused.value)
