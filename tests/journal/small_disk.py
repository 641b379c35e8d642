"""A disk that is soon full: a small tmpfs, mounted by root or, where the user is another, in a namespace of its own.

Must not know what is tried on it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.host_requirements import requires
from tools.parts import LIGHT

BYTES: Final = 4 * 2**20
ROOT: Final = Path(__file__).resolve().parents[2]
NO_NAMESPACES: Final = "nothing can be mounted here: neither as root nor with `unshare -rm`"


class Disk:
    """A file system that can be filled to its last byte, and made room on again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (2**16, 2**12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        self._ballast.unlink()

    def remount(self, option: str) -> None:
        """`ro` or `rw`."""
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.path)], check=True)


def on_a_small_disk(test: Callable[[Disk, Path], None]) -> Callable[[Path, pytest.FixtureRequest], None]:
    """A test that gets a disk, and a folder elsewhere."""

    def run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
        if _may_mount(tmp_path):
            with _mounted(tmp_path / "disk") as disk:
                test(disk, tmp_path)
            return
        requires(shutil.which("unshare") and _runs("unshare", "-rm", "true"), NO_NAMESPACES)
        again = [sys.executable, "-m", "pytest", "-q", *LIGHT, "-p", "no:cacheprovider", request.node.nodeid]
        ran = subprocess.run(["unshare", "-rm", *again], cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def _may_mount(path: Path) -> bool:
    if os.geteuid() != 0:
        return False
    (path / "tried").mkdir()
    mounted = _runs("mount", "-t", "tmpfs", "none", str(path / "tried"))
    return mounted and _runs("umount", str(path / "tried"))


@contextmanager
def _mounted(path: Path) -> Iterator[Disk]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "none", str(path)], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def _runs(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
