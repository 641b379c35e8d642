"""Landing without a broker: what is done in the lake's own journal whether anything comes or not."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.journal.compaction import TRASH_HOURS, compact_hour, exclusive_maintenance
from mew.journal.kafka import parse_topic_url
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.reader import Journal
from mew.pipeline.lake import Lake
from mew.pipeline.landing import topic
from mew.pipeline.landing.landing import TIDY_SECONDS, Ingest, own_journal
from mew.protocol.timestamps import SECOND
from tests.journal.journal_fixture import JournalFixture

NOBODY = "kafka://127.0.0.1:1/lab"


@pytest.fixture
def fixture(tmp_path: Path) -> JournalFixture:
    """Of an hour that was landed in two segments and then compacted, in a lake."""
    fixture = JournalFixture(tmp_path / "lake")
    hour = fixture.folder.hour(fixture.time)
    fixture.append(2).seal()
    fixture.append(2).seal()
    assert len(compact_hour(fixture.folder, hour)) == 1
    assert len(trash(fixture.folder)) == 1
    return fixture


def trash(folder: JournalFolder) -> list[Path]:
    return list(folder.trash.iterdir())


class Looking:
    """A landing that finds no broker, and a clock that is put forward."""

    def __init__(self, lake: Path) -> None:
        self.time = time.time_ns() // 1000
        self._landing = Ingest(Lake(lake), parse_topic_url(NOBODY), _no_spark, clock=lambda: self.time)

    def look(self) -> None:
        with pytest.raises(topic.SourceAway):
            next(self._landing.arrivals())


def _no_spark() -> SparkSession:
    raise AssertionError("nothing came that Spark is needed for")


@pytest.fixture
def looking(fixture: JournalFixture, monkeypatch: pytest.MonkeyPatch) -> Looking:
    monkeypatch.setattr(topic, "ANSWER_SECONDS", 0.05)
    lake = fixture.folder.root.parent
    assert own_journal(lake) == fixture.folder.root
    return Looking(lake)


def test_what_compaction_took_away_is_deleted_once_nobody_can_still_be_reading_it(
    fixture: JournalFixture, looking: Looking
) -> None:
    looking.look()
    looking.time += TRASH_HOURS * HOUR - 60 * SECOND
    looking.look()
    assert len(trash(fixture.folder)) == 1
    looking.time += (TIDY_SECONDS + 60) * SECOND
    looking.look()
    assert trash(fixture.folder) == []
    assert list(Journal(fixture.folder.root, "lab").records()) == fixture.records


def test_what_somebody_else_is_tidying_is_left_to_the_next_time(fixture: JournalFixture, looking: Looking) -> None:
    looking.time += 2 * TRASH_HOURS * HOUR
    with exclusive_maintenance(fixture.folder):
        looking.look()
    looking.look()
    assert len(trash(fixture.folder)) == 1, "it was looked at twice in a moment"
    looking.time += TIDY_SECONDS * SECOND
    looking.look()
    assert trash(fixture.folder) == []
