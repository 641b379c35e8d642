"""Starts Spark and uses it a little, so that its JVM can write down the classes it needed.

`archive` runs it as a process of its own: `python -m mew.pipeline.rehearsal <archive> <scratch folder>`.
"""

import sys
from pathlib import Path

from mew.pipeline import java
from mew.pipeline.archive import MAKING_SECONDS, making
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from mew.pipeline.spread import run_on_spark


def rehearse(archive: Path, scratch: Path) -> None:
    """A session that writes an archive when it ends. What comes in jars of its own cannot be archived: no Delta."""
    options = ("-XX:TieredStopAtLevel=1", making(java.find(), archive))
    session = open_session(PipelineSettings(driver_memory="1g"), lake=scratch, java_options=options)
    try:
        run_on_spark(session, bytes.upper, [b"a", b"b"])
        session.range(2).groupBy("id").count().orderBy("id").toArrow()
    finally:
        close_session(session, patience=MAKING_SECONDS)


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]), Path(sys.argv[2]))
