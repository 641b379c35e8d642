"""The pipeline as a registered reader of a journal: retention removes nothing that no batch has had.

Decides nothing about batches. A journal that may only be looked at is left unchanged: no reader can register there.
"""

import errno
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mew.journal.layout import JournalFolder
from mew.journal.retention import InvalidReader, register_reader, registered_positions

_OTHERS: Final = re.compile(r"[^A-Za-z0-9]+")
_LETTERS: Final = 60
_UNWRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def reader_name(lake: Path) -> str:
    """What a lake's pipeline is called among the readers: where the lake is, and what tells it from all others."""
    path = str(lake.absolute())
    told = _OTHERS.sub("-", path).strip("-")[-_LETTERS:].strip("-")
    return f"pipeline-{told}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def hold(journal: Path, lake: Path, wanted: Mapping[str, int]) -> None:
    """By space, keep everything from a position on."""
    name = reader_name(lake)
    for space, position in wanted.items():
        folder = JournalFolder(journal, space)
        if _registered(folder).get(name) != position:
            try:
                register_reader(folder, name, position)
            except OSError as problem:
                if problem.errno not in _UNWRITABLE:
                    raise


def _registered(folder: JournalFolder) -> dict[str, int]:
    try:
        return registered_positions(folder)
    except InvalidReader:
        return {}  # It belongs to another lake, or to this one and is written again.
