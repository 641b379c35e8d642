"""An archive of the classes that Spark loads, made once: with it a session starts in less than half the time.

It fits one build of Java and one set of jars. Without it, or with one that does not fit, Spark works and starts slower.
`python -m mew.pipeline.class_archive <archive> <scratch folder>` is the process whose JVM writes it.
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
from mew.pipeline import java, share
from mew.pipeline.jars import CONNECTORS
from mew.pipeline.java import Java

MAKING_SECONDS: Final = 300
FILE: Final = "classes"
CACHE_SINCE: Final = 25
"""From this version on, Java has a better archive, with other options."""


class ClassArchiveError(MewError):
    """The archive cannot be made; Spark works without it."""


def find_archive(of: Java) -> Path | None:
    """The archive for a Java, if it was made."""
    folder = share.find_cached(_name(of), _is_whole)
    return folder / FILE if folder is not None else None


def make_archive(of: Java, *, say: Callable[[str], None]) -> Path:
    """The archive for a Java, made if it is not there. Raises `ClassArchiveError`."""
    return share.build_cached(_name(of), partial(_fill, say), _is_whole) / FILE


def use_option(of: Java, archive: Path) -> str:
    """The option of a Java that starts from an archive. An archive that does not match is ignored."""
    return f"-XX:{'AOTCache' if of.version >= CACHE_SINCE else 'SharedArchiveFile'}={archive}"


def make_option(of: Java, archive: Path) -> str:
    """The option of a Java that writes an archive when it ends."""
    return f"-XX:{'AOTCacheOutput' if of.version >= CACHE_SINCE else 'ArchiveClassesAtExit'}={archive}"


def _name(of: Java) -> str:
    identity = "\n".join([str(of.home), of.build, version("pyspark"), CONNECTORS.folder])
    return f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _is_whole(folder: Path) -> bool:
    return (folder / FILE).is_file()


def _fill(say: Callable[[str], None], folder: Path) -> None:
    """Start Spark in another process and use it once; its JVM writes down what it loaded when it ends."""
    say("class archive: starting Spark once to see which classes it loads")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mew-archive-") as scratch:
        command = [sys.executable, "-m", "mew.pipeline.class_archive", str(folder / FILE), scratch]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAKING_SECONDS)
        except subprocess.TimeoutExpired:
            raise ClassArchiveError(f"making the class archive took more than {MAKING_SECONDS} s") from None
    if done.returncode or not _is_whole(folder):
        lines = done.stderr.strip().splitlines()
        raise ClassArchiveError(f"no class archive was made: {lines[-1] if lines else f'exit code {done.returncode}'}")
    size = (folder / FILE).stat().st_size
    say(f"class archive: {size / 10**6:.0f} MB, {time.monotonic() - started:.1f} s")


def _rehearse(archive: Path, scratch: Path) -> None:
    """Use a session that writes an archive when it ends. Java archives no classes of additional jars: no Delta."""
    # The session imports this module.
    from mew.pipeline.session import close_session, open_session  # noqa: PLC0415
    from mew.pipeline.settings import PipelineSettings  # noqa: PLC0415
    from mew.pipeline.spread import run_on_spark  # noqa: PLC0415

    options = ("-XX:TieredStopAtLevel=1", make_option(java.find_java(), archive))
    session = open_session(PipelineSettings(driver_memory="1g"), lake=scratch, java_options=options)
    try:
        run_on_spark(session, bytes.upper, [b"a", b"b"])
        session.range(2).groupBy("id").count().orderBy("id").toArrow()
    finally:
        close_session(session, patience=MAKING_SECONDS)


if __name__ == "__main__":
    _rehearse(Path(sys.argv[1]), Path(sys.argv[2]))
