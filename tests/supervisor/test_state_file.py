"""`.mew/pids.json`: the fields that scripts read, and which processes count as running."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mew._internal.processes import process_start_id
from mew.supervisor.state_file import BadPids, ProcessTable, forget_pids, pids_file, read_pids, write_pids

OURS = ProcessTable(space_id="lab", space_name="A lab", space_dir="there", port=8080, gateway=os.getpid(), run="r1")


def test_the_file_has_the_fields_that_scripts_read_and_all_start_times(tmp_path: Path) -> None:
    write_pids(tmp_path, OURS.with_agents({"echo": os.getppid()}))
    written = json.loads(pids_file(tmp_path).read_text(encoding="utf-8"))
    fields = ("spaceId", "spaceName", "spaceDir", "port", "gateway", "agents", "clients")
    me, parent = os.getpid(), os.getppid()
    assert [written[name] for name in fields] == ["lab", "A lab", "there", 8080, me, {"echo": parent}, {}]
    assert written["births"] == {str(me): process_start_id(me), str(parent): process_start_id(parent)}
    assert "pids.json" in (tmp_path / ".mew" / ".gitignore").read_text(encoding="utf-8").split()


def test_a_reused_pid_does_not_count_as_running(tmp_path: Path) -> None:
    write_pids(tmp_path, OURS.with_agents({}))
    read = read_pids(tmp_path)
    assert read is not None
    assert read.running
    other = ProcessTable(space_id="lab", gateway=os.getpid(), births={str(os.getpid()): "another boot/1"})
    assert not other.running
    assert not ProcessTable(space_id="lab", gateway=os.getpid()).running


def test_a_concurrent_reader_sees_the_old_or_the_new_file(tmp_path: Path) -> None:
    write_pids(tmp_path, OURS)
    script = (
        "import sys; from pathlib import Path; from mew.supervisor.state_file import *\n"
        "for n in range(300):\n"
        "    write_pids(Path(sys.argv[1]), ProcessTable(space_id='lab', port=n, space_name='x' * n * 10))"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    while writer.poll() is None:
        assert read_pids(tmp_path) is not None
    assert writer.returncode == 0
    assert [path.name for path in (tmp_path / ".mew").iterdir() if "pids" in path.name] == ["pids.json"]


def test_only_the_run_that_wrote_the_file_removes_it(tmp_path: Path) -> None:
    write_pids(tmp_path, OURS)
    forget_pids(tmp_path, "r2")
    assert read_pids(tmp_path) == OURS
    forget_pids(tmp_path, "r1")
    assert read_pids(tmp_path) is None


def test_an_invalid_file_is_reported_with_its_name(tmp_path: Path) -> None:
    write_pids(tmp_path, OURS)
    pids_file(tmp_path).write_text("{", encoding="utf-8")
    with pytest.raises(BadPids, match=r"pids\.json"):
        read_pids(tmp_path)
