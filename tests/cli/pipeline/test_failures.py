"""A full disk, a read-only folder, Ctrl-C: the pipeline says in one sentence what is wrong and what to do."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mew.cli.common.render import human_duration
from mew.pipeline.lake.unwritable import unwritable
from tests.cli import running_space as verbs
from tests.journal.small_disk import Disk, on_a_small_disk
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate

SECONDS = 120
pytestmark = pytest.mark.timeout(3 * SECONDS)
FULL = "the disk is full. Nothing is lost: solve this, and run the same command again"
READ_ONLY = "the file system is read-only. Nothing is lost: solve this, and run the same command again"


def start(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "mew", "pipeline", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, output, errors


@on_a_small_disk
def test_a_full_disk_is_named_and_the_batch_completes_when_there_is_room(disk: Disk, elsewhere: Path) -> None:
    generate(elsewhere / "journal", records=3_000, spaces=1, seed=2)
    run = ("run", "--journal", str(elsewhere / "journal"), "--lake", str(disk.path / "lake"))
    (disk.path / "lake" / "_logs").mkdir(parents=True)
    (disk.path / "lake" / "_plan").mkdir()
    room = disk.path / "room"
    room.write_bytes(b"x" * 2**16)  # for the plan, and not for the tables
    disk.fill()
    room.unlink()
    code, output, errors = finish(start(elsewhere, *run))
    assert (code, output, errors) == (1, "", f"mew: the lake {disk.path}/lake cannot be written: {FULL}\n")
    disk.make_room()
    code, output, errors = finish(start(elsewhere, *run))
    assert (code, errors) == (0, "")
    assert output.startswith("batch 1: ")


@on_a_small_disk
def test_a_full_disk_for_the_temporary_files_of_spark_is_named(disk: Disk, elsewhere: Path) -> None:
    generate(elsewhere / "journal", records=1_000, spaces=1, seed=2)
    disk.fill()
    run = start(elsewhere, "run", "--journal", "journal", "--lake", "lake", SPARK_LOCAL_DIRS=str(disk.path))
    code, output, errors = finish(run)
    assert (code, output) == (1, "")
    assert errors == f"mew: Spark cannot write its temporary files to {disk.path}: {FULL}\n"


@on_a_small_disk
def test_a_lake_and_a_report_on_a_read_only_disk_are_named(disk: Disk, elsewhere: Path) -> None:
    generate(elsewhere / "journal", records=1_000, spaces=1, seed=2)
    run_all(elsewhere / "journal", disk.path / "lake")
    disk.remount("ro")
    places = ("--journal", str(elsewhere / "journal"), "--lake", str(disk.path / "lake"))
    for arguments in (("run", *places), ("watch", *places), ("compact", *places)):
        ran = verbs.run(elsewhere, "pipeline", *arguments)
        expected = f"mew: the lake {disk.path}/lake cannot be written: {READ_ONLY}\n"
        assert (ran.code, ran.out, ran.err) == (1, "", expected)
    new = verbs.run(elsewhere, "pipeline", "run", "--journal", "journal", "--lake", str(disk.path / "new"))
    assert (new.code, new.err) == (1, f"mew: the lake {disk.path}/new cannot be written: {READ_ONLY}\n")
    report = verbs.run(elsewhere, "pipeline", "report", *places, "-o", str(disk.path / "report.html"))
    assert (report.code, report.err) == (
        1,
        f"mew: {disk.path}/report.html: cannot be written: Read-only file system\n",
    )
    disk.remount("rw")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=1_000, spaces=1, seed=2)
    run_all(tmp_path / "journal", tmp_path / "lake")
    report = verbs.run(tmp_path, "pipeline", "report", "--lake", "lake", "-o", "no/report.html")
    assert (report.code, report.err) == (1, "mew: no/report.html: cannot be written: No such file or directory\n")
    export = verbs.run(tmp_path, "pipeline", "export", "frames", "--lake", "lake", "--to", "no/frames.csv")
    assert (export.code, export.err) == (1, "mew: no/frames.csv: No such file or directory\n")
    (tmp_path / "file").write_text("", encoding="utf-8")
    run = verbs.run(tmp_path, "pipeline", "run", "--journal", "journal", "--lake", "file")
    assert (run.code, run.err.partition(". ")[0]) == (
        1,
        "mew: the lake file cannot be written: it is a file, not a folder",
    )


@on_a_small_disk
def test_errors_of_arrow_and_delta_are_recognized(disk: Disk, elsewhere: Path) -> None:
    folder = disk.path / "table"
    write_deltalake(folder, pa.table({"number": [1]}))
    table = DeltaTable(folder)
    disk.fill()
    with pytest.raises(OSError, match="No space left") as by_delta:
        table.create_write_transaction([], mode="append", schema=table.schema(), partition_by=[])
    with pytest.raises(OSError, match="No space left") as by_arrow:
        pq.write_table(pa.table({"number": [1] * 10_000}), disk.path / "file.parquet")
    for error in (by_delta.value, by_arrow.value):
        assert str(unwritable(error, folder)) == f"the lake {folder} cannot be written: {FULL}"


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "journal/segment"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "lake/file"),
        ValueError("28"),
    ],
)
def test_other_errors_keep_their_words(error: Exception) -> None:
    assert unwritable(error, Path("lake")) is None


def test_a_lake_of_another_user_is_named() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "lake/lock")
    assert str(unwritable(error, Path("lake"))).startswith(
        "the lake lake cannot be written: this user may not write there."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.412, "0.41 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ctrl_c_says_what_happens_to_the_batch(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=2_000, spaces=1, seed=2)
    process = start(tmp_path, "run", "--journal", "journal", "--lake", "lake")
    deadline = time.monotonic() + SECONDS
    while not (tmp_path / "lake" / "_plan" / "1.json").exists():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (
        130,
        "",
        "mew: interrupted: batch 1 is not finished, and readers see nothing of it; "
        "the next `mew pipeline run` or `watch` completes it\n",
    )
    process = start(tmp_path, "run", "--journal", "journal", "--lake", "lake")
    code, output, errors = finish(process)
    assert (code, errors) == (0, "")
    assert output.startswith("batch 1: ")
