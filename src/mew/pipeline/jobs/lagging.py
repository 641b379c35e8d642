"""How far the tables are behind what happened, space by space.

Looks at the journal and at a progress row, and changes nothing.
"""

import time
from pathlib import Path

import msgspec

from mew.errors import MewError
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.pipeline.jobs.planning import spaces_of
from mew.pipeline.lake.values import Progress
from mew.protocol.timestamps import SECOND


class Lag(msgspec.Struct, frozen=True):
    """How far the tables are behind what happened."""

    positions: int
    """Records in the journal, sealed or not, that no table has."""
    seconds: float
    """Since the last record that the tables have; 0 where they have all."""


def lags(journal: Path, progress: Progress | None, now: float | None = None) -> dict[str, Lag]:
    """By space, of every space that the journal knows; `now` is in seconds since 1970."""
    done = {} if progress is None else progress.positions
    times = {} if progress is None else progress.times
    at = time.time() if now is None else now
    found = {}
    for space in spaces_of(journal):
        behind = max(_last(journal, space) - done.get(space, -1), 0)
        waited = at - times[space] / SECOND if behind and space in times else 0.0
        found[space] = Lag(behind, round(max(waited, 0.0), 3))
    return found


def _last(journal: Path, space: str) -> int:
    """The last record of a space; of a log that cannot be read nothing is known."""
    try:
        last = Journal(journal, space).last
    except (MewError, OSError):
        segments = JournalFolder(journal, space).segments()
        last = segments[-1].last if segments else None
    return -1 if last is None else last
