"""A run on a cluster of separate processes: the tables are the local ones, also when a worker dies on the way."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from mew.pipeline import session
from mew.pipeline.lake import Lake
from mew.pipeline.session import SparkStartError, close_session, log_files, open_session
from mew.pipeline.settings import PipelineSettings
from tests.e2e.cluster.standalone import JAVA_OPTIONS, Cluster, running, until
from tests.pipeline.jobs.lakes import CONTENT, contents, run_all
from tests.pipeline.sessions import shared_session
from tools.journal_generator import generate

pytestmark = pytest.mark.timeout(300)
Contents: TypeAlias = dict[str, pa.Table]
SPACES = 6
SECONDS = 150
SPACE = "space: {id: lab}\npipeline: {driver_memory: 512m, worker_memory: 512m}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a space, with a journal."""
    folder = tmp_path_factory.mktemp("space on a cluster")
    generate(folder / "journal", records=12_000 * SPACES, spaces=SPACES, seed=5)
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def local(place: Path) -> Contents:
    """What is in the tables that a local run makes; its session ends, so that a test can open another."""
    run_all(place / "journal", place / "local")
    close_session(shared_session())
    return contents(place / "local")


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    """Of two workers; a test that takes one gives another."""
    with running(place / "cluster", 2) as standalone_cluster:
        yield standalone_cluster


def run_on(cluster: Cluster, place: Path, lake: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "mew", "pipeline", "run", "--journal", "journal", "--lake", lake)
    return subprocess.Popen(
        [*command, "--master", cluster.url, "--json"],
        cwd=place,
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> None:
    try:
        output, complained = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert (process.returncode, complained) == (0, ""), output


def log_of(place: Path, lake: str) -> str:
    path = log_files(place / lake)[0]
    return path.read_text(encoding="utf-8") if path.exists() else ""


def at_work(place: Path, lake: str) -> set[str]:
    """The executors that were given something to do."""
    return set(re.findall(r"Starting task \S+ in stage .*executor (\d+)", log_of(place, lake)))


def same_as_local(place: Path, lake: str, local: Contents) -> None:
    tables = contents(place / lake)
    for name in CONTENT:
        assert tables[name] == local[name], name
    local_progress, progress = Lake(place / "local").progress(), Lake(place / lake).progress()
    assert local_progress is not None
    assert progress is not None
    assert (progress.positions, progress.rows) == (local_progress.positions, local_progress.rows)


def test_a_cluster_makes_the_tables_of_a_local_run(cluster: Cluster, place: Path, local: Contents) -> None:
    ended(run_on(cluster, place, "spread"))
    same_as_local(place, "spread", local)
    assert len(at_work(place, "spread")) == 2, "both had something to do"


def test_a_worker_that_is_killed_in_the_middle_of_a_run_takes_nothing_with_it(
    cluster: Cluster, place: Path, local: Contents
) -> None:
    frames = Lake(place / "bereft").table_folder("frames")
    process = run_on(cluster, place, "bereft")
    try:
        until(lambda: process.poll() is not None or any(frames.glob("*.parquet")), "a part of a table")
        until(lambda: process.poll() is not None or len(at_work(place, "bereft")) == 2, "two at work")
        assert process.poll() is None
        cluster.workers.pop().kill()
        ended(process)
    finally:
        process.kill()
        cluster.add_workers(1)
    assert "while it was being computed, its executor exited" in log_of(place, "bereft"), "it was at work"
    same_as_local(place, "bereft", local)


def test_a_cluster_without_room_for_us_is_not_waited_for_in_silence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "WORKERS_SECONDS", 1)
    settings = PipelineSettings(master=cluster.url, driver_memory="512m", worker_memory="2g")
    with pytest.raises(
        SparkStartError, match=r"has no worker for us after 1 s: one needs a free core and 2g, which is"
    ):
        open_session(settings, lake=tmp_path)
