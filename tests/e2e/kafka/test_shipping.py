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
from mew.journal.kafka.address import parse_topic_url
from mew.journal.kafka.shipper import ShippingStats, reader_name
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.reader import Journal
from mew.journal.retention import delete_expired, registered_positions
from mew.protocol.records import Record
from tests.e2e.kafka.broker import Broker
from tests.e2e.kafka.shipping import Shipper, command, sent, ship_here, ship_once
from tests.journal.journal_fixture import NOON, Kept
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
    for each in started:
        each.close()


def records(to: str, space: str = "lab") -> list[Record]:
    """What the topic has of a space, as it came."""
    return [record for each in sent(to) if each.space == space for record in decode_block(each.data)]


def position(kept: Kept, to: str) -> int:
    return registered_positions(kept.folder).get(reader_name(parse_topic_url(to)), -1)


def test_every_space_goes_whole_and_in_order_with_labels_that_are_true(tmp_path: Path, topic: str) -> None:
    root = tmp_path / "journal"
    truth = generate(root, records=12_000, spaces=2, seed=5)
    summary = ship_once(root, topic)
    messages = sent(topic)
    for space, told in truth.spaces.items():
        here = [each for each in messages if each.space == space]
        assert [record for each in here for record in decode_block(each.data)] == list(Journal(root, space).records())
        assert len({each.partition for each in here}) == 1
        assert summary[space]["records"] == summary[space]["position"] == told.last + 1
        assert [each.label.after for each in here] == [each.label.first - 1 for each in here]
        epoch = ""
        for each in here:
            held = list(decode_block(each.data))
            assert (each.label.first, each.label.last) == (held[0].position, held[-1].position)
            assert (each.label.count, each.label.schema) == (len(held), 1)
            epoch = _epoch(held[0]) or epoch
            assert each.label.epoch == epoch
            epoch = next((last for record in reversed(held) if (last := _epoch(record))), epoch)


def _epoch(record: Record) -> str | None:
    if record.event not in ("start", "checkpoint"):
        return None
    return str(json.loads(record.payload)["epoch"])


def test_it_goes_on_from_where_it_was_and_from_the_start_if_asked(tmp_path: Path, topic: str) -> None:
    kept = Kept(tmp_path)
    kept.append(3).seal()
    assert ship_here(kept.folder, topic).records == 18
    assert ship_here(kept.folder, topic) == ShippingStats(position=18)
    kept.append(2).sync()
    assert ship_here(kept.folder, topic).records == 12
    assert records(topic) == kept.records
    assert ship_here(kept.folder, topic, anew=True).records == 30
    assert records(topic) == kept.records * 2


def test_what_the_disk_may_not_have_is_not_sent(tmp_path: Path, topic: str, start: Start) -> None:
    kept = Kept(tmp_path)
    kept.append(2).sync()
    kept.append(3)
    shipper = start(kept.folder.root, topic)
    until(lambda: position(kept, topic) == 12, "the synced part")
    assert shipper.stop() == 0
    until(lambda: records(topic) == kept.records[:12], "the end of the commit")
    assert shipper.told[-1]["shipped"]["spaces"]["lab"]["records"] == 12


def test_retention_waits_for_the_shipper_until_it_is_forgotten(tmp_path: Path, topic: str) -> None:
    kept = Kept(tmp_path)
    kept.append(2).seal()
    ship_here(kept.folder, topic)
    kept.append(1)
    kept.checkpoint()
    kept.append(1).seal()
    assert delete_expired(kept.folder, keep_seconds=1, now=FAR) == []
    ship_here(kept.folder, topic)
    kept.append(1)
    kept.checkpoint()
    kept.append(1).seal()
    assert [segment.first for segment in delete_expired(kept.folder, keep_seconds=1, now=FAR)] == [0]
    assert ship_here(kept.folder, topic).records == 13
    assert records(topic) == kept.records
    subprocess.run(command(kept.folder.root, topic, "--forget"), check=True, timeout=60)
    assert registered_positions(kept.folder) == {}


def test_a_block_that_is_too_large_for_a_broker_is_cut_and_a_large_record_goes_through(
    tmp_path: Path, topic: str
) -> None:
    kept = Kept(tmp_path)
    kept.write([FrameBatch(0, kept.time, "bob", "moves", 1, 0, [b"x" * 10_000] * 300)])
    kept.write([FrameBatch(300, kept.time, "bob", "moves", 301, 0, [b"y" * (5 * 2**20)])])
    kept.sync()
    ship_here(kept.folder, topic)
    assert records(topic) == kept.records
    assert sorted(each.label.count for each in sent(topic))[0] == 1
    assert len(sent(topic)) >= 5


