"""The layout of a journal on disk: names of files and folders, and which of them belong to it.

It reads names and changes nothing. Files that are no whole segment are left out (docs/journal.md).

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

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
DIGITS: Final = 20
"""Of a position in a file's name, so that names sort as positions do."""
CONTROL: Final = ".control.parquet"
FRAMES: Final = ".frames.parquet"
LOG: Final = ".log"
_COMMITTED: Final = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9]{{{DIGITS}}}){re.escape(CONTROL)}")
_LOG_NAME: Final = re.compile(rf"([0-9]{{{DIGITS}}}){re.escape(LOG)}")


class Segment(msgspec.Struct, frozen=True):
    """A sealed range of positions; committed once its control file is there."""

    hour: Path
    """The folder of its hour."""
    first: int
    last: int

    @property
    def control(self) -> Path:
        """What is not a frame: always there, the commit mark."""
        return self.hour / f"{self.name}{CONTROL}"

    @property
    def frames(self) -> Path:
        """Frames and `stream/data`; not there where the range has none."""
        return self.hour / f"{self.name}{FRAMES}"

    @property
    def name(self) -> str:
        """What both files' names begin with."""
        return f"{self.first:0{DIGITS}}-{self.last:0{DIGITS}}"


class Folder:
    """The journal of one space on a disk."""

    def __init__(self, root: Path, space: str) -> None:
        """It need not exist yet."""
        self.root = root
        self.space = space

    @property
    def sealed(self) -> Path:
        """The space's segments, by day and hour."""
        return self.root / f"space={self.space}"

    @property
    def log(self) -> Path:
        """What has not been sealed, and what the writer keeps beside it."""
        return self.root / LOG / self.space

    @property
    def trash(self) -> Path:
        """What no glob should see: folders being made, and folders that were taken away.

        Beside the root, because DuckDB and Polars look for `**` in hidden folders too.
        """
        return self.root.with_name(f".{self.root.name}.trash")

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint, for a quick start."""
        return self.log / "checkpoint"

    @property
    def synced(self) -> Path:
        """How far the log is known to be on the disk."""
        return self.log / "synced"

    @property
    def lock(self) -> Path:
        """Held by the one process that writes."""
        return self.log / "lock"

    def log_file(self, first: int) -> Path:
        """The file of the log whose first record has this position."""
        return self.log / f"{first:0{DIGITS}}{LOG}"

    def hour(self, time: int) -> Path:
        """The folder of the segments of an hour; `time` is in microseconds since 1970."""
        at = datetime.fromtimestamp(time // HOUR * 3600, UTC)
        return self.sealed / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"

    def hours(self) -> list[Path]:
        """The folders of all hours, the first first."""
        return sorted(hour for day in _named(self.sealed, "date=") for hour in _named(day, "hour="))

    def segments(self, start: int = 0) -> list[Segment]:
        """What is sealed and committed from a position on, in order, each record once."""
        found: list[Segment] = []
        for hour in reversed(self.hours()):
            here = segments_in(hour)
            found += here
            if here and here[0].first <= start:
                break
        return [segment for segment in covering(found) if segment.last >= start]

    def logs(self) -> list[Path]:
        """The files of the log in order; the last may be being written to."""
        return [path for _, path in self._numbered_logs()]

    def _numbered_logs(self) -> list[tuple[int, Path]]:
        if not self.log.is_dir():
            return []
        names = ((_LOG_NAME.fullmatch(path.name), path) for path in self.log.iterdir())
        return sorted((int(name[1]), path) for name, path in names if name is not None)


def _named(folder: Path, prefix: str) -> list[Path]:
    """The folders in a folder that begin so; none where it is gone, as retention takes them away."""
    try:
        return [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def log_first(path: Path) -> int:
    """The position of the first record of a file of the log, by its name."""
    return int(path.name.removesuffix(LOG))


def segments_in(hour: Path) -> list[Segment]:
    """The committed segments in a folder, as the cover rule has them; none where the folder is gone."""
    try:
        names = [_COMMITTED.fullmatch(path.name) for path in hour.iterdir()]
    except FileNotFoundError:
        return []
    return covering([Segment(hour, int(name[1]), int(name[2])) for name in names if name is not None])


def covering(segments: Sequence[Segment]) -> list[Segment]:
    """In order, without those that another contains (architecture, Journal)."""
    kept: list[Segment] = []
    for segment in sorted(segments, key=lambda each: (each.first, -each.last)):
        if not kept or segment.last > kept[-1].last:
            kept.append(segment)
    return kept


def spaces(root: Path) -> Iterator[str]:
    """The spaces that have a journal here, by name."""
    sealed = {path.name.removeprefix("space=") for path in root.glob("space=*")}
    yield from sorted(sealed | {path.name for path in root.glob(f"{LOG}/*")})


def disk_used(folder: Folder) -> float:
    """How much of the file system that a journal is on is used, from 0 to 1, as `df` counts it."""
    path = folder.root.absolute()
    usage = shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists()))
    return usage.used / (usage.used + usage.free)
