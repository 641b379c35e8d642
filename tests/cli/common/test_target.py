"""The space of a directory: found whether it runs or not, and who one is there."""

import json
import os
import pty
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mew._internal.processes import process_start_id
from mew.cli.common.errors import Unreachable, UsageError, exit_code_of
from mew.cli.common.target import find_space, observer_token, resolve_participant, token_of
from mew.errors import MewError
from mew.supervisor.control_socket import ControlUnavailable
from mew.supervisor.state_file import ProcessTable, write_pids


def space(directory: Path, participants: dict[str, Any] | None = None, **settings: Any) -> Path:
    content = {
        "space": {"id": "lab", **settings},
        "gateway": {"port": 8123},
        "participants": {"alice": {}, "agent": {"command": "x"}} if participants is None else participants,
    }
    (directory / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    return directory


def served(directory: Path, **more: Any) -> Path:
    """As if this very process were its gateway."""
    pids = ProcessTable(
        space_id="lab", url="wss://localhost:9", port=9, gateway=os.getpid(), config_file="c.yaml", **more
    )
    write_pids(directory, pids.with_agents({}))
    return directory


def test_a_space_that_does_not_run_is_where_its_configuration_says(tmp_path: Path) -> None:
    place = find_space(space(tmp_path))
    assert (place.directory, place.config_file, place.space_id) == (tmp_path, tmp_path / "space.yaml", "lab")
    assert (place.url, place.http_url, place.port) == ("ws://localhost:8123", "http://localhost:8123", 8123)
    assert not place.running
    with pytest.raises(Unreachable, match="space 'lab' is not running: start it with `mew space up`") as caught:
        place.require_running()
    assert exit_code_of(caught.value) == 3


def test_a_space_that_runs_is_where_its_gateway_is_and_no_configuration_is_read(tmp_path: Path) -> None:
    place = find_space(served(tmp_path))
    assert (place.url, place.http_url, place.port, place.running) == (
        "wss://localhost:9",
        "https://localhost:9",
        9,
        True,
    )
    assert place.require_running() is place


def test_one_whose_gateway_has_died_does_not_run(tmp_path: Path) -> None:
    pids = ProcessTable(space_id="lab", url="ws://localhost:9", gateway=os.getpid(), births={str(os.getpid()): "never"})
    write_pids(space(tmp_path), pids)
    assert not find_space(tmp_path).running
    assert process_start_id(os.getpid()) is not None


def test_where_there_is_no_space_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(MewError, match=r"no space\.yaml found"):
        find_space(tmp_path)


def test_a_token_is_the_environments_else_the_files_else_the_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_space(space(tmp_path, {"alice": {"tokens": ["written"]}, "bob": {}}))
    assert token_of(place, "alice") == "written"
    tokens = tmp_path / ".mew" / "tokens"
    tokens.mkdir(mode=0o700, parents=True)
    (tokens / "alice.token").write_text("kept\n", encoding="utf-8")
    assert token_of(place, "alice") == "kept"
    monkeypatch.setenv("MEW_TOKEN_ALICE", "given")
    assert token_of(place, "alice") == "given"
    with pytest.raises(UsageError, match="'bob' has no token yet: create one with `mew token create bob`"):
        token_of(place, "bob")
    with pytest.raises(UsageError, match="'zoe' has no token in space 'lab'; its participants are: alice, bob"):
        token_of(place, "zoe")


@pytest.mark.parametrize(
    ("participants", "settings", "asked", "expected"),
    [
        ({"alice": {}, "bob": {}}, {}, "bob", "bob"),
        ({"alice": {}, "bob": {}}, {"default_participant": "bob"}, None, "bob"),
        ({"alice": {}, "agent": {"command": "x"}, "log": {"output_log": "l"}}, {}, None, "alice"),
        ({"tools": {"type": "mcp-bridge"}, "alice": {}}, {}, None, "alice"),
    ],
)
def test_one_speaks_as_asked_else_as_the_default_else_as_the_only_person(
    tmp_path: Path, participants: dict[str, Any], settings: dict[str, Any], asked: str | None, expected: str
) -> None:
    assert resolve_participant(find_space(space(tmp_path, participants, **settings)), asked) == expected


@pytest.mark.parametrize(
    ("participants", "choice"),
    [
        ({"alice": {}, "bob": {}}, "several participants can be used here: alice, bob"),
        ({"agent": {"command": "x"}}, "no participant was given"),
    ],
)
def test_where_it_is_not_clear_as_whom_that_is_asked(tmp_path: Path, participants: dict[str, Any], choice: str) -> None:
    with pytest.raises(UsageError, match=rf"{choice}\. Choose one with --participant"):
        resolve_participant(find_space(space(tmp_path, participants)), None)


def test_of_a_running_space_its_gateway_has_written_down_who_sits_there(tmp_path: Path) -> None:
    assert resolve_participant(find_space(served(tmp_path, people=("alice",))), None) == "alice"
    assert (
        resolve_participant(find_space(served(tmp_path, default_participant="bob", people=("alice",))), None) == "bob"
    )


def test_an_observers_token_is_made_once_and_kept(tmp_path: Path) -> None:
    place = find_space(space(tmp_path))
    token = observer_token(place)
    file = tmp_path / ".mew" / "tokens" / "mew-command.observer"
    assert file.read_text(encoding="utf-8") == token == observer_token(place)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_gateway_that_runs_has_to_learn_of_a_new_observer(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ControlUnavailable):
            observer_token(find_space(served(tmp_path)))


def test_at_a_terminal_one_is_asked_until_the_answer_is_somebody(tmp_path: Path) -> None:
    space(tmp_path, {"alice": {}, "bob": {}})
    ours, theirs = pty.openpty()
    script = "from mew.cli.common.target import *; print(resolve_participant(find_space(), None))"
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        os.write(ours, b"eve\nbob\n")
        assert process.communicate(timeout=30)[0] == b"bob\n"
        output = b""
        with suppress(OSError):  # the end of what a terminal has
            while more := os.read(ours, 4096):
                output += more
        assert output.count(b"Which participant? (alice, bob)") == 2
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
