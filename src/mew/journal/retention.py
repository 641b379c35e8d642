"""Retention: deletes whole segments, oldest first, once they are too old and no longer needed.

It cuts at a `checkpoint` record, so that the remaining records can be folded from their first one on. It never deletes
what a registered reader has yet to read (architecture, Journal). Without a limit it deletes nothing.

The control file of a segment is deleted first. It is the commit mark: without it, readers ignore the frames file. A
crash in between leaves an uncommitted frames file, which the next run deletes. The reverse order would leave a segment
that lists frames but has none, which counts as damage.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc

from mew._internal.files import make_folder, replacing, sync
from mew.journal import JournalError
from mew.journal.block_format import CorruptData
from mew.journal.compaction import exclusive_maintenance
from mew.journal.layout import NAME_DIGITS, JournalFolder, Segment, first_position
from mew.journal.segment_reader import read_control, read_footer
from mew.protocol.records import CHECKPOINT
from mew.protocol.timestamps import SECOND

_NAMED: Final = re.compile(rf"([0-9]{{{NAME_DIGITS}}})-([0-9]{{{NAME_DIGITS}}})\.(?:control|frames)\.parquet")
_READER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TEMPORARY: Final = ".tmp"


class RegisteredReader(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position reported by a registered reader."""

    position: int
    """The first position that it has not read yet. This one and all later ones are retained."""
    epoch: str = ""
    """Epoch of the preceding record; a reader may store it here for its own use."""


class InvalidReader(JournalError):
    """The file of a registered reader cannot be read, so its position is unknown; or a reader's name is invalid."""


def delete_expired(
    folder: JournalFolder, *, keep_seconds: float | None, now: int, readers: Mapping[str, int] | None = None
) -> list[Segment]:
    """Delete segments past the limit that no checkpoint and no reader needs. Returns the deleted ones in order.

    `now` is in microseconds since 1970. `readers` are additional readers to respect besides the registered ones.
    """
    if keep_seconds is None or not folder.sealed.is_dir():
        return []
    with exclusive_maintenance(folder):
        unread = min([*_positions(folder), *(readers or {}).values()], default=None)
        checkpoint = _last_checkpoint(folder, max(0, now - int(keep_seconds * SECOND)), unread)
        # A log below the cut could not be sealed. It may be sealed later, and then no record around it may be missing.
        if checkpoint is None or any(first_position(path) <= checkpoint for path in folder.logs()):
            return []
        return _remove_below(folder, checkpoint)


def _last_checkpoint(folder: JournalFolder, before: int, unread: int | None) -> int | None:
    """Position of the last sealed checkpoint older than `before` and not later than `unread`; None if there is none."""
    latest = folder.hour(before)
    for segment in reversed([segment for segment in folder.segments() if segment.hour <= latest]):
        try:
            checkpoints = _checkpoints_in(segment, before)
        except CorruptData:
            # An earlier checkpoint works as well, and deletes less.
            continue
        positions = [position for position in checkpoints if unread is None or position <= unread]
        if positions:
            return max(positions)
    return None


def _checkpoints_in(segment: Segment, before: int) -> list[int]:
    """Positions of the checkpoints in a segment that are older than a time."""
    if read_footer(segment).checkpoint is None:
        return []
    table = read_control(segment, ["position", "time", "event"])
    is_old = pc.less(table["time"].cast("int64"), before)
    positions: list[int] = table.filter(pc.and_(is_old, pc.equal(table["event"], CHECKPOINT)))["position"].to_pylist()
    return positions


def _remove_below(folder: JournalFolder, position: int) -> list[Segment]:
    """Delete all segments that lie entirely below a position, oldest first, so that a crash leaves no gap."""
    removed: list[Segment] = []
    for hour in folder.hours():
        segments = _named_in(hour)
        removed += [segment for segment in segments if segment.last < position and _remove(segment)]
        if segments and segments[-1].last >= position:
            break
        _remove_empty(hour)
    return removed


def _named_in(hour: Path) -> list[Segment]:
    """All segments by file name, contained ones first. Includes uncommitted segments and those contained in another."""
    names = {name.groups() for path in hour.iterdir() if (name := _NAMED.fullmatch(path.name)) is not None}
    segments = [Segment(hour, int(first), int(last)) for first, last in names]
    return sorted(segments, key=lambda segment: (segment.last, -segment.first))


def _remove(segment: Segment) -> bool:
    """Delete a segment; return whether it was committed. Fsyncs the deletion before the next segment may be deleted."""
    committed = segment.control.exists()
    if committed:
        segment.control.unlink()
        sync(segment.hour)
    segment.frames.unlink(missing_ok=True)
    return committed


def _remove_empty(hour: Path) -> None:
    """Delete the folders of an hour and of its day if they contain nothing but temporary files left by a crash."""
    left = list(hour.iterdir())
    if any(path.suffix != _TEMPORARY for path in left):
        return
    for path in left:
        path.unlink()
    hour.rmdir()
    sync(hour.parent)
    if not any(hour.parent.iterdir()):
        hour.parent.rmdir()
        sync(hour.parent.parent)


def register_reader(folder: JournalFolder, name: str, position: int, epoch: str = "") -> None:
    """Record that a reader has read everything below `position`, and nothing from there on. The rest is retained."""
    path = _reader_file(folder, name)
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(msgspec.json.encode(RegisteredReader(position, epoch)))


def unregister_reader(folder: JournalFolder, name: str) -> None:
    """Unregister a reader, so that it no longer holds back retention. An unknown name is ignored."""
    _reader_file(folder, name).unlink(missing_ok=True)


def registered_positions(folder: JournalFolder) -> dict[str, int]:
    """Return the next position of each registered reader by name. Raises `InvalidReader` if a file is damaged."""
    registrations = {path.stem: _read(path) for path in sorted(_readers_folder(folder).glob("*.json"))}
    return {name: registration.position for name, registration in registrations.items() if registration is not None}


def registered_reader(folder: JournalFolder, name: str) -> RegisteredReader | None:
    """Return a reader's last registration; None if it is not registered. Raises `InvalidReader` if it is damaged."""
    return _read(_reader_file(folder, name))


def _read(path: Path) -> RegisteredReader | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RegisteredReader)
    except FileNotFoundError:
        return None  # or just unregistered
    except (OSError, msgspec.DecodeError) as problem:
        raise InvalidReader(f"{path}: {problem}; nothing is removed until this file is repaired or deleted") from None


def _positions(folder: JournalFolder) -> list[int]:
    return list(registered_positions(folder).values())


def _readers_folder(folder: JournalFolder) -> Path:
    return folder.log / "readers"


def _reader_file(folder: JournalFolder, name: str) -> Path:
    if _READER.fullmatch(name) is None:
        raise InvalidReader(f"a reader's name has letters, digits, '.', '_' and '-', and no '.' first: not {name!r}")
    return _readers_folder(folder) / f"{name}.json"
