"""Alarms: what is wrong outside of any batch, kept until a batch has taken it into the table `audit`.

Decides nothing about what is an alarm. A batch takes up only those that its plan names; so each is reported once.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from mew._internal.files import write_if_absent
from mew.pipeline.lake.values import Alarm, LakeDamaged

_ENDING: Final = ".json"

__all__ = ["Alarm", "Alarms"]


class Alarms:
    """The folder `_alarms` of a lake."""

    def __init__(self, folder: Path) -> None:
        """It need not exist yet."""
        self.folder = folder

    def put(self, alarm: Alarm) -> None:
        """Have it told with the next batch; once, however often it is put."""
        write_if_absent(self._path(alarm), _encode(alarm) + b"\n")

    def pending(self) -> tuple[Alarm, ...]:
        """Those that no plan has named yet, in an order that is always the same."""
        if not self.folder.is_dir():
            return ()
        paths = sorted(path for path in self.folder.iterdir() if path.suffix == _ENDING and path.name[0] != ".")
        found = [_read(path) for path in paths]
        return tuple(sorted(found, key=lambda each: (each.space, each.check, each.to_position)))

    def drop(self, alarms: Iterable[Alarm]) -> None:
        """A plan has named them."""
        for alarm in alarms:
            self._path(alarm).unlink(missing_ok=True)

    def _path(self, alarm: Alarm) -> Path:
        return self.folder / f"{hashlib.sha256(_encode(alarm)).hexdigest()[:32]}{_ENDING}"


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _read(path: Path) -> Alarm:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Alarm)
    except msgspec.DecodeError as problem:
        raise LakeDamaged(f"{path}: this is no alarm: {problem}") from None
