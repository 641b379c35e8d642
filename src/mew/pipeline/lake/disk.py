"""Files that outlast a crash: content is on the disk before its name is, and its name before the caller continues.

Knows nothing of lakes.
"""

import os
import uuid
from pathlib import Path
from typing import Final

_MODE: Final = 0o666
TEMPORARY: Final = ".tmp"
"""How names end that a crash may leave behind."""


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def put_if_absent(path: Path, data: bytes) -> bool:
    """Write a file in one step, unless there is one of this name already; whether it was written."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}{TEMPORARY}")
    try:
        _write(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            # Whichever of the two it is: from here on it is there, also after a crash.
            sync(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(opened, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
