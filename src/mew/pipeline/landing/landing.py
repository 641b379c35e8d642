"""Lands what a topic has, landing after landing: planned, looked at, judged, written, and then remembered.

    1 plan     which offsets of each partition, stored before any work
    2 stage    what each message is, and its block to a file (Spark reads them, once)
    3 judge    which are taken, per space
    4 write    segments, named by their positions
    5 finish   how far each space is, and what is wrong as alarms for the audit

A landing that was killed anywhere is done again by the same plan, and writes the same segments over those it wrote.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from mew._internal.files import make_folder
from mew.errors import MewError
from mew.journal.compaction import TRASH_HOURS, compact_hour, empty_trash, hours_to_compact
from mew.journal.kafka import TopicUrl
from mew.journal.layout import HOUR, JournalFolder, spaces_in
from mew.pipeline.lake import Lake
from mew.pipeline.lake.alarms import Alarm
from mew.pipeline.landing import reading, writing
from mew.pipeline.landing.judging import Judged, select_messages
from mew.pipeline.landing.keeping import Landings
from mew.pipeline.landing.topic import Topic, TopicSource
from mew.pipeline.landing.values import IngestPosition, LandingDone, LandingError, LandingPlan, Offsets
from mew.protocol.timestamps import SECOND

MOST_MESSAGES: Final = 5_000
"""Of each partition in one landing."""
TIDY_SECONDS: Final = 600
"""How often what compaction took away is looked at, at most."""
STAGING: Final = "_stage"
CHECK: Final = "landing"
"""What the audit calls it."""


class IngestResult(msgspec.Struct, frozen=True):
    """What one landing brought."""

    number: int
    messages: int
    repeats: int
    records: int
    segments: int
    seconds: float
    alarms: tuple[Alarm, ...] = ()


def own_journal(lake: Path) -> Path:
    """Where a lake keeps what was landed."""
    return lake / "journal"


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Ingest:
    """Brings the messages of a topic into a lake."""

    def __init__(
        self,
        lake: Lake,
        address: TopicUrl,
        session: Callable[[], SparkSession],
        most: int = MOST_MESSAGES,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        """Nothing is done yet; Spark is asked for once there is something to read."""
        self.journal = own_journal(lake.path)
        self._lake = lake
        self._address = address
        self._session = session
        self._most = most
        self._landings = Landings(lake.path)
        self._source = TopicSource(address)
        self._clock = clock
        self._tidied_at: int | None = None

    def arrivals(self) -> Iterator[IngestResult]:
        """Land what is there, one landing after the other, until nothing is new."""
        make_folder(self.journal)
        while True:
            self._tidy()
            arrived = self.land()
            if arrived is None:
                return
            yield arrived

    def land(self) -> IngestResult | None:
        """Do the next landing, or the one that was begun; None where nothing is new."""
        last = self._landings.last()
        number = 1 if last is None else last.number + 1
        plan = self._landings.planned(number) or self._new_plan(number, last)
        if plan is None:
            return None
        self._check_source(plan.topic)
        self._check_offsets(plan)
        return self._carry_out(plan, last)

    def _check_source(self, topic: str) -> None:
        if topic != self._address.topic:
            raise LandingError(f"{self._lake.path}: this lake lands the topic {topic!r}, not {self._address.topic!r}")

    def _check_offsets(self, plan: LandingPlan) -> None:
        """A plan that cannot be carried out any more needs a decision of a person: what it lacks is deleted."""
        there = self._source.look().partitions
        for partition, offsets in plan.partitions.items():
            low = there[partition].start if partition in there else offsets.to
            if low > offsets.start < offsets.to:
                raise LandingError(
                    f"{self._address}: landing {plan.number} is planned from offset {offsets.start} of partition "
                    f"{partition} on, and the topic has only {low} on; without {self._landings.plan_file(plan.number)} "
                    "it is planned again, and `mew journal ship --from-start` sends everything again"
                )

    # Planning

    def _new_plan(self, number: int, last: LandingDone | None) -> LandingPlan | None:
        if last is not None:
            self._check_source(last.topic)
        topic = self._source.look()
        if last is not None and topic.cluster != last.cluster:
            raise LandingError(
                f"{self._lake.path}: this lake lands from the cluster {last.cluster}, and {self._address} is of "
                f"{topic.cluster}"
            )
        partitions = {each: self._offsets(topic, each, last) for each in topic.partitions}
        if all(each.start == each.to for each in partitions.values()):
            return None
        return self._landings.plan(LandingPlan(number, topic.cluster, self._address.topic, partitions))

    def _offsets(self, topic: Topic, partition: int, last: LandingDone | None) -> Offsets:
        """From the next one on, or from the first that is left: what that loses is known by the positions."""
        there = topic.partitions[partition]
        start = max(there.start, 0 if last is None else last.partitions.get(partition, 0))
        if start > there.to:
            raise LandingError(
                f"{self._address}: partition {partition} ends at {there.to}, and {start} were landed:"
                " the topic was created again"
            )
        return Offsets(start, min(there.to, start + self._most))

    # Carrying out

    def _carry_out(self, plan: LandingPlan, last: LandingDone | None) -> IngestResult:
        started = time.monotonic()
        session = self._session()
        known = {} if last is None else last.spaces
        with self._staging(plan.number) as staging:
            seen = reading.stage(session, self._address, plan, staging)
            judged = select_messages(plan, known, seen)
            writing.clear(judged.pieces, known, self.journal)
            writing.write(session, judged.pieces, self.journal)
        alarms = tuple(_alarms(judged, known))
        for alarm in alarms:
            self._lake.alarms.put(alarm)
        ends = {each: offsets.to for each, offsets in plan.partitions.items()}
        self._landings.finish(LandingDone(plan.number, plan.cluster, plan.topic, ends, judged.spaces))
        self._compact(known, judged.spaces)
        records = sum(piece.last - piece.first + 1 for piece in judged.pieces)
        took = round(time.monotonic() - started, 3)
        return IngestResult(plan.number, len(seen), judged.repeats, records, len(judged.pieces), took, alarms)

    @contextmanager
    def _staging(self, number: int) -> Iterator[Path]:
        """A folder for blocks between the two; gone afterwards."""
        above = self._lake.path / STAGING
        above.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"landing-{number}-", dir=above) as folder:
            yield Path(folder)

    def _compact(self, before: dict[str, IngestPosition], now: dict[str, IngestPosition]) -> None:
        """Few large files of the many small ones of every hour that a space has left behind."""
        for space, landed in now.items():
            if landed.time // HOUR > before.get(space, IngestPosition()).time // HOUR:
                folder = JournalFolder(self.journal, space)
                for hour in hours_to_compact(folder, landed.time):
                    with suppress(MewError, OSError):  # it stays as it is, and is read as well
                        compact_hour(folder, hour)

    def _tidy(self) -> None:
        """Delete files that compaction replaced, once no reader can still use them: no gateway does it here.

        Also of spaces of which nothing comes any more, and while the broker is away.
        """
        now = self._clock()
        if self._tidied_at is not None and abs(now - self._tidied_at) < TIDY_SECONDS * SECOND:
            return
        self._tidied_at = now
        for space in spaces_in(self.journal):
            with suppress(MewError, OSError):  # another process does it: the next time
                empty_trash(JournalFolder(self.journal, space), now - TRASH_HOURS * HOUR)


def _alarms(judged: Judged, known: dict[str, IngestPosition]) -> Iterator[Alarm]:
    """What is new of what is wrong, by space."""
    found: dict[str, list[dict[str, Any]]] = {}
    for space, landed in judged.spaces.items():
        stopped = landed.stopped
        if stopped is not None and stopped != known.get(space, IngestPosition()).stopped:
            found.setdefault(space, []).append({"position": stopped.at, "what": stopped.what})
    for message in judged.strangers:
        space = message.space if message.space in judged.spaces else ""
        what = f"offset {message.offset} of partition {message.partition} is no block: {message.problem}"
        found.setdefault(space, []).append(
            {"position": judged.spaces.get(space, IngestPosition()).last + 1, "what": what}
        )
    for space, sample in sorted(found.items()):
        yield Alarm(space, CHECK, judged.spaces.get(space, IngestPosition()).last, sample)
