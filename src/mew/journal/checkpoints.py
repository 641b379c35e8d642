"""The last checkpoint of a space, kept beside its log so that a start finds it at once.

A copy: the record itself is in the journal. Where the copy is gone or damaged, the journal is asked.
"""

import os
from typing import Final

from mew.journal.blocks import Damaged, decode, encode
from mew.journal.folder import Folder
from mew.journal.log import sync_folder
from mew.protocol.records import CHECKPOINT, Record

_MODE: Final = 0o600


def save(folder: Folder, record: Record) -> None:
    """Put this checkpoint in the place of the one before; after a crash there is one or the other."""
    new = folder.checkpoint.with_suffix(".tmp")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        left = memoryview(encode([record]))
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)
    new.replace(folder.checkpoint)
    sync_folder(folder.log)


def load(folder: Folder) -> Record | None:
    """The last checkpoint; None where there is none that can be read."""
    try:
        records = list(decode(folder.checkpoint.read_bytes()))
    except (FileNotFoundError, Damaged):
        return None
    return records[0] if [record.event for record in records] == [CHECKPOINT] else None
