"""The layout of a journal on disk: names of files and folders, and which of them belong to it.

It only reads names and changes nothing. Files that do not form a complete segment are ignored (docs/journal.md).

    <root>/space=<id>/date=<day>/hour=<hh>/<first>-<last>.frames.parquet    sealed: frames and stream data,
                                          <first>-<last>.control.parquet    and the other records; the commit mark
    <root>/.log/<id>/<first>.log                                            not sealed yet; the last one is written to
    <root>/../.<root's name>.trash/                                         replaced by compaction
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from mew.protocol.timestamps import SECOND

HOUR: Final = 3600 * SECOND
NAME_DIGITS: Final = 20
"""Digits of a position in a file name, so that names sort in the order of positions."""
CONTROL_SUFFIX: Final = ".control.parquet"
FRAMES_SUFFIX: Final = ".frames.parquet"
LOG_SUFFIX: Final = ".log"
_COMMITTED: Final = re.compile(rf"([0-9]{{{NAME_DIGITS}}})-([0-9]{{{NAME_DIGITS}}}){re.escape(CONTROL_SUFFIX)}")
_LOG_NAME: Final = re.compile(rf"([0-9]{{{NAME_DIGITS}}}){re.escape(LOG_SUFFIX)}")


class Segment(msgspec.Struct, frozen=True):
    """A sealed range of positions. It is committed once its control file exists."""

    hour: Path
    """The folder of its hour."""
    first: int
    last: int

    @property
    def control(self) -> Path:
        """File of the records that are not frames. It always exists and is the commit mark."""
        return self.hour / f"{self.name}{CONTROL_SUFFIX}"

    @property
    def frames(self) -> Path:
        """File of frames and `stream/data`. It does not exist if the range has none."""
        return self.hour / f"{self.name}{FRAMES_SUFFIX}"

    @property
    def name(self) -> str:
        """Common prefix of both file names."""
        return f"{self.first:0{NAME_DIGITS}}-{self.last:0{NAME_DIGITS}}"


class JournalFolder:
    """The journal of one space on disk."""

    def __init__(self, root: Path, space: str) -> None:
        """Set the paths; the journal does not need to exist."""
        self.root = root
        self.space = space

    @property
    def sealed(self) -> Path:
        """Folder of the space's segments, by day and hour."""
        return self.root / f"space={self.space}"

    @property
    def log(self) -> Path:
        """Folder of the records that are not sealed, and of the writer's other files."""
        return self.root / LOG_SUFFIX / self.space

    @property
    def trash(self) -> Path:
        """Folder for what globs must not find: folders being written, and folders that were replaced.

        It is next to the root, because DuckDB and Polars search hidden folders too for `**`.
        """
        return self.root.with_name(f".{self.root.name}.trash")

    @property
    def checkpoint(self) -> Path:
        """File with a copy of the last checkpoint, for a fast start."""
        return self.log / "checkpoint"

    @property
    def synced(self) -> Path:
        """File that stores how far the log is known to be fsynced."""
        return self.log / "synced"

    @property
    def lock(self) -> Path:
        """Lock file, held by the only process that writes."""
        return self.log / "lock"

    def log_file(self, first: int) -> Path:
        """Path of the log file whose first record has this position."""
        return self.log / f"{first:0{NAME_DIGITS}}{LOG_SUFFIX}"

    def hour(self, time: int) -> Path:
        """Folder for the segments of an hour; `time` is in microseconds since 1970."""
        at = datetime.fromtimestamp(time // HOUR * 3600, UTC)
        return self.sealed / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"

    def hours(self) -> list[Path]:
        """Folders of all hours, oldest first."""
        return sorted(
            hour for day in _folders_with_prefix(self.sealed, "date=") for hour in _folders_with_prefix(day, "hour=")
        )

    def segments(self, start: int = 0) -> list[Segment]:
        """Committed segments from a position on, in order, without duplicate records."""
        segments: list[Segment] = []
        for hour in reversed(self.hours()):
            in_hour = segments_in(hour)
            segments += in_hour
            if in_hour and in_hour[0].first <= start:
                break
        return [segment for segment in covering(segments) if segment.last >= start]

    def logs(self) -> list[Path]:
        """The log files in order; the last one may still be written to."""
        return [path for _, path in self._numbered_logs()]

    def _numbered_logs(self) -> list[tuple[int, Path]]:
        if not self.log.is_dir():
            return []
        names = ((_LOG_NAME.fullmatch(path.name), path) for path in self.log.iterdir())
        return sorted((int(name[1]), path) for name, path in names if name is not None)


def _folders_with_prefix(folder: Path, prefix: str) -> list[Path]:
    """Folders with a name prefix; empty if the parent folder does not exist, since retention may delete it."""
    try:
        return [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def first_position(path: Path) -> int:
    """Position of the first record of a log file, according to its name."""
    return int(path.name.removesuffix(LOG_SUFFIX))


def segments_in(hour: Path) -> list[Segment]:
    """Committed segments in a folder, without contained ones; empty if the folder does not exist."""
    try:
        names = [_COMMITTED.fullmatch(path.name) for path in hour.iterdir()]
    except FileNotFoundError:
        return []
    return covering([Segment(hour, int(name[1]), int(name[2])) for name in names if name is not None])


def covering(segments: Sequence[Segment]) -> list[Segment]:
    """Sort segments, and leave out those that are contained in another (architecture, Journal)."""
    outermost: list[Segment] = []
    for segment in sorted(segments, key=lambda segment: (segment.first, -segment.last)):
        if not outermost or segment.last > outermost[-1].last:
            outermost.append(segment)
    return outermost


def spaces_in(root: Path) -> Iterator[str]:
    """Yield the ids of the spaces that have a journal here, sorted."""
    sealed = {path.name.removeprefix("space=") for path in root.glob("space=*")}
    yield from sorted(sealed | {path.name for path in root.glob(f"{LOG_SUFFIX}/*")})


def disk_used(folder: JournalFolder) -> float:
    """Used part of the file system with the journal, from 0 to 1, calculated as in `df`."""
    path = folder.root.absolute()
    usage = shutil.disk_usage(next(parent for parent in (path, *path.parents) if parent.exists()))
    return usage.used / (usage.used + usage.free)
