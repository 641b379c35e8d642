"""The image is built from pins and runs as an ordinary user; what needs no daemon is tried here."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from mew.gateway.journaling import SEALING_SECONDS
from tests.deploy.dockerfile import lets_through, read
from tests.gateway.raw import running, tls_of
from tests.support.host_requirements import requires

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = ROOT / ".dockerignore"
STAGES = read(DOCKERFILE)
IMAGES = ("gateway", "pipeline")
EXTRAS = {"server": ("server", "bridge"), "pipeline": ("server", "bridge", "pipeline")}
SPACE = "space: {id: lab}\ngateway: {port: 0}\nparticipants: {alice: {}}\n"
SECONDS = 30


def pins(name: str) -> dict[str, set[Version]]:
    """What a file of pins has, each with the versions for one Python or another."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    versions_by_name: dict[str, set[Version]] = {}
    for distribution, version in re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE):
        versions_by_name.setdefault(distribution.replace(".", "-"), set()).add(Version(version))
    return versions_by_name


def asked_for(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def health(address: str | None) -> subprocess.CompletedProcess[str]:
    """The health check's own words, where the image has put them, with the address of this gateway."""
    (check,) = STAGES["gateway"].all("HEALTHCHECK")
    (copied,) = [instruction for instruction in STAGES["gateway"].all("COPY") if "from" not in instruction.flags]
    source, target = copied.rest.split()
    python, script = check._replace(rest=check.rest.removeprefix("CMD ")).words
    assert (python, script) == ("python", target)
    environ = {**os.environ, "http_proxy": "http://127.0.0.1:9"} | ({"MEW_HEALTH": address} if address else {})
    command = [sys.executable, str(ROOT / source)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=SECONDS)


@contextmanager
def as_in_the_image(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The image's own command, in this folder in place of /space, on a free port."""
    (entry,), command = STAGES["gateway"].all("ENTRYPOINT"), STAGES["gateway"].all("CMD")[-1]
    assert entry.words == ["mew"]
    (directory / "space.yaml").write_text(SPACE, encoding="utf-8")
    line = [sys.executable, "-m", *entry.words, *command.words]
    with subprocess.Popen(line, cwd=directory, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stdout is not None
            first_line = gateway.stdout.readline()
            assert first_line.startswith("listening on ws://0.0.0.0:")
            yield gateway, int(first_line.split(" for ")[0].rpartition(":")[2])
        finally:
            gateway.kill()


def test_hadolint_has_nothing_against_it() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    requires(linter.exists(), "hadolint is not installed")
    ran = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("name", STAGES)
def test_everything_that_is_copied_is_there(name: str) -> None:
    earlier = list(STAGES)[: list(STAGES).index(name)]
    for copy in STAGES[name].all("COPY"):
        if "from" in copy.flags:
            assert copy.flags["from"] in earlier
            continue
        for source in copy.rest.split()[:-1]:
            assert (ROOT / source).exists()
            files = list((ROOT / source).rglob("*.py")) or [ROOT / source]
            assert all(lets_through(IGNORED, str(path.relative_to(ROOT))) for path in files)


@pytest.mark.parametrize(
    "path",
    [
        ".mew/tokens/alice.token",
        ".git/config",
        ".venv/bin/python",
        "tests/support/host_requirements.py",
        "src/mew/__pycache__/errors.cpython-311.pyc",
        "src/mew/.mew/tokens/alice.token",
        "space.yaml",
    ],
)
def test_nothing_else_is_sent_to_the_builder(path: str) -> None:
    assert not lets_through(IGNORED, path)


def test_every_stage_begins_with_the_image_of_one_digest_or_with_another_stage() -> None:
    argument = re.search(r"^ARG IMAGE=(\S+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert argument is not None
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", argument[1])
    assert {stage.origin for stage in STAGES.values()} <= {"${IMAGE}", *STAGES}


def test_pip_installs_nothing_but_pins_with_hashes_and_the_project_itself() -> None:
    ran = [instruction.rest for stage in STAGES.values() for instruction in stage.all("RUN")]
    lines = [part for line in ran for part in line.split("&&") if re.search(r"pip (install|wheel|download)", part)]
    assert len(lines) == 7  # build tools, the wheel, the pins of two images, build tools of one, the wheel in both
    for line in lines:
        assert "--no-deps" in line, line
        hashed = "--require-hashes --no-build-isolation -r " in line
        project = "--no-index" in line or line.rstrip().endswith("--wheel-dir /wheels .")
        assert hashed != project, line


@pytest.mark.parametrize("name", ["build", "server", "pipeline"])
def test_every_pin_has_hashes_and_is_the_version_that_was_tested(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"(?m)^(?=[a-z0-9])", text) if "==" in entry]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    tested = pins("dev")
    assert {
        distribution: versions
        for distribution, versions in pins(name).items()
        if not versions <= tested.get(distribution, set())
    } == {}


@pytest.mark.parametrize("name", EXTRAS)
def test_the_pins_of_an_image_are_what_its_extras_ask_for(name: str) -> None:
    pinned = pins(name)
    for requirement in asked_for(*EXTRAS[name]):
        versions = pinned.get(requirement.name.replace(".", "-"), set())
        assert versions, f"{requirement.name} is not pinned: `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), requirement.name


def test_without_a_target_the_gateway_is_built() -> None:
    assert list(STAGES)[-1] == "gateway"
    assert "pyspark" in pins("pipeline")
    assert "pyspark" not in pins("server")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_a_user_of_its_own_in_the_folder_of_the_space(image: str) -> None:
    stage = STAGES[image]
    user, group = stage.all("USER")[-1].rest.split(":")
    assert int(user) >= 10000
    assert int(group) >= 10000
    (command,) = [instruction.rest for instruction in stage.all("RUN") if "useradd" in instruction.rest]
    assert f"--uid {user} " in command
    assert f"--gid {group} " in command
    assert stage.all("WORKDIR")[-1].rest == stage.all("VOLUME")[-1].rest == "/space"


def test_the_command_of_the_image_serves_and_ends_orderly(tmp_path: Path) -> None:
    assert STAGES["gateway"].all("STOPSIGNAL")[-1].rest == "SIGTERM"
    with as_in_the_image(tmp_path) as (gateway, port):
        alive = health(f"http://127.0.0.1:{port}/health")
        assert (alive.returncode, alive.stderr) == (0, "")
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(SECONDS) == 0
        dead = health(f"http://127.0.0.1:{port}/health")
        assert (dead.returncode, "refused" in dead.stderr) == (1, True)


def test_health_is_asked_of_a_gateway_with_a_certificate_too(tmp_path: Path) -> None:
    tls, _ = tls_of(tmp_path)
    with running(tmp_path, tls=tls) as gateway:
        assert health(f"https://localhost:{gateway.port}/health").returncode == 0


def test_an_answer_that_is_no_200_is_no_health(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        ran = health(f"http://127.0.0.1:{gateway.port}/nothing-here")
    assert (ran.returncode, "404" in ran.stderr) == (1, True)


def test_the_time_to_stop_that_is_advised_is_enough_to_seal() -> None:
    for file in (DOCKERFILE, ROOT / "docs" / "deployment.md"):
        advised = re.findall(r"docker stop (?:-t|--time) (\d+)", file.read_text(encoding="utf-8"))
        assert advised
        assert all(int(seconds) > SEALING_SECONDS + 5 for seconds in advised)
