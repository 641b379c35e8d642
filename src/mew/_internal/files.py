"""Crash-safe file operations: atomic replacement, durable names, advisory locks, and the private folder of a space."""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from mew._internal import SPACE_FOLDER
from mew.errors import MewError

TEMPORARY: Final = ".tmp"
"""End of the names of files that a crash may leave behind."""
_POLL_SECONDS: Final = 0.01
_OWNER_BYTES: Final = 200
_IGNORED: Final = "logs/\ntokens/\njournal/\npids.json\nspace.lock\n*.sock\nhistory*\n"
"""The contents of `.mew` that do not belong in a repository."""


class FileUnavailable(MewError):
    """A file or folder cannot be created or written: the disk is full, or permissions forbid it."""


def ensure_folder(folder: Path) -> None:
    """Create a folder and its parents if they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileUnavailable(
            f"{folder}: the folder cannot be created: {error.strerror}; make room or change its owner, and start again"
        ) from None


def ensure_space_folder(directory: Path) -> Path:
    """Return the folder `.mew` of a space. Creates it and its `.gitignore` if they are missing."""
    folder = directory / SPACE_FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # its logs and lake contain private messages
        with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as file:
            file.write(_IGNORED)
    except OSError as error:
        raise FileUnavailable(f"{folder}: cannot be used: {error.strerror}") from None
    return folder


# Durable names


def sync(path: Path) -> None:
    """Wait until the contents of a file, or the names in a folder, are fsynced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and fsync their names so that a crash cannot lose them."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


# Atomic writes


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file with a temporary name. On success it replaces `path` atomically, on failure it is deleted.

    With `durable`, contents and name are fsynced. Raises `OSError`.
    """
    temporary = _temporary_for(path)
    try:
        with _created(temporary, mode) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the contents of a file atomically: a reader sees the old contents or the new. A crash may lose the new.

    Raises `FileUnavailable`.
    """
    try:
        with replacing(path, durable=False) as file:
            file.write(data)
    except OSError as error:
        raise FileUnavailable(f"{path}: cannot be written: {error.strerror}") from None


def write_if_absent(path: Path, data: bytes, *, mode: int = 0o666) -> bool:
    """Write a file in one step, unless a file of this name exists. Returns whether it was written.

    Creates the folder if it is missing. In both cases the name is fsynced afterwards. Raises `OSError`.
    """
    make_folder(path.parent)
    temporary = _temporary_for(path)
    try:
        with _created(temporary, mode) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a hard link fails if the name exists.
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            sync(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_for(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}")


def _created(path: Path, mode: int) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


# Locks


class LockHeld(MewError):
    """Another process holds the lock of a file. The message is what this process wrote into the file, or empty."""


class FileLock:
    """An advisory lock on a file. It ends with `release`, with the `with` block, or with the process."""

    def __init__(self, path: Path, *, wait: float | None = 0.0, owner: str = "", mode: int = 0o600) -> None:
        """Lock the file for at most `wait` seconds of waiting; None waits without limit.

        The file is created if it is missing. `owner` is written into it. Raises `LockHeld` or `OSError`.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            _lock(self._descriptor, wait)
            if owner:
                self._write(owner)
        except BaseException:
            self.release()
            raise

    def _write(self, owner: str) -> None:
        with contextlib.suppress(OSError):  # on a full disk, the lock holds without the text
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{owner}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _lock(descriptor: int, wait: float | None) -> None:
    if wait is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockHeld(os.pread(descriptor, _OWNER_BYTES, 0).decode(errors="replace").strip()) from None
        time.sleep(_POLL_SECONDS)
