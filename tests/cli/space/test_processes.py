"""`~/.mew/running-spaces.json`: which entries are used, and that the file may be missing."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mew.cli.space.processes import register_space, running_spaces, unregister_space
from mew.supervisor.state_file import ProcessTable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def served(name: str) -> ProcessTable:
    """The state of a space of which this process is the gateway."""
    return ProcessTable(space_id=name, space_dir=f"/spaces/{name}", port=8080, gateway=os.getpid()).with_agents({})


def test_a_running_space_is_listed_until_it_is_unregistered(home: Path) -> None:
    register_space(served("lab"))
    register_space(served("game"))
    assert list(running_spaces()) == ["/spaces/lab", "/spaces/game"]
    unregister_space(Path("/spaces/lab"))
    unregister_space(Path("/spaces/lab"))
    assert list(running_spaces()) == ["/spaces/game"]


def test_a_dead_space_is_not_listed_and_removed_with_the_next_entry(home: Path) -> None:
    dead = ProcessTable(
        space_id="dead", space_dir="/spaces/dead", gateway=os.getpid(), births={str(os.getpid()): "before"}
    )
    register_space(dead)
    assert running_spaces() == {}
    register_space(served("lab"))
    assert list(json.loads((home / ".mew" / "running-spaces.json").read_text(encoding="utf-8"))) == ["/spaces/lab"]


def test_concurrent_registrations_are_all_kept(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: register_space(served(f"s{n}")), range(16)))
    assert len(running_spaces()) == 16


@pytest.mark.parametrize("text", ["", "[]", '{"x": 1}', "nonsense"])
def test_an_invalid_file_is_ignored(home: Path, text: str) -> None:
    (home / ".mew").mkdir()
    (home / ".mew" / "running-spaces.json").write_text(text, encoding="utf-8")
    assert running_spaces() == {}
    register_space(served("lab"))
    assert list(running_spaces()) == ["/spaces/lab"]


def test_a_home_that_cannot_be_written_is_no_error(home: Path) -> None:
    (home / ".mew").write_text("in the way", encoding="utf-8")
    register_space(served("lab"))
    unregister_space(Path("/spaces/lab"))
    assert running_spaces() == {}
