"""The code of README and examples runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.raw import running_from

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if "MEW_GATEWAY" not in path.read_text(encoding="utf-8")
)
"""Those that need a gateway are run by `tests/client/test_examples.py`."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


(SPACE,) = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
WRITTEN = "ws://localhost:8080"
"""The address that the README has, in place of that of the test's gateway."""


def test_the_readme_shows_code() -> None:
    assert [WRITTEN in block for block in BLOCKS] == [True, False]


@pytest.mark.parametrize("block", [block for block in BLOCKS if WRITTEN not in block])
def test_a_code_block_of_the_readme_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("block", [block for block in BLOCKS if WRITTEN in block])
def test_a_program_of_the_readme_runs_in_the_space_of_the_readme(block: str, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    with running_from(tmp_path / "space.yaml") as gateway:
        command = [sys.executable, "-c", block.replace(WRITTEN, f"ws://127.0.0.1:{gateway.port}")]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "hello, watcher\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_something(example: Path) -> None:
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_the_story_ends_with_the_stream_in_the_hands_of_the_agent() -> None:
    command = [sys.executable, "examples/core_story.py"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "    seacat/stream-1: owner ai-agent, writers ['ai-agent'], 2 frames"
