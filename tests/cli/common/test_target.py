"""The space of a directory, running or not, and the participant of the caller."""

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
from mew.config import ConfigError
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
    """Write a state file in which this process is the gateway."""
    pids = ProcessTable(
        space_id="lab", url="wss://localhost:9", port=9, gateway=os.getpid(), config_file="c.yaml", **more
    )
    write_pids(directory, pids.with_agents({}))
    return directory


def test_the_address_of_a_stopped_space_comes_from_its_configuration(tmp_path: Path) -> None:
    place = find_space(space(tmp_path))
    assert (place.directory, place.config_file, place.space_id) == (tmp_path, tmp_path / "space.yaml", "lab")
    assert (place.url, place.http_url, place.port) == ("ws://localhost:8123", "http://localhost:8123", 8123)
    assert not place.running
    with pytest.raises(Unreachable) as caught:
        place.require_running()
    assert exit_code_of(caught.value) == 3


def test_the_address_of_a_running_space_comes_from_its_gateway_without_a_configuration(tmp_path: Path) -> None:
    place = find_space(served(tmp_path))
    assert (place.url, place.http_url, place.port, place.running) == (
        "wss://localhost:9",
        "https://localhost:9",
        9,
        True,
    )
    assert place.require_running() is place


def test_a_space_whose_gateway_has_died_is_not_running(tmp_path: Path) -> None:
    pids = ProcessTable(space_id="lab", url="ws://localhost:9", gateway=os.getpid(), births={str(os.getpid()): "never"})
    write_pids(space(tmp_path), pids)
    assert not find_space(tmp_path).running
    assert process_start_id(os.getpid()) is not None


def test_a_directory_without_a_space_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        find_space(tmp_path)


def test_a_token_comes_from_the_environment_or_the_file_or_the_configuration(
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
    with pytest.raises(UsageError, match="mew token create bob"):
        token_of(place, "bob")
    with pytest.raises(UsageError, match="alice, bob"):
        token_of(place, "zoe")


@pytest.mark.parametrize(
    ("participants", "settings", "requested", "expected"),
    [
        ({"alice": {}, "bob": {}}, {}, "bob", "bob"),
        ({"alice": {}, "bob": {}}, {"default_participant": "bob"}, None, "bob"),
        ({"alice": {}, "agent": {"command": "x"}, "log": {"output_log": "l"}}, {}, None, "alice"),
        ({"tools": {"type": "mcp-bridge"}, "alice": {}}, {}, None, "alice"),
    ],
)
def test_the_participant_is_the_requested_one_or_the_default_or_the_only_person(
    tmp_path: Path, participants: dict[str, Any], settings: dict[str, Any], requested: str | None, expected: str
) -> None:
    assert resolve_participant(find_space(space(tmp_path, participants, **settings)), requested) == expected


@pytest.mark.parametrize(
    "participants",
    [{"alice": {}, "bob": {}}, {"agent": {"command": "x"}}],
    ids=["several people", "no people"],
)
def test_an_unclear_participant_is_a_usage_error(tmp_path: Path, participants: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--participant"):
        resolve_participant(find_space(space(tmp_path, participants)), None)


def test_the_state_file_of_a_running_space_lists_its_people(tmp_path: Path) -> None:
    assert resolve_participant(find_space(served(tmp_path, people=("alice",))), None) == "alice"
    assert (
        resolve_participant(find_space(served(tmp_path, default_participant="bob", people=("alice",))), None) == "bob"
    )


def test_the_token_of_the_observer_is_created_once_and_stored(tmp_path: Path) -> None:
    place = find_space(space(tmp_path))
    token = observer_token(place)
    file = tmp_path / ".mew" / "tokens" / "mew-command.observer"
    assert file.read_text(encoding="utf-8") == token == observer_token(place)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_running_gateway_must_load_a_new_observer_token(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ControlUnavailable):
            observer_token(find_space(served(tmp_path)))


def test_at_a_terminal_the_question_is_repeated_until_the_answer_is_a_participant(tmp_path: Path) -> None:
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
        with suppress(OSError):  # the end of the output of a terminal
            while more := os.read(ours, 4096):
                output += more
        assert output.count(b"Which participant? (alice, bob)") == 2
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
