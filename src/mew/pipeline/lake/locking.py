"""One at a time on a lake: a courtesy that saves work. That nothing is written twice does not depend on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mew._internal.files import FileLock, LockHeld, make_folder
from mew.pipeline.lake.values import LakeBusy


@contextmanager
def locked(path: Path, who: str) -> Iterator[None]:
    """Hold a lock during the block; `LakeBusy` names its holder. The lock also ends with the process."""
    make_folder(path.parent)
    try:
        lock = FileLock(path, owner=f"{who} (process {os.getpid()})", mode=0o666)
    except LockHeld as error:
        holder = str(error) or "another process"
        raise LakeBusy(f"{path.parent}: {holder} is at work on this lake; wait for it, or stop it") from None
    with lock:
        yield
