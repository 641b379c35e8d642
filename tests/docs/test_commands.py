"""The commands our documents name exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.host_requirements import requires
from tools.parts import PARTS, SET_UP

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# In code, inline or in a block: "make sure" in running text is no command.
MAKE_COMMAND = re.compile(r"(?:`|^\s*)make ([a-z-]+)(?: PART=([a-z-]+))?", re.MULTILINE)


def make_targets() -> set[str]:
    """The commands that `make help` lists."""
    requires(shutil.which("make"), "make is not installed")
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in listed.splitlines()}


def test_make_help_lists_what_the_repository_promises() -> None:
    promised = {"setup", "demo", "test", "test-fast", "check", "bench", "torture", "lock", "clean", "help"}
    assert promised <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_of_a_document_exists(document: Path) -> None:
    commands = MAKE_COMMAND.findall(document.read_text(encoding="utf-8"))
    assert {target for target, _ in commands} <= make_targets()
    assert {part for _, part in commands if part} <= {SET_UP, *(part.name for part in PARTS)}


def test_the_readme_names_the_commands_a_newcomer_needs() -> None:
    targets = {target for target, _ in MAKE_COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {"demo", "test", "test-fast"} <= targets
