"""A Spark cluster of separate processes, from the package that pip installs: a master, and workers of one core each."""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyspark

from mew.pipeline.class_archive import find_archive, use_option
from mew.pipeline.java import find_java

HERE = "127.0.0.1"
PATIENCE = 100.0
GLANCE = 0.02
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = "Successfully registered with master"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""So little work is done before a better compiler would have paid."""


def until(question: Callable[[], bool], what: str) -> None:
    """Wait for something that is about to happen."""
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < deadline, f"{what} never came to be"
        time.sleep(GLANCE)


class Member:
    """A master or a worker, with everything that it starts."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        spark, java = Path(pyspark.__file__).parent, find_java()
        classes = find_archive(java)
        self._log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": HERE,
            "SPARK_DAEMON_MEMORY": "512m",
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            **({} if classes is None else {"SPARK_DAEMON_JAVA_OPTS": f'"{use_option(java, classes)}"'}),
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(spark / "bin" / "spark-class"), *arguments, "--host", HERE, "--webui-port", "0"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """Its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def until_it_says(self, what: str) -> None:
        until(lambda: self.process.poll() is not None or what in self.said, what)
        assert self.process.poll() is None, self.said

    def kill(self) -> None:
        """As when a machine loses its power: the process, and the executors that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)


class Cluster:
    """A master and its workers; with `with` they end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._master = Member("master", folder, "org.apache.spark.deploy.master.Master", "--port", "0")
        self.workers: list[Member] = []
        self._number = itertools.count()

    @property
    def url(self) -> str:
        """What a driver calls it."""
        self._master.until_it_says("Starting Spark master at")
        match = _MASTER.search(self._master.said)
        assert match is not None
        return match[1]

    def add_workers(self, count: int = 1) -> list[Member]:
        """Workers of one core and 512 MB, once the master knows them."""
        worker = ("org.apache.spark.deploy.worker.Worker", self.url, "--cores", "1", "--memory", "512m")
        names = [f"worker-{next(self._number)}" for _ in range(count)]
        new = [Member(name, self._folder, *worker, "--work-dir", str(self._folder / name)) for name in names]
        self.workers += new
        for member in new:
            member.until_it_says(_JOINED)
        return new

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        for member in (*self.workers, self._master):
            member.kill()


@contextmanager
def running(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster of so many workers."""
    folder.mkdir()
    with Cluster(folder) as cluster:
        cluster.add_workers(workers)
        yield cluster
