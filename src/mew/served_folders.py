"""Which folders an MCP file server serves, and whether one of them holds a `.mew` with tokens.

Reads names of folders only, never a file. Gateway, bridge and command use it; it imports nothing of them.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = ".mew"
MOST_FOLDERS: Final = 20_000
"""Folders that are searched below a served one; a deeper `.mew` in a larger tree is not found."""
_SERVER: Final = "server-filesystem"
"""`@modelcontextprotocol/server-filesystem@1.2.3`, `mcp-server-filesystem`, `…/server-filesystem/dist/index.js`."""


def served_folders(command: Sequence[str]) -> tuple[str, ...]:
    """The folders in the command line of a file server: what follows its name. Of other commands none."""
    for index, word in enumerate(command):
        if any(part.partition("@")[0].endswith(_SERVER) for part in word.split("/") if part):
            return tuple(each for each in command[index + 1 :] if not each.startswith("-"))
    return ()


def exposed(command: Sequence[str], working_folder: Path, space_directory: Path) -> str | None:
    """Why a file server must not be started with this command; None if it may be."""
    for text in served_folders(command):
        found = find_mew(working_folder / text, space_directory)
        if found is not None:
            return (
                f"the file server would serve {text!r}, which gives access to {found} and the tokens in it:"
                " name a folder that contains no .mew, such as ./workspace"
            )
    return None


def find_mew(folder: Path, space_directory: Path) -> Path | None:
    """The `.mew` that can be read through this folder, the one of this space included; None if there is none."""
    root, own = folder.resolve(), space_directory.resolve() / FOLDER
    if own.is_relative_to(root):
        return own  # also before the gateway creates it
    for each in (root, *root.parents):
        if each.name == FOLDER:
            return each
    return next(_below(root), None)


def _below(root: Path) -> Iterator[Path]:
    """Breadth is bounded. Links are not followed: a file server resolves them, and refuses what lies elsewhere."""
    for count, (place, folders, files) in enumerate(os.walk(root)):
        if FOLDER in folders or FOLDER in files:
            yield Path(place) / FOLDER
        if count >= MOST_FOLDERS:
            return
