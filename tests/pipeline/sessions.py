"""How tests open Spark: small, and for a short life; all tests of a process share one session."""

import tempfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from mew.pipeline.session import open_session
from mew.pipeline.settings import PipelineSettings
from mew.pipeline.spread import SparkEngine

SETTINGS = PipelineSettings(master="local[2]", driver_memory="1g")
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""So little work is done before a better compiler would have paid."""
FOR_CHILDREN = {"JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED)}
"""The same for a Spark that a process of its own starts: Java itself reads this variable."""


@cache
def _log_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="mew-spark-"))


def shared_session() -> SparkSession:
    """The session of this process, opened if there is none."""
    return open_session(SETTINGS, lake=_log_folder(), java_options=SHORT_LIVED)


ENGINE = SparkEngine(shared_session)
"""What batches of tests run on."""
