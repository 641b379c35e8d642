"""Shipping: what is on the disk is in the topic, in order, also after kills; and nothing is lost to retention."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mew.journal.block_format import FrameBatch, decode_block
from mew.journal.kafka import parse_topic_url
from mew.journal.kafka.shipper import ShippingStats, reader_name
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.reader import Journal
from mew.journal.retention import delete_expired, registered_positions
from mew.protocol.records import Record
from tests.e2e.kafka.broker import Broker
from tests.e2e.kafka.shipping import Shipper, command, sent, ship_here, ship_once
from tests.journal.journal_fixture import NOON, JournalFixture
from tests.support.polling import until
from tools.journal_generator import generate

pytestmark = pytest.mark.timeout(150)
FAR = NOON + 1000 * HOUR
Start = Callable[..., Shipper]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts shippers that are gone at the end."""
    started: list[Shipper] = []

    def begin(journal: Path, to: str, *options: str) -> Shipper:
        started.append(Shipper(journal, to, *options))
        return started[-1]

    yield begin
    for message in started:
        message.close()


def records(to: str, space: str = "lab") -> list[Record]:
    """What the topic has of a space, as it came."""
    return [record for message in sent(to) if message.space == space for record in decode_block(message.data)]


def position(fixture: JournalFixture, to: str) -> int:
    return registered_positions(fixture.folder).get(reader_name(parse_topic_url(to)), -1)


def test_every_space_goes_whole_and_in_order_with_labels_that_are_true(tmp_path: Path, topic: str) -> None:
    root = tmp_path / "journal"
    truth = generate(root, records=12_000, spaces=2, seed=5)
    summary = ship_once(root, topic)
    messages = sent(topic)
    for space, space_truth in truth.spaces.items():
        space_messages = [message for message in messages if message.space == space]
        assert [record for message in space_messages for record in decode_block(message.data)] == list(
            Journal(root, space).records()
        )
        assert len({message.partition for message in space_messages}) == 1
        assert summary[space]["records"] == summary[space]["position"] == space_truth.last + 1
        assert [message.label.after for message in space_messages] == [
            message.label.first - 1 for message in space_messages
        ]
        epoch = ""
        for message in space_messages:
            records = list(decode_block(message.data))
            assert (message.label.first, message.label.last) == (records[0].position, records[-1].position)
            assert (message.label.count, message.label.schema) == (len(records), 1)
            epoch = _epoch(records[0]) or epoch
            assert message.label.epoch == epoch
            epoch = next((last for record in reversed(records) if (last := _epoch(record))), epoch)


def _epoch(record: Record) -> str | None:
    if record.event not in ("start", "checkpoint"):
        return None
    return str(json.loads(record.payload)["epoch"])


def test_shipping_continues_where_it_stopped_or_restarts_on_request(tmp_path: Path, topic: str) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.append(3).seal()
    assert ship_here(fixture.folder, topic).records == 18
    assert ship_here(fixture.folder, topic) == ShippingStats(position=18)
    fixture.append(2).sync()
    assert ship_here(fixture.folder, topic).records == 12
    assert records(topic) == fixture.records
    assert ship_here(fixture.folder, topic, anew=True).records == 30
    assert records(topic) == fixture.records * 2


def test_what_the_disk_may_not_have_is_not_sent(tmp_path: Path, topic: str, start: Start) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.append(2).sync()
    fixture.append(3)
    shipper = start(fixture.folder.root, topic)
    until(lambda: position(fixture, topic) == 12, "the synced part")
    assert shipper.stop() == 0
    until(lambda: records(topic) == fixture.records[:12], "the end of the commit")
    assert shipper.lines[-1]["shipped"]["spaces"]["lab"]["records"] == 12


def test_retention_waits_for_the_shipper_until_it_is_forgotten(tmp_path: Path, topic: str) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.append(2).seal()
    ship_here(fixture.folder, topic)
    fixture.append(1)
    fixture.checkpoint()
    fixture.append(1).seal()
    assert delete_expired(fixture.folder, keep_seconds=1, now=FAR) == []
    ship_here(fixture.folder, topic)
    fixture.append(1)
    fixture.checkpoint()
    fixture.append(1).seal()
    assert [segment.first for segment in delete_expired(fixture.folder, keep_seconds=1, now=FAR)] == [0]
    assert ship_here(fixture.folder, topic).records == 13
    assert records(topic) == fixture.records
    subprocess.run(command(fixture.folder.root, topic, "--forget"), check=True, timeout=60)
    assert registered_positions(fixture.folder) == {}


