"""A process that opens and closes Spark in every order; it ends well only if each answer was right."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mew.pipeline.session import SessionConflict, SparkStartError, close_session, open_session
from mew.pipeline.spread import run_on_spark
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED


def opened(lake: Path, *, shared: bool = False) -> SparkSession:
    return open_session(SETTINGS, lake=lake, java_options=SHORT_LIVED, shared=shared)


def jvm() -> subprocess.Popen[bytes]:
    assert SparkContext._gateway is not None
    assert isinstance(SparkContext._gateway.proc, subprocess.Popen)
    return SparkContext._gateway.proc


def main(lake: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    environment = dict(os.environ)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(SparkStartError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
        open_session(SETTINGS, lake=lake, master=f"spark://127.0.0.1:{port}")
    with pytest.raises(SparkStartError, match=r"^Spark did not start: .*heap size.* \(more in ") as failed:
        open_session(SETTINGS, lake=lake, java_options=("-Xms64g",))
    assert "\n" not in str(failed.value)

    first = opened(lake)
    assert signal.getsignal(signal.SIGINT) is handler
    assert {name: os.environ.get(name) for name in environment} == environment
    assert "JAVA_HOME" in environment or "JAVA_HOME" not in os.environ

    assert run_on_spark(first, bytes.upper, [b"a"]) == [b"A"]
    dying = jvm()
    os.kill(dying.pid, signal.SIGKILL)
    dying.wait(30)
    second = opened(lake, shared=True)
    assert second is not first
    assert opened(lake, shared=True) is second
    close_session(first, shared=True)  # it is none of theirs
    close_session(second, shared=True)
    assert run_on_spark(second, bytes.upper, [b"a"]) == [b"A"], (
        "it ended before the last of those who share it had gone"
    )

    second.stop()  # by a caller that does not use close_session, and opens one of its own
    theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    with pytest.raises(SessionConflict, match="that mew did not open"):
        opened(lake)
    theirs.stop()

    left = jvm()
    close_session(second)
    assert left.poll() is not None, "closed, and its JVM lives on"
    close_session(second)  # twice is as good as once


if __name__ == "__main__":
    main(Path(sys.argv[1]))
