"""A disk that is full at the start, and a journal that is deleted while the gateway runs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running_space import command, environment
from tests.journal.gateway_process import GatewayProcess, gateway
from tests.journal.small_disk import Disk, on_a_small_disk
from tests.support.polling import until

PARTICIPANTS = {name: {"capabilities": [{"kind": "*"}]} for name in ("alice", "bob")}
FROM_THE_NTH_ON = """
import errno, os, sys
import mew.cli, mew.cli.space.gateway
count = 0

def hook(name, args):
    global count
    creates = name in ("os.mkdir", "os.link", "os.rename")
    if name == "open" and not isinstance(args[0], int) and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        creates = not str(args[0]).startswith("/dev")
    count += creates
    if creates and count >= int(sys.argv[1]):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))

sys.addaudithook(hook)
sys.exit(mew.cli.main(sys.argv[2:]))
"""
"""The command on a disk that becomes full with the nth file or folder that it creates or opens for writing."""


@pytest.mark.parametrize("nth", [1, 4, 5, 6, 7, 8, 9])
def test_a_start_on_a_full_disk_names_the_path_that_cannot_be_written(tmp_path: Path, nth: int) -> None:
    participants = {"alice": {"tokens": ["x"]}, "log": {"output_log": "logs/log.jsonl", "auto_connect": True}}
    content = {"space": {"id": "lab"}, "gateway": {"port": 0}, "participants": participants}
    (tmp_path / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    line = [sys.executable, "-c", FROM_THE_NTH_ON, str(nth), "gateway", "start", "-l", "error"]
    ran = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode in (1, 2), ran.stderr
    assert "Traceback" not in ran.stderr
    (error,) = [text for text in ran.stderr.splitlines() if text.startswith("mew: ")]
    assert "No space left on device" in error
    assert str(tmp_path) in error


@on_a_small_disk
def test_a_space_is_not_started_in_the_background_on_a_full_disk(disk: Disk, elsewhere: Path) -> None:
    (disk.path / "space.yaml").write_text(json.dumps({"space": {"id": "lab"}, "gateway": {"port": 0}}))
    (disk.path / ".mew").mkdir()
    (disk.path / ".mew" / ".gitignore").touch()
    (disk.path / ".mew" / "space.lock").touch()
    disk.fill()
    ran = subprocess.run(
        command("space", "up", "--detach"),
        cwd=disk.path,
        env=environment(HOME=str(elsewhere)),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert (
        ran.stderr
        == f"mew: {disk.path}/.mew: cannot be written: No space left on device; free some disk space and start again\n"
    )


@on_a_small_disk
def test_a_gateway_whose_standard_output_is_on_a_full_disk_serves(disk: Disk, elsewhere: Path) -> None:
    (elsewhere / "space.yaml").write_text(json.dumps({"space": {"id": "lab"}, "gateway": {"port": 0}}))
    disk.fill()
    with (disk.path / "ballast").open("ab") as full, (elsewhere / "log").open("w") as log:
        process = subprocess.Popen(
            command("gateway", "start"), cwd=elsewhere, env=environment(), stdout=full, stderr=log
        )
        try:
            until(lambda: "standard output cannot be written" in (elsewhere / "log").read_text(encoding="utf-8"))
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(30)
    assert "Traceback" not in (elsewhere / "log").read_text(encoding="utf-8")


def delete(process: GatewayProcess) -> None:
    shutil.rmtree(process.journal.root)


def move(process: GatewayProcess) -> None:
    process.journal.root.rename(process.journal.root.with_name("elsewhere"))


def replace(process: GatewayProcess) -> None:
    move(process)
    process.journal.log.mkdir(parents=True)


def delete_file(process: GatewayProcess) -> None:
    (file,) = process.journal.logs()
    file.unlink()


def delete_log(process: GatewayProcess) -> None:
    shutil.rmtree(process.journal.log)


@pytest.mark.parametrize(
    ("sync", "ended", "change"),
    [
        *[("interval:50", False, change) for change in (delete_file, delete_log)],
        *[("interval:50", ended, change) for ended in (False, True) for change in (delete, move, replace)],
        ("always", False, delete),
        ("os", False, delete),
    ],
)
def test_nothing_is_acknowledged_after_the_journal_was_deleted_or_moved(
    tmp_path: Path, sync: str, ended: bool, change: Callable[[GatewayProcess], None]
) -> None:
    journal = {"segment_seconds": 0.2 if ended else 3600, "sync": sync}
    with gateway(tmp_path, participants=PARTICIPANTS, journal=journal) as process:
        process.start()
        assert process.post("alice", "chat", text="before").status == 200
        if ended:  # no file of the log is open for writing
            until(lambda: not process.journal.logs())
        change(process)
        answers = [process.post("alice", "chat", text=f"after {n}") for n in range(8)]
        assert [answer.status for answer in answers] == [503] * 8
        assert answers[-1].json["error"] == "journal_unavailable"
        assert process.get("/ready").status == 503
        assert process.get("/health").json["status"] == "degraded"
        process.stop()
        process.start()
        assert process.post("alice", "chat", text="a new journal").status == 200
