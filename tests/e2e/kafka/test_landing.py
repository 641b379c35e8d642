"""Landing: what came through Kafka gives the tables of the journal itself, row for row, whatever befell it."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from mew.journal.kafka import parse_topic_url
from mew.journal.kafka.messages import MessageHeaders
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.journal.verify import verify_journal
from mew.pipeline.jobs.watching import BatchFinished, Watch, WatchError
from mew.pipeline.lake import Lake
from mew.pipeline.landing import topic as topics
from mew.pipeline.landing.keeping import Landings
from mew.pipeline.landing.landing import Ingest, IngestResult, own_journal
from mew.pipeline.landing.reading import stage
from mew.pipeline.landing.topic import TopicSource
from mew.pipeline.landing.values import LandingError, LandingPlan
from mew.pipeline.landing.watching import LandingWatch
from tests.e2e.kafka.broker import Broker
from tests.e2e.kafka.shipping import Shipper, sent, ship_here, ship_once
from tests.journal.journal_fixture import JournalFixture
from tests.pipeline.jobs.lakes import contents, dicts, run_all
from tests.pipeline.sessions import ENGINE, FOR_CHILDREN
from tools.journal_generator import Truth, generate

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    root = tmp_path_factory.mktemp("journal") / "journal"
    return root, generate(root, records=40_000, spaces=2, seed=11)


@pytest.fixture(scope="module")
def local(journal: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of the journal itself."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    run_all(journal[0], lake)
    return contents(lake)


def land(spark: SparkSession, lake: Path, to: str, most: int = 5_000) -> list[IngestResult]:
    return list(Ingest(Lake(lake), parse_topic_url(to), lambda: spark, most).arrivals())


def landed(lake: Path, space: str = "lab") -> list[Any]:
    """The records of the lake's own journal; every byte of it is as it should be, and no record is there twice."""
    root = own_journal(lake)
    assert not verify_journal(root, space).damaged
    segments = JournalFolder(root, space).segments()
    assert sum(item.last - item.first + 1 for item in segments) == segments[-1].last - segments[0].first + 1
    return list(Journal(root, space).records())


