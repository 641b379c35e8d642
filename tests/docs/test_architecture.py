"""The page about the architecture names packages, files and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mew"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"└▶ (?:[\w]+ \()?(\w+(?:\.\w+)?).*?  +([\w/]+\.py)", PAGE) + re.findall(
    r"├▶ (\w+(?:\.\w+)?).*?  +([\w/]+\.py)", PAGE
)
PACKAGES = re.findall(r"^\| `(mew[\w.]+)` \|", PAGE, flags=re.MULTILINE)


def defined_names(module: Path) -> set[str]:
    """Functions, classes, and methods as `Class.method`."""
    names = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return names


def test_both_paths_are_drawn() -> None:
    assert len(STEPS) >= 15


@pytest.mark.parametrize(("name", "file"), STEPS)
def test_a_step_names_a_function_of_its_file(name: str, file: str) -> None:
    assert name in defined_names(PACKAGE / file)


def test_every_package_is_in_the_table() -> None:
    folders = [PACKAGE / name.replace(".", "/") for name in (package.removeprefix("mew.") for package in PACKAGES)]
    assert [str(folder) for folder in folders if not folder.is_dir() and not folder.with_suffix(".py").exists()] == []
    top = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"templates"}
    assert top <= {name.split(".")[1] for name in PACKAGES}
