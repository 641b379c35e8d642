"""The code of README and examples runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if "MEW_URL" not in path.read_text(encoding="utf-8")
)
"""Those that need a gateway are run by `tests/client/test_examples.py`."""
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_the_readme_shows_code() -> None:
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_of_the_readme_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_something(example: Path) -> None:
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_the_story_ends_with_the_stream_in_the_hands_of_the_agent() -> None:
    command = [sys.executable, "examples/core_story.py"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "    seacat/stream-1: owner ai-agent, writers ['ai-agent'], 2 frames"