def test_a_topic_that_does_not_take_a_record_is_named_and_nothing_is_passed_over(
    broker: Broker, tmp_path: Path, topic: str, start: Start
) -> None:
    address = parse_topic_url(topic)
    admin = AdminClient({"bootstrap.servers": address.bootstrap})
    narrow = NewTopic(address.topic, num_partitions=1, config={"max.message.bytes": "100000"})
    admin.create_topics([narrow])[address.topic].result(30)
    kept = Kept(tmp_path)
    kept.append(1).sync()
    ship_here(kept.folder, topic)
    kept.write([Record(6, kept.time, "rejected", "bob", "chat", size=1, payload=Random(1).randbytes(200_000))])
    kept.append(1).sync()
    shipper = start(kept.folder.root, topic)
    until(lambda: shipper.told, "the complaint")
    assert "max.message.bytes" in shipper.told[0]["trouble"]["problem"]
    assert shipper.stop() == 0
    assert position(kept, topic) == 6
    assert records(topic) == kept.records[:6]


def test_a_shipper_whose_place_was_taken_sends_nothing_more_and_ends(tmp_path: Path, topic: str, start: Start) -> None:
    kept = Kept(tmp_path / "one")
    kept.append(2).sync()
    zombie = start(kept.folder.root, topic)
    until(lambda: position(kept, topic) == 12, "the first blocks")
    zombie.process.send_signal(signal.SIGSTOP)
    kept.append(2).sync()
    ship_here(kept.folder, topic)
    kept.append(2).sync()
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.wait() == 4
    assert "another process sends the blocks of 'lab'" in zombie.complaint()
    assert position(kept, topic) == 24
    assert records(topic) == kept.records[:24]
    ship_here(kept.folder, topic)
    assert records(topic) == kept.records


def test_a_journal_that_was_begun_anew_is_not_taken_for_the_one_that_was_sent(tmp_path: Path, topic: str) -> None:
    kept = Kept(tmp_path / "one")
    kept.append(5).seal()
    ship_here(kept.folder, topic)
    other = Kept(tmp_path / "two")
    other.append(1).seal()
    shutil.copytree(kept.folder.log / "readers", other.folder.log / "readers")
    ran = subprocess.run(
        command(other.folder.root, topic, "--once"), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "it is another one" in ran.stderr


def test_without_a_broker_it_says_so_once_and_waits_and_once_it_gives_up(tmp_path: Path, start: Start) -> None:
    kept = Kept(tmp_path)
    kept.append(1).sync()
    nowhere = "kafka://127.0.0.1:1/lab"
    waiting, giving_up = start(kept.folder.root, nowhere), start(kept.folder.root, nowhere, "--once")
    assert giving_up.wait() == 1
    assert giving_up.complaint().count("\n") == 1
    until(lambda: waiting.told, "the complaint")
    assert waiting.stop() == 0
    assert [list(told) for told in waiting.told] == [["trouble"], ["shipped"]]
    assert registered_positions(kept.folder) == {reader_name(parse_topic_url(nowhere)): 0}


def test_what_cannot_be_meant_is_refused_in_a_line(tmp_path: Path) -> None:
    Kept(tmp_path).append(1).seal()
    for root, to, said in (
        (tmp_path / "journal", "kafka://nobody/lab", "expected a host and a port"),
        (tmp_path / "none", "kafka://127.0.0.1:1/lab", "no journal at"),
    ):
        ran = subprocess.run(command(root, to), capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert ran.stderr.count("\n") == 1


def test_without_the_library_the_extra_is_named(tmp_path: Path) -> None:
    Kept(tmp_path).append(1).seal()
    arguments = ["journal", "ship", "--journal", str(tmp_path / "journal"), "--to", "kafka://127.0.0.1:1/lab"]
    script = f"import sys; sys.modules['confluent_kafka'] = None; from mew.cli import main; sys.exit(main({arguments}))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "mew: this command requires confluent_kafka: install mew-protocol[kafka]\n"
    assert registered_positions(JournalFolder(tmp_path / "journal", "lab")) == {}