def test_a_block_that_is_too_large_for_a_broker_is_cut_and_a_large_record_goes_through(
    tmp_path: Path, topic: str
) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.write([FrameBatch(0, fixture.time, "bob", "moves", 1, 0, [b"x" * 10_000] * 300)])
    fixture.write([FrameBatch(300, fixture.time, "bob", "moves", 301, 0, [b"y" * (5 * 2**20)])])
    fixture.sync()
    ship_here(fixture.folder, topic)
    assert records(topic) == fixture.records
    assert sorted(message.label.count for message in sent(topic))[0] == 1
    assert len(sent(topic)) >= 5


def test_a_topic_that_does_not_take_a_record_is_named_and_nothing_is_passed_over(
    broker: Broker, tmp_path: Path, topic: str, start: Start
) -> None:
    address = parse_topic_url(topic)
    admin = AdminClient({"bootstrap.servers": address.bootstrap})
    narrow = NewTopic(address.topic, num_partitions=1, config={"max.message.bytes": "100000"})
    admin.create_topics([narrow])[address.topic].result(30)
    fixture = JournalFixture(tmp_path)
    fixture.append(1).sync()
    ship_here(fixture.folder, topic)
    fixture.write([Record(6, fixture.time, "rejected", "bob", "chat", size=1, payload=Random(1).randbytes(200_000))])
    fixture.append(1).sync()
    shipper = start(fixture.folder.root, topic)
    until(lambda: shipper.lines, "the complaint")
    assert "max.message.bytes" in shipper.lines[0]["trouble"]["problem"]
    assert shipper.stop() == 0
    assert position(fixture, topic) == 6
    assert records(topic) == fixture.records[:6]


def test_a_shipper_whose_place_was_taken_sends_nothing_more_and_ends(tmp_path: Path, topic: str, start: Start) -> None:
    fixture = JournalFixture(tmp_path / "one")
    fixture.append(2).sync()
    zombie = start(fixture.folder.root, topic)
    until(lambda: position(fixture, topic) == 12, "the first blocks")
    zombie.process.send_signal(signal.SIGSTOP)
    fixture.append(2).sync()
    ship_here(fixture.folder, topic)
    fixture.append(2).sync()
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.wait() == 4
    assert "another process sends the blocks of 'lab'" in zombie.complaint()
    assert position(fixture, topic) == 24
    assert records(topic) == fixture.records[:24]
    ship_here(fixture.folder, topic)
    assert records(topic) == fixture.records


def test_a_recreated_journal_is_not_taken_for_the_one_that_was_shipped(tmp_path: Path, topic: str) -> None:
    fixture = JournalFixture(tmp_path / "one")
    fixture.append(5).seal()
    ship_here(fixture.folder, topic)
    other = JournalFixture(tmp_path / "two")
    other.append(1).seal()
    shutil.copytree(fixture.folder.log / "readers", other.folder.log / "readers")
    ran = subprocess.run(
        command(other.folder.root, topic, "--once"), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "it is another one" in ran.stderr


def test_without_a_broker_it_says_so_once_and_waits_and_once_it_gives_up(tmp_path: Path, start: Start) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.append(1).sync()
    nowhere = "kafka://127.0.0.1:1/lab"
    waiting, giving_up = start(fixture.folder.root, nowhere), start(fixture.folder.root, nowhere, "--once")
    assert giving_up.wait() == 1
    assert giving_up.complaint().count("\n") == 1
    until(lambda: waiting.lines, "the complaint")
    assert waiting.stop() == 0
    assert [list(line) for line in waiting.lines] == [["trouble"], ["shipped"]]
    assert registered_positions(fixture.folder) == {reader_name(parse_topic_url(nowhere)): 0}


def test_what_cannot_be_meant_is_refused_in_a_line(tmp_path: Path) -> None:
    JournalFixture(tmp_path).append(1).seal()
    for root, to, error_text in (
        (tmp_path / "journal", "kafka://nobody/lab", "expected a host and a port"),
        (tmp_path / "none", "kafka://127.0.0.1:1/lab", "no journal at"),
    ):
        ran = subprocess.run(command(root, to), capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 2
        assert error_text in ran.stderr
        assert ran.stderr.count("\n") == 1


def test_without_the_library_the_extra_is_named(tmp_path: Path) -> None:
    JournalFixture(tmp_path).append(1).seal()
    arguments = ["journal", "ship", "--journal", str(tmp_path / "journal"), "--to", "kafka://127.0.0.1:1/lab"]
    script = f"import sys; sys.modules['confluent_kafka'] = None; from mew.cli import main; sys.exit(main({arguments}))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "mew: this command requires confluent_kafka: install mew-protocol[kafka]\n"
    assert registered_positions(JournalFolder(tmp_path / "journal", "lab")) == {}
