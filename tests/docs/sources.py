"""The files of the repository and their texts, for the tests of the house rules."""

import ast
import io
import shutil
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.host_requirements import requires

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "src" / "mew"
MODULES: Final = sorted(PACKAGE.rglob("*.py"))
TO_BE_REDESIGNED: Final = "pipeline"
"""The folder whose structure is rewritten later. Rules for structure and names do not apply there yet."""

OUTSIDE_FOLDERS: Final = (
    *("bench", "examples", "tools"),
    *(
        f"tests/{path.name}"
        for path in sorted((ROOT / "tests").iterdir())
        if path.is_dir() and path.name not in {TO_BE_REDESIGNED, "__pycache__"}
    ),
)
"""The folders of Python code outside the package, except the one that is rewritten later."""


def repository_files() -> list[Path]:
    """Every file that is in the repository, or that a commit of everything would add."""
    requires(shutil.which("git") and (ROOT / ".git").exists(), "not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in sorted(set(listed.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


def module_path(module: Path) -> str:
    """The path of a module within the package, such as `journal/writer.py`."""
    return module.relative_to(PACKAGE).as_posix()


def settled_modules() -> list[Path]:
    """The modules that the rules for structure and names apply to."""
    return [module for module in MODULES if module.relative_to(PACKAGE).parts[0] != TO_BE_REDESIGNED]


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and texts of a module, each with its line: docstrings, messages, help, parts of f-strings.

    A literal without a space is a name, such as the id of a participant, and not a text.
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str() as text) if " " in text.strip():
                yield node.lineno, text
