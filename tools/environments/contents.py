"""The files of an environment: what is there, and what was there when it was finished.

Must not read them: existence and size are checked in a fraction of a second, contents would take many.
"""

import os
from collections.abc import Mapping
from pathlib import Path


def census(folder: Path) -> dict[str, int]:
    """Each file below a folder with its size; not what Python compiles by itself, no locks, and no stamp."""
    files = {}
    for path, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        with os.scandir(path) as entries:
            for entry in entries:
                of_set_up = path == str(folder) and entry.name.startswith(".")
                if not entry.is_dir() and not entry.name.endswith(".lock") and not of_set_up:
                    files[entry.path.removeprefix(f"{folder}/")] = entry.stat(follow_symlinks=False).st_size
    return files


def losses(folder: Path, files: Mapping[str, int]) -> str:
    """The files that are missing or have another size, as text; empty if there are none."""
    gone: set[Path] = set()
    changed: set[str] = set()
    for name, size in files.items():
        try:
            if os.lstat(f"{folder}/{name}").st_size != size:
                changed.add(name)
        except OSError:
            gone.add(_highest_lost(folder, name))
    if gone:
        return f"{len(gone)} of its files are gone, {min(path.name for path in gone)} among them"
    return f"{len(changed)} of its files have changed, {min(changed)} among them" if changed else ""


def _highest_lost(folder: Path, name: str) -> Path:
    """The folder that was lost, where a whole folder was."""
    path = folder / name
    for parent in [*path.parents][: len(Path(name).parts) - 1]:
        if os.path.lexists(parent):
            break
        path = parent
    return path
