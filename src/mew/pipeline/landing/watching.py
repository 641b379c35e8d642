"""Landing as part of a watch: new messages periodically, and each error once.

Plans and judges nothing. An unavailable broker is retried, with growing delays; the watch continues meanwhile.
"""

import time
from collections.abc import Iterator
from typing import Final

from mew._internal.backoff import Backoff
from mew.errors import MewError
from mew.pipeline.jobs.watching import Stop, Told, WatchError
from mew.pipeline.landing.landing import Ingest, IngestResult

EVERY_SECONDS: Final = 0.5
"""How often the topic is asked."""
AGAIN_SECONDS: Final = 1.0
LATEST_SECONDS: Final = 30.0


class LandingWatch:
    """Brings what a topic has, whenever it is called and it is time."""

    def __init__(self, landing: Ingest, stop: Stop) -> None:
        """Nothing is asked yet."""
        self._landing = landing
        self._stop = stop
        self._due = 0.0
        self._backoff = Backoff(AGAIN_SECONDS, LATEST_SECONDS)
        self.trouble: str | None = None
        """Why nothing comes just now."""

    def __call__(self) -> Iterator[Told]:
        """Land what is new; tell what is wrong."""
        if time.monotonic() < self._due:
            return
        try:
            for arrived in self._landing.arrivals():
                yield from _alarms(arrived)
                if self._stop.is_set:
                    break
            self.trouble = None
            self._backoff.reset()
            self._due = time.monotonic() + EVERY_SECONDS
        except (MewError, OSError) as problem:
            said = " ".join(str(problem).split())
            self._due = time.monotonic() + self._backoff.next_delay()
            if self.trouble is None:
                yield WatchError(None, f"{said}; it is tried again and again")
            self.trouble = said


def _alarms(arrived: IngestResult) -> Iterator[Told]:
    for alarm in arrived.alarms:
        for each in alarm.sample:
            yield WatchError(alarm.space or None, f"landing: {each['what']}")
