"""Scenarios as a user would script them, with bash, curl and jq: each a file beside this one, run as it stands.

Two run at a time, ahead of the tests that wait for them; where processes share the tests, one, beside other tests. The
one that looks at the clock takes the best of several runs, and no neighbour slows down all of them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.bridge.test_filesystem import program
from tests.support.host_requirements import requires

HERE = Path(__file__).parent
LIMIT = 100
TOGETHER = 2
ALONE = "speed"
NEEDING_NPM = "bridge"
NAMES = sorted(file.stem for file in HERE.glob("*.sh") if file.stem not in {"lib", ALONE, NEEDING_NPM})

__all__ = ["program"]  # a fixture of the bridge's own tests
Waiting = Callable[[str], str]


def play(name: str, *arguments: str) -> str:
    """Run a scenario to its end, and what it said; empty where all went well."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", str(HERE / f"{name}.sh"), *arguments]
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()  # it cleans up after itself
            try:
                output, _ = process.communicate(timeout=LIMIT / 5)
            except subprocess.TimeoutExpired:
                process.send_signal(SIGKILL)
                output = "and it did not even stop"
            return f"{name} had not ended after {LIMIT} seconds: {output}"
    return "" if process.returncode == 0 else output or f"ended with {process.returncode}"


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Iterator[Waiting]:
    """Wait for a scenario; all that were asked for have begun, two at a time, unless other workers share them."""
    chosen = [_scenario(item) for item in request.session.items if item.path == Path(__file__)]
    ahead = [] if "PYTEST_XDIST_WORKER" in os.environ else chosen
    pool = ThreadPoolExecutor(TOGETHER, thread_name_prefix="scenario")
    begun: dict[str, Future[str]] = {name: pool.submit(play, name) for name in ahead if name}
    try:
        yield lambda name: begun[name].result() if name in begun else play(name)
    finally:
        pool.shutdown(cancel_futures=True)


def _scenario(item: pytest.Item) -> str:
    """The scenario that a test is for; empty for another test."""
    return item.name.partition("[")[2].removesuffix("]")


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    for needed in ("bash", "curl", "jq"):
        requires(shutil.which(needed), f"{needed} is not installed")


@pytest.mark.timeout(LIMIT + 60)
def test_the_command_answers_quickly() -> None:
    assert play(ALONE) == ""


@pytest.mark.timeout(LIMIT + 120)
def test_the_filesystem_server_takes_part(program: Path) -> None:
    assert play(NEEDING_NPM, str(program)) == ""


@pytest.mark.timeout(TOGETHER * LIMIT)
@pytest.mark.parametrize("name", NAMES)
def test_a_user_s_script_works(name: str, outcome: Waiting) -> None:
    assert outcome(name) == ""


def test_a_scenario_that_fails_says_where_and_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "wrong.sh"
    script.write_text(
        f'source "{HERE}/lib.sh"\n'
        "space lab <<< '{space: {id: lab}, participants: {a: {}}}'\n"
        'up\necho "at $scratch"\nsame 1 2\n',
        encoding="utf-8",
    )
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "FAILED at wrong.sh line 5: got '1', expected '2'" in done.stderr
    scratch = done.stdout.partition("at ")[2].strip()
    assert scratch
    assert not Path(scratch).exists()
