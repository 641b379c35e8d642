"""One at a time on a lake: a courtesy that saves work. That nothing is written twice does not depend on it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mew.pipeline.lake.disk import make_folder
from mew.pipeline.lake.values import LakeBusy


@contextmanager
def locked(path: Path, who: str) -> Iterator[None]:
    """Hold a lock during the block; `LakeBusy` names its holder. The lock also ends with the process."""
    make_folder(path.parent)
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(opened, 200, 0).decode(errors="replace").strip() or "another process"
            raise LakeBusy(f"{path.parent}: {holder} is at work on this lake; wait for it, or stop it") from None
        os.ftruncate(opened, 0)
        os.pwrite(opened, f"{who} (process {os.getpid()})\n".encode(), 0)
        yield
    finally:
        os.close(opened)
