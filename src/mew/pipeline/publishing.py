"""Tells a space what its own tables say, as a participant of it: figures that became final, and alarms of the audit.

Lives on a thread of its own and is never waited for: if the gateway is unavailable, messages are dropped and
counted. Makes no figure itself, and tells what a batch is about to commit without waiting until it has: a repetition of
the batch makes the same. What it sends is data like all other, so that the journal has it; of what it sends
itself it says nothing, or it would never come to an end.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.client import ConnectionLost, Format, ProtocolError, Space, Stream, connect
from mew.client.errors import JournalUnavailable, Paused, RateLimited
from mew.errors import MewError
from mew.pipeline.jobs.results import BatchPreview
from mew.pipeline.schemas import AUDIT, OPEN, STREAM_ACTIVITY
from mew.protocol.timestamps import SECOND

WAITING: Final = 10_000
"""Figures that wait at most; then the oldest go."""
START_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
_FOR_NOW: Final = (JournalUnavailable, Paused, RateLimited)
"""Refusals that pass."""
DESCRIPTION: Final = "what flows in this space, and what is wrong with it"


class Activity(msgspec.Struct, frozen=True):
    """What flowed on a stream in a window that is over."""

    stream_id: str
    seconds: int
    """The width of the window, 1 or 60."""
    start: datetime
    frames: int
    bytes: int
    writers: list[str]
    invalid: int
    missing: int
    interarrival_p50: int | None
    """Microseconds."""
    interarrival_p99: int | None


class PublishedAlarm(msgspec.Struct, frozen=True):
    """A check of the audit that was violated."""

    check: str
    to_position: int
    checked: int
    violations: int
    sample: list[dict[str, Any]]


Figure: TypeAlias = Activity | PublishedAlarm
ACTIVITY: Final = Format(Activity, "activity", "what flowed on a stream in a second, and in a minute")
ALARM: Final = Format(PublishedAlarm, "alarm", "a check of what happened that was violated")


class CannotPublish(MewError):
    """The space does not let it in, or does not let it write."""


def figures(made: BatchPreview, space: str, without: str) -> list[Figure]:
    """What a batch makes final in a space, in the order of time, and its alarms; without what one participant wrote."""
    known = made.known.get(space, 0) / SECOND
    found: list[Figure] = [
        msgspec.convert(row, Activity)
        for row in _rows(made, STREAM_ACTIVITY.name, space)
        if any(writer != without for writer in row["writers"])
        and (row["start"] + timedelta(seconds=row["seconds"])).timestamp() > known
    ]
    found.sort(key=lambda each: each.start if isinstance(each, Activity) else datetime.max)
    alarms = [row for row in _rows(made, AUDIT.name, space) if row["violations"]]
    return [
        *found,
        *(msgspec.convert({**row, "sample": msgspec.json.decode(row["sample"])}, PublishedAlarm) for row in alarms),
    ]


def _rows(made: BatchPreview, name: str, space: str) -> Iterable[dict[str, Any]]:
    """The final rows that a batch adds to a table."""
    for part in made.parts.get(name, ()):
        if part.partition.get(OPEN) != "true":
            table: pa.Table = pq.ParquetFile(Path(made.tables, name, part.path)).read()
            yield from table.filter(pc.equal(table.column("space"), space)).to_pylist()


class Publisher:
    """A participant that publishes; `with` it."""

    def __init__(self, url: str, space: str, token: str) -> None:
        """Not connected yet."""
        self._url = url
        self.space = space
        self._token = token
        self._waiting: deque[Figure] = deque()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._ends = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mew-publisher", daemon=True)
        self.me = ""
        """Who it is in the space, once it is in."""
        self.problem: str | None = None
        """Why it has stopped."""
        self.was_told = False
        """Whether it was reported."""
        self.dropped = 0
        self.published = 0

    def __enter__(self) -> "Publisher":
        self._thread.start()
        self._ready.wait(START_SECONDS)
        if self.problem is not None or not self.me:
            self._end()
            raise CannotPublish(f"{self._url}: {self.problem or 'no answer'}")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def publish(self, some: Iterable[Figure]) -> None:
        """Send these when possible, usually immediately."""
        self._waiting.extend(some)
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._call(self._wake.set)

    def _end(self) -> None:
        self._ends = True
        self._call(self._wake.set)
        self._thread.join(END_SECONDS)

    def _call(self, what: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)

    # On its own thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except Exception as problem:  # the thread ends here, and callers get the reason
            self.problem = str(problem) if isinstance(problem, MewError) else f"{type(problem).__name__}: {problem}"
        finally:
            self._ready.set()
            self._loop.close()

    async def _live(self) -> None:
        async with connect(self._url, space=self.space, token=self._token) as space:
            stream: Stream | None = await _open(space)
            self.me = space.participant_id
            self._ready.set()
            while not self._ends:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting and not self._ends:
                    stream = await self._send(space, stream)

    async def _send(self, space: Space, stream: Stream | None) -> Stream | None:
        """What has waited longest; the stream to continue with, None if a restart has ended it."""
        figure = self._waiting[0]
        try:
            stream = stream or await _open(space)
            await stream.send_data(figure, format=ACTIVITY if isinstance(figure, Activity) else ALARM)
        except ConnectionLost:
            await space.connected()
            return stream
        except _FOR_NOW:
            await asyncio.sleep(AGAIN_SECONDS)
            return stream
        except ProtocolError:
            if stream is None or stream.view is not None:
                raise
            return None
        if self._waiting and self._waiting[0] is figure:
            self._waiting.popleft()
        self.published += 1
        return stream


async def _open(space: Space) -> Stream:
    stream = await space.announce_stream([ACTIVITY, ALARM], description=DESCRIPTION)
    await stream.start()
    return stream