def test_the_tables_are_those_of_the_journal_itself_row_for_row(
    journal: tuple[Path, Truth], local: dict[str, Any], spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    root, truth = journal
    ship_once(root, topic)
    lake = tmp_path / "lake"
    (first,) = land(spark, lake, topic)
    assert first.records == sum(space.last + 1 for space in truth.spaces.values())
    assert land(spark, lake, topic) == []
    run_all(own_journal(lake), lake)
    for name, rows in contents(lake).items():
        assert rows == local[name], name
    assert [row for row in dicts(lake, "audit") if row["violations"]] == []


def test_slices_repeats_and_a_landing_that_was_killed_change_nothing(
    journal: tuple[Path, Truth], spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    root, truth = journal
    lake, spaces = tmp_path / "lake", [JournalFolder(root, space) for space in truth.spaces]
    for folder in spaces:
        ship_here(folder, topic)
    (first, *_) = land(spark, lake, topic, most=5)
    assert first.messages <= 10
    last = Landings(lake).last()
    assert last is not None
    assert last.number > 1
    # As if it had been killed before it was finished; meanwhile everything comes once more.
    files = {path: path.read_bytes() for path in own_journal(lake).rglob("*.parquet")}
    (lake / "_landing" / f"{last.number}.done.json").unlink()
    for folder in spaces:
        ship_here(folder, topic, anew=True)
    again = land(spark, lake, topic)
    assert again[0].number == last.number
    assert sum(item.repeats for item in again[1:]) == sum(item.messages for item in again[1:])
    assert {path: path.read_bytes() for path in own_journal(lake).rglob("*.parquet")} == files
    for folder in spaces:
        assert landed(lake, folder.space) == list(Journal(root, folder.space).records())


def test_killed_shippers_and_a_broker_that_dies_lose_and_double_nothing(
    broker: Broker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fixture, lake = JournalFixture(tmp_path), tmp_path / "lake"
    for turn in range(5):
        with _grown(fixture):
            shipper = Shipper(fixture.folder.root, topic)
            _wait_for_some(fixture, topic)
            if turn == 2:
                broker.kill()
        shipper.kill()
        shipper.close()
        if turn == 2:
            fixture.append(10).sync()
            broker.start()
        if turn == 3:
            land(spark, lake, topic)
    fixture.seal()
    ship_here(fixture.folder, topic)
    land(spark, lake, topic)
    assert landed(lake) == fixture.records
    assert sum(item.label.count for item in sent(topic)) >= len(fixture.records)


class _grown:  # noqa: N801 - read as a sentence: with it grown
    """A journal that grows meanwhile, as a gateway has it grow: written, synced, sealed."""

    def __init__(self, fixture: JournalFixture) -> None:
        self._fixture = fixture
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._grow)

    def _grow(self) -> None:
        turns = 0
        while not self._enough.wait(0.005):
            turns += 1
            self._fixture.append(20).sync()
            if turns % 20 == 0:
                self._fixture.seal()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()


def _wait_for_some(fixture: JournalFixture, topic: str) -> None:
    """Until the shipper has brought something more."""
    from mew.journal.kafka.shipper import reader_name
    from mew.journal.retention import registered_positions
    from tests.support.polling import until

    def position() -> int:
        return registered_positions(fixture.folder).get(reader_name(parse_topic_url(topic)), 0)

    before = position()
    until(lambda: position() > before + 100, "the next blocks")


def test_a_hole_stops_the_space_with_an_alarm_until_the_records_come(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    one, other, lake = JournalFixture(tmp_path / "one"), JournalFixture(tmp_path / "two", "den"), tmp_path / "lake"
    one.append(4).sync()
    other.append(4).sync()
    ship_here(one.folder, topic)
    _register(one.folder, topic, one.append(4).next)  # these are never sent
    one.append(2).sync()
    ship_here(one.folder, topic)
    ship_here(other.folder, topic)
    (arrived,) = land(spark, lake, topic)
    assert [(item.space, item.to_position) for item in arrived.alarms] == [("lab", 23)]
    assert landed(lake) == one.records[:24]
    assert landed(lake, "den") == other.records
    # The alarm alone is worth a batch.
    assert run_all(own_journal(lake), lake) == 1
    one.append(1).sync()
    ship_here(one.folder, topic)
    assert [item.alarms for item in land(spark, lake, topic)] == [()]
    assert run_all(own_journal(lake), lake) == 0
    (alarm,) = [row for row in dicts(lake, "audit") if row["check"] == "landing"]
    assert (alarm["space"], alarm["to_position"], alarm["violations"]) == ("lab", 23, 1)
    assert "record 24 did not come" in alarm["sample"]
    ship_here(one.folder, topic, anew=True)
    land(spark, lake, topic)
    assert landed(lake) == one.records
    assert run_all(own_journal(lake), lake) == 1
    assert len([row for row in dicts(lake, "audit") if row["check"] == "landing"]) == 1


def _register(folder: JournalFolder, topic: str, position: int) -> None:
    from mew.journal.kafka.shipper import reader_name
    from mew.journal.retention import register_reader

    register_reader(folder, reader_name(parse_topic_url(topic)), position)


def test_what_is_no_block_is_an_alarm_and_what_is_too_new_is_left_where_it_is(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fixture, lake, address = JournalFixture(tmp_path), tmp_path / "lake", parse_topic_url(topic)
    fixture.append(1).sync()
    ship_here(fixture.folder, topic)
    producer = Producer({"bootstrap.servers": address.bootstrap})
    producer.produce(address.topic, key="lab", value=b"hello", headers=MessageHeaders(6, 6, 1, 1, "", 5).headers())
    producer.produce(address.topic, key="lab", value=b"hello")
    producer.produce(address.topic, value=None)
    assert producer.flush(30) == 0
    (arrived,) = land(spark, lake, topic)
    assert sorted((item.space, len(item.sample)) for item in arrived.alarms) == [("", 1), ("lab", 2)]
    assert landed(lake) == fixture.records
    producer.produce(address.topic, key="lab", value=b"hello", headers=MessageHeaders(6, 6, 1, 2, "", 5).headers())
    assert producer.flush(30) == 0
    for _ in range(2):
        with pytest.raises(LandingError, match="schema version 2; this program reads version 1"):
            land(spark, lake, topic)


def test_messages_that_are_gone_before_they_are_read_are_an_error_and_no_gap(
    broker: Broker, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fixture, lake, address = JournalFixture(tmp_path), tmp_path / "lake", parse_topic_url(topic)
    fixture.append(3).sync()
    ship_here(fixture.folder, topic)
    offsets = TopicSource(address).look()
    Landings(lake).plan(LandingPlan(1, offsets.cluster, address.topic, offsets.partitions))
    (used,) = [number for number, item in offsets.partitions.items() if item.to]
    admin = AdminClient({"bootstrap.servers": address.bootstrap})
    admin.delete_records([TopicPartition(address.topic, used, 2)])[TopicPartition(address.topic, used, 2)].result(30)
    with pytest.raises(LandingError, match="is planned from offset 0 of partition"):
        land(spark, lake, topic)
    with pytest.raises(LandingError, match="cannot be read"):  # gone between the look and the reading
        stage(spark, address, Landings(lake).planned(1) or pytest.fail("no plan"), tmp_path)
    assert Landings(lake).last() is None
    assert list(own_journal(lake).iterdir()) == []


def test_an_unfinished_landing_leaves_no_duplicates(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    fixture, lake = JournalFixture(tmp_path), tmp_path / "lake"
    for _ in range(4):
        fixture.append(2).sync()
        ship_here(fixture.folder, topic)
    land(spark, lake, topic, most=6)
    shutil.rmtree(lake / "_landing")
    land(spark, lake, topic, most=4)
    assert landed(lake) == fixture.records


def test_a_lake_lands_one_topic(spark: SparkSession, topic: str, broker: Broker, tmp_path: Path) -> None:
    fixture, lake = JournalFixture(tmp_path), tmp_path / "lake"
    fixture.append(1).sync()
    with pytest.raises(LandingError, match="no such topic"):
        land(spark, lake, topic)
    ship_here(fixture.folder, topic)
    land(spark, lake, topic)
    with pytest.raises(LandingError, match="this lake lands the topic"):
        land(spark, lake, broker.address("another"))


class Enough:
    """Stops after the call."""

    is_set = False

    def wait(self, seconds: float) -> bool:
        threading.Event().wait(min(seconds, 0.05))
        return self.is_set


def test_a_watch_lands_what_comes_and_waits_for_a_broker_that_is_away(
    broker: Broker, spark: SparkSession, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture, lake, stop = JournalFixture(tmp_path), Lake(tmp_path / "lake"), Enough()
    fixture.append(3).seal()
    ship_here(fixture.folder, topic)
    landing = Ingest(lake, parse_topic_url(topic), lambda: spark)
    landing.journal.mkdir(parents=True)
    watch = Watch(landing.journal, lake, ENGINE, stop)
    watch.land = LandingWatch(landing, stop)
    notices = watch.run()
    assert next(item for item in notices if isinstance(item, BatchFinished)).records == 18
    broker.kill()
    with monkeypatch.context() as impatient:
        impatient.setattr(topics, "ANSWER_SECONDS", 1)
        away = next(notices)
    assert isinstance(away, WatchError)
    assert topic in away.problem
    broker.start()
    fixture.append(2).seal()
    ship_here(fixture.folder, topic)
    assert next(notices).progress.positions == {"lab": 29}  # type: ignore[union-attr]
    stop.is_set = True
    assert list(notices) == []
    assert watch.land.trouble is None


def test_the_command_lands_and_makes_the_tables(topic: str, tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.append(2).seal()
    ship_here(fixture.folder, topic)

    def mew(*arguments: str, lake: str = "lake") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mew", "pipeline", *arguments, "--lake", lake]
        environ = {**os.environ, **FOR_CHILDREN, "NO_COLOR": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=200, check=False
        )

    with ThreadPoolExecutor(1) as meanwhile:  # it waits ten seconds for an answer
        nowhere = meanwhile.submit(mew, "run", "--source", "kafka://127.0.0.1:1/lab", lake="another")
        ran = mew("run", "--source", topic, "--master", "local[1]")
        away = nowhere.result()
    assert ran.returncode == 0, ran.stderr
    assert f"ingested {len(fixture.records)} records" in ran.stderr
    query = mew("query", "select count(*) from events", "--form", "csv")
    assert query.stdout.split() == ["count_star()", str(len(fixture.records))]
    refused = mew("run", "--source", topic, "--journal", "journal")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert (away.returncode, away.stderr.count("\n")) == (1, 1)
