"""`mew doctor`: a line for each requirement, with a remedy if it is not met, and an exit code."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from mew.cli import doctor
from mew.cli.doctor import REQUIREMENTS, DoctorCheck, MachineRequirements, look
from tests.cli.running_space import Lab, configure, run

FAST_SECONDS = 3
# A busy machine is slower than a quiet one.
PATIENCE = 4


@pytest.fixture
def lone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the checks that start other programs, which are tested separately."""
    monkeypatch.setattr(doctor, "_pipeline", lambda: iter(()))
    monkeypatch.setattr(doctor, "_node", lambda: DoctorCheck("node", "ok", "v20"))


def checks_of(directory: Path, requirements: MachineRequirements = REQUIREMENTS) -> dict[str, DoctorCheck]:
    """The checks by name; of several with the same name, the worst."""
    checks = look(directory, requirements=requirements)
    return {item.name: item for state in ("ok", "note", "wrong") for item in checks if item.state == state}


def test_the_doctor_checks_everything_and_is_fast(shared_lab: Lab) -> None:
    began = time.monotonic()
    ran = shared_lab.mew("doctor")
    assert time.monotonic() - began < PATIENCE * FAST_SECONDS
    assert (ran.code, ran.err) == (0, "")
    names = [line[6:20].strip() for line in ran.lines]
    needed = {"python", "extras", "clock", "disk", "configuration", "tokens", "gateway", "node", "java", "connectors"}
    assert needed <= set(names)
    assert {line.split()[0] for line in ran.lines} <= {"ok", "note"}


@pytest.mark.usefixtures("lone")
def test_the_checks_are_available_as_json(shared_lab: Lab) -> None:
    result = shared_lab.mew("doctor", "--json").json
    assert result["ok"] is True
    assert {"name": "node", "state": "ok", "line": "v20"} in result["checks"]
    assert f"ok at http://localhost:{shared_lab.port}" in json.dumps(result)


@pytest.mark.usefixtures("lone")
def test_a_directory_without_a_space_is_noted(tmp_path: Path) -> None:
    ran = run(tmp_path, "doctor")
    assert ran.code == 0
    assert "create one with `mew init`" in ran.out


@pytest.mark.usefixtures("lone")
def test_an_invalid_configuration_is_reported_with_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("space: {id: 'not an id'}\n", encoding="utf-8")
    ran = run(tmp_path, "doctor")
    assert ran.code == 1
    assert any(line.startswith("wrong configuration") and "space.yaml:1" in line for line in ran.lines)


@pytest.mark.usefixtures("lone")
def test_unknown_keys_and_missing_commands_are_noted(tmp_path: Path) -> None:
    configure(tmp_path, colour="red", participants={"agent": {"command": "no-such-command-anywhere"}})
    lines = run(tmp_path, "doctor").lines
    assert any("colour: unknown key" in line for line in lines)
    assert any("agent: the command 'no-such-command-anywhere' was not found" in line for line in lines)


@pytest.mark.usefixtures("lone")
def test_tokens_that_others_can_read_are_noted_without_their_text(tmp_path: Path) -> None:
    folder = configure(tmp_path) / ".mew" / "tokens"
    folder.mkdir(parents=True, mode=0o700)
    file = folder / "alice.token"
    file.write_text("a-secret", encoding="utf-8")
    file.chmod(0o644)
    ran = run(tmp_path, "doctor")
    assert any(line.startswith("note  tokens") and "chmod 600" in line for line in ran.lines)
    assert "a-secret" not in ran.out


@pytest.mark.usefixtures("lone")
def test_a_port_in_use_is_noted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        configure(tmp_path, gateway={"port": port, "host": "127.0.0.1"})
        assert checks_of(tmp_path)["port"].state == "note"
    assert checks_of(tmp_path)["port"] == DoctorCheck("port", "ok", f"{port} is free")
    configure(tmp_path)
    assert checks_of(tmp_path)["port"].line == "any free port"


@pytest.mark.usefixtures("lone")
def test_unmet_requirements_of_the_machine_are_reported(tmp_path: Path) -> None:
    missing = {"server": ("no_such_module",), "kafka": ("no_such_module.below",)}
    requirements = MachineRequirements(
        python=(99, 0),
        disk=2**62,
        open_files=2**62,
        earliest_time=time.time() + 1000,
        extras={**REQUIREMENTS.extras, **missing},
    )
    checks = checks_of(tmp_path, requirements)
    wrong = {name for name, item in checks.items() if item.state == "wrong"}
    assert wrong == {"python", "server", "clock", "disk"}
    assert "install mew-protocol[server]" in checks["server"].line
    assert (checks["extras"].state, "mew-protocol[kafka]" in checks["extras"].line) == ("note", True)
    assert checks["open files"].state == "note"


@pytest.mark.usefixtures("lone")
def test_little_disk_space_is_noted_also_for_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    check = checks_of(tmp_path / "not" / "there", MachineRequirements(ample_disk=2**62))["disk"]
    assert (check.state, str(tmp_path) in check.line) == ("note", True)


def test_a_missing_or_wrong_node_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not found" in doctor._node().line
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    fake.chmod(0o755)
    assert "is it Node.js?" in doctor._node().line
    fake.write_text("#!/bin/sh\necho v99\n", encoding="utf-8")
    assert doctor._node() == DoctorCheck("node", "ok", f"v99 ({fake})")


def test_a_gateway_that_does_not_answer_is_wrong() -> None:
    check = doctor._health("http://127.0.0.1:1", "http://127.0.0.1:1")
    assert (check.state, "does not answer" in check.line) == ("wrong", True)


def test_the_reason_why_spark_does_not_start_is_one_line() -> None:
    def breaks() -> Any:
        raise RuntimeError("no Java\nat org.apache…")

    assert doctor._problem(breaks) == "no Java"
    assert doctor._problem(lambda: 3) == "the result of the job is wrong"
    assert doctor._problem(lambda: 2) is None


@pytest.mark.usefixtures("lone")
def test_the_doctor_creates_no_files(tmp_path: Path) -> None:
    run(configure(tmp_path), "doctor")
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]
