"""An archive of the classes that Spark loads, made once: with it a session starts in less than half the time.

`python -m mew.pipeline.archive` makes it. It fits one build of Java and one set of jars; without it, or with one that
does not fit, everything works, and starts slower.
"""

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mew.errors import MewError
from mew.pipeline import connectors, java, share
from mew.pipeline.java import Java

COMMAND: Final = "python -m mew.pipeline.archive"
MAKING_SECONDS: Final = 300
FILE: Final = "classes"
CACHE_SINCE: Final = 25
"""A Java so new makes a better archive, and by other names; one that has no archive of its own makes no other kind."""


class CannotArchive(MewError):
    """The archive could not be made; nothing else is wrong."""


def find(of: Java) -> Path | None:
    """The archive for a Java, if it was made."""
    folder = share.find_cached(_name(of), _is_whole)
    return folder / FILE if folder is not None else None


def make(of: Java, *, say: Callable[[str], None]) -> Path:
    """The archive for a Java, made if it is not there."""
    return share.build_cached(_name(of), partial(_fill, say), _is_whole) / FILE


def using(of: Java, archive: Path) -> str:
    """The options of a Java that starts from an archive. An archive that does not match is ignored."""
    return f"-XX:{'AOTCache' if of.version >= CACHE_SINCE else 'SharedArchiveFile'}={archive}"


def making(of: Java, archive: Path) -> str:
    """The options of a Java that writes an archive when it ends."""
    return f"-XX:{'AOTCacheOutput' if of.version >= CACHE_SINCE else 'ArchiveClassesAtExit'}={archive}"


def _name(of: Java) -> str:
    fits = "\n".join([str(of.home), of.build, version("pyspark"), connectors.CONNECTORS.folder])
    return f"classes-{hashlib.sha256(fits.encode()).hexdigest()[:16]}"


def _is_whole(folder: Path) -> bool:
    return (folder / FILE).is_file()


def _fill(say: Callable[[str], None], folder: Path) -> None:
    """Have another process start Spark and use it once; its JVM writes down what it loaded when it ends."""
    say("class archive: starting Spark once to see what it loads")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mew-archive-") as scratch:
        command = [sys.executable, "-m", "mew.pipeline.rehearsal", str(folder / FILE), scratch]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAKING_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotArchive(f"the class archive took more than {MAKING_SECONDS} s") from None
    if done.returncode or not _is_whole(folder):
        said = done.stderr.strip().splitlines()
        raise CannotArchive(f"no class archive was made: {said[-1] if said else f'exit code {done.returncode}'}")
    size = (folder / FILE).stat().st_size
    say(f"class archive: {size / 10**6:.0f} MB in {time.monotonic() - started:.1f} s")


def main() -> int:
    """Make it where it is missing; that it cannot be made fails nothing."""
    try:
        found = make(java.find(), say=lambda line: print(line, flush=True))
    except CannotArchive as error:
        print(f"mew: {error}; Spark works without it, and starts slower", file=sys.stderr)
        return 0
    except MewError as error:
        print(f"mew: {error}", file=sys.stderr)
        return 1
    print(f"class archive: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
