"""Folders that are made once for an environment and used by every run: jars, a Java, a class archive.

Each folder appears complete or not at all, also with concurrent creators. The creator decides about its content.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mew._internal.files import FileLock
from mew.errors import MewError

DISK_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class NowhereToKeep(MewError):
    """Neither the environment nor the user's cache can be written to, or the disk is full."""


def places() -> tuple[Path, ...]:
    """Where to look, the best place first: the environment's own folder, then the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(sys.prefix) / "share" / "mew", Path(cache) / "mew"


def find_cached(name: str, is_whole: Callable[[Path], bool] = Path.is_dir) -> Path | None:
    """The folder of a name, if there is a complete one."""
    return next((place / name for place in places() if is_whole(place / name)), None)


def build_cached(name: str, fill: Callable[[Path], None], is_whole: Callable[[Path], bool] = Path.is_dir) -> Path:
    """The folder of a name. If it is missing or incomplete, a new one is filled and takes its place."""
    found = find_cached(name, is_whole)
    if found is not None:
        return found
    place = _writable_place()
    folder = place / name
    with _alone(folder):
        if not is_whole(folder):  # the previous holder of the lock may have created it
            try:
                _replace(folder, fill)
            except OSError as error:
                if error.errno not in DISK_ERRORS:
                    raise
                raise NowhereToKeep(f"{folder}: cannot be written: {error.strerror}") from None
    return folder


def _writable_place() -> Path:
    for place in places():
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK | os.X_OK):
            return place
    raise NowhereToKeep(f"cannot write to {' or '.join(map(str, places()))}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    # One lock a name: what is made may need another thing that is made.
    with FileLock(folder.with_name(f".{folder.name}.lock"), wait=None, mode=0o666):
        yield


def _replace(folder: Path, fill: Callable[[Path], None]) -> None:
    # Within the same folder, so that a rename is all it takes.
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        fill(new)
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        new.rename(folder)
