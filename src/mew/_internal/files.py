"""Crash-safe file operations: atomic replacement, private folders, and errors that name the path."""

import contextlib
import secrets
from pathlib import Path
from typing import Final

from mew.errors import MewError

SPACE_FOLDER: Final = ".mew"
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


def replace_file(file: Path, data: bytes) -> None:
    """Replace the contents of a file atomically: a reader sees the old contents or the new."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(data)
        draft.replace(file)
    except OSError as error:
        raise FileUnavailable(f"{file}: cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
