"""Folders that the gateway creates at its start, and the error where that fails."""

from pathlib import Path
from typing import Final

from mew.errors import MewError


class FolderUnavailable(MewError):
    """A folder cannot be created: the disk is full, or may not be written to."""

    exit_code: Final = 1


def ensure_folder(folder: Path) -> None:
    """Create a folder and those above it where they are missing; `FolderUnavailable` where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderUnavailable(
            f"{folder}: the folder cannot be created: {error.strerror}; make room or change its owner, and start again"
        ) from None
