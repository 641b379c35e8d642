"""A process that opens Spark and waits in the middle of a job: the tests that end it look at what is left."""

import sys
import time
from pathlib import Path

from pyspark import SparkContext

from mew.pipeline.session import open_session
from mew.pipeline.spread import run_on_spark
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED

FOREVER = 600


def report_and_wait(folder: bytes, item: bytes) -> bytes:
    """Leaves its process's id where it is looked for."""
    import os

    (Path(folder.decode()) / f"worker-{item.decode()}").write_text(str(os.getpid()), encoding="ascii")
    time.sleep(FOREVER)
    return item


def main(folder: Path) -> None:
    from functools import partial

    session = open_session(SETTINGS, lake=folder / "lake", java_options=SHORT_LIVED)
    assert SparkContext._gateway is not None
    (folder / "jvm").write_text(str(SparkContext._gateway.proc.pid), encoding="ascii")
    run_on_spark(session, partial(report_and_wait, str(folder).encode()), [b"0", b"1"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
