"""How long a journal is kept: whole segments go, the oldest first, and only what nobody can need any more.

Cuts at a `checkpoint` record, so that what is left can be folded from its first one on, and never above what a
registered reader has yet to read (architecture, Journal). Without a limit it removes nothing.

Of a segment the control file goes first. It is the commit mark: without it our readers no longer look for the frames,
and a crash here leaves a frames file that does not count and that the next time removes. The other way round it would
leave a segment that says it has frames and has none: damage.
"""

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc

from mew.errors import MewError
from mew.journal.block_format import Damaged
from mew.journal.compaction import alone
from mew.journal.layout import DIGITS, SECOND, Folder, Segment, log_first
from mew.journal.segments import make_folder, read_control, read_footer
from mew.journal.wal import sync_folder
from mew.protocol.records import CHECKPOINT

_NAMED: Final = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9]{{{DIGITS}}})\.(?:control|frames)\.parquet")
_READER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TEMPORARY: Final = ".tmp"


class Reader(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a registered reader says of itself."""

    position: int
    """The first that it has not read yet: this one and all above it stay."""
    epoch: str = ""
    """That of the record before it, if the reader wants to know it again."""


class BadReader(MewError):
    """A registered reader of whom it is not known what it has read."""


def retain(
    folder: Folder, *, keep_seconds: float | None, now: int, readers: Mapping[str, int] | None = None
) -> list[Segment]:
    """Remove the segments older than a limit that no checkpoint and no reader holds; those removed, in order.

    `now` is in microseconds since 1970. `readers` are those to heed besides the registered ones.
    """
    if keep_seconds is None or not folder.sealed.is_dir():
        return []
    with alone(folder):
        unread = min([*_positions(folder), *(readers or {}).values()], default=None)
        kept = _last_checkpoint(folder, max(0, now - int(keep_seconds * SECOND)), unread)
        # Below it a log is left only if it could not be sealed: it still may be, and then nothing around it is missing.
        if kept is None or any(log_first(path) <= kept for path in folder.logs()):
            return []
        return _remove_below(folder, kept)


def _last_checkpoint(folder: Folder, before: int, unread: int | None) -> int | None:
    """The position of the last sealed checkpoint that is older than a time and that no reader has yet to come to."""
    latest = folder.hour(before)
    for segment in reversed([each for each in folder.segments() if each.hour <= latest]):
        try:
            checkpoints = _checkpoints_in(segment, before)
        except Damaged:
            # An earlier one serves as well, and removes less.
            continue
        found = [position for position in checkpoints if unread is None or position <= unread]
        if found:
            return max(found)
    return None


def _checkpoints_in(segment: Segment, before: int) -> list[int]:
    """The positions of those that are older than a time."""
    if read_footer(segment).checkpoint is None:
        return []
    table = read_control(segment, ["position", "time", "event"])
    is_old = pc.less(table["time"].cast("int64"), before)
    found: list[int] = table.filter(pc.and_(is_old, pc.equal(table["event"], CHECKPOINT)))["position"].to_pylist()
    return found


def _remove_below(folder: Folder, position: int) -> list[Segment]:
    """Whatever lies wholly below a position, the first first, so that a crash leaves no hole."""
    removed: list[Segment] = []
    for hour in folder.hours():
        segments = _named_in(hour)
        removed += [segment for segment in segments if segment.last < position and _remove(segment)]
        if segments and segments[-1].last >= position:
            break
        _remove_empty(hour)
    return removed


def _named_in(hour: Path) -> list[Segment]:
    """Whatever has a segment's name: committed or not, contained in another or not; contained ones first."""
    names = {name.groups() for path in hour.iterdir() if (name := _NAMED.fullmatch(path.name)) is not None}
    segments = [Segment(hour, int(first), int(last)) for first, last in names]
    return sorted(segments, key=lambda each: (each.last, -each.first))


def _remove(segment: Segment) -> bool:
    """Whether it was committed until now. The next may go only once the disk knows that this one has gone."""
    committed = segment.control.exists()
    if committed:
        segment.control.unlink()
        sync_folder(segment.hour)
    segment.frames.unlink(missing_ok=True)
    return committed


def _remove_empty(hour: Path) -> None:
    """The folders of an hour and of its day where nothing is left in them but what a crash left half-written."""
    left = list(hour.iterdir())
    if any(path.suffix != _TEMPORARY for path in left):
        return
    for path in left:
        path.unlink()
    hour.rmdir()
    sync_folder(hour.parent)
    if not any(hour.parent.iterdir()):
        hour.parent.rmdir()
        sync_folder(hour.parent.parent)


def register(folder: Folder, name: str, position: int, epoch: str = "") -> None:
    """Say that a reader has read everything below a position, and nothing else yet: the rest stays for it."""
    path = _reader_file(folder, name)
    make_folder(path.parent)
    # Of each its own: two may speak for one reader at the same time.
    temporary = path.with_suffix(f".{uuid.uuid4().hex}{_TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            file.write(msgspec.json.encode(Reader(position, epoch)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def forget(folder: Folder, name: str) -> None:
    """A reader that comes no more holds nothing back; one that was not registered is no matter."""
    _reader_file(folder, name).unlink(missing_ok=True)


def readers(folder: Folder) -> dict[str, int]:
    """The registered readers by name, and what each reads next; `BadReader` where one cannot be understood."""
    found = {path.stem: _read(path) for path in sorted(_readers_folder(folder).glob("*.json"))}
    return {name: each.position for name, each in found.items() if each is not None}


def reader(folder: Folder, name: str) -> Reader | None:
    """What a reader said last, None where it is not registered; `BadReader` where it cannot be understood."""
    return _read(_reader_file(folder, name))


def _read(path: Path) -> Reader | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reader)
    except FileNotFoundError:
        return None  # or forgotten a moment ago
    except (OSError, msgspec.DecodeError) as problem:
        raise BadReader(f"{path}: {problem}; nothing is removed until it is mended or deleted") from None


def _positions(folder: Folder) -> list[int]:
    return list(readers(folder).values())


def _readers_folder(folder: Folder) -> Path:
    return folder.log / "readers"


def _reader_file(folder: Folder, name: str) -> Path:
    if _READER.fullmatch(name) is None:
        raise BadReader(f"a reader's name has letters, digits, '.', '_' and '-', and no '.' first: not {name!r}")
    return _readers_folder(folder) / f"{name}.json"
