"""The rules of the house that a machine can check: size, docstrings, plain words, and no path of one machine."""

import ast
import io
import re
import shutil
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.host_requirements import requires

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES = 500
FUNCTION_LINES = 60
MODULES = sorted((ROOT / "src").rglob("*.py"))

# Patterns, not plain words: this file must pass its own test.
FOREIGN = {
    "a registry's host": re.compile(r"pypi\.org|files\.pythonhosted|registry\.npmjs|repo1\.maven"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home|Users|opt/wheels)/\w"),
    "somebody else's package": re.compile(r"pip\s+install\s+(?:-\S+\s+)*['\"]?mew(?!-protocol)\b"),
}


DIALECT = re.compile(
    r"\b(whoever|whomever|somebody|nobody|everybody|anew|at once|likewise|in words|(?:is|are|was|be) told|turned away"
    r"|goes on|for good|of late|now and then|on its way|doors?)\b",
    re.IGNORECASE,
)
"""Words that hide the usual ones: no reader searches for them."""
NOT_PLAIN_YET = ("pipeline",)
"""Parts of the package whose docstrings and comments are still to be written in plain words."""
TEXTS_FOR_USERS = ("agents", "cli", "supervisor")
"""Parts of the package whose other texts, such as errors and help, are in plain words too."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        for each in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield each.lineno, text


def literals(source: str) -> Iterator[tuple[int, str]]:
    """String literals of a module, each with its line: docstrings, messages, help, and the parts of f-strings."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str() as text):
                yield node.lineno, text


def dialect(source: str, texts: Callable[[str], Iterator[tuple[int, str]]] = prose) -> list[str]:
    """The words in a module's texts that are not plain; by default, of its docstrings and comments."""
    return [f"line {line}: {found.group()}" for line, text in texts(source) for found in DIALECT.finditer(text)]


def long_functions(tree: ast.Module) -> Iterator[str]:
    """Name and length of each function that is too long, from its `def` to its last line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.name} has {lines} lines"


def broken_rules(source: str) -> list[str]:
    """What the source of one module has against it."""
    tree = ast.parse(source)
    lines = len(source.splitlines())
    return [
        *([f"the module has {lines} lines"] if lines > MODULE_LINES else []),
        *([] if ast.get_docstring(tree) else ["the module does not say what it is"]),
        *long_functions(tree),
    ]


def foreign_words(text: str) -> list[str]:
    """What in a text belongs to another place."""
    return [f"{what}: {found.group()}" for what, pattern in FOREIGN.items() if (found := pattern.search(text))]


def repository_files() -> list[Path]:
    """Every file that is, or by its name would be, in the repository."""
    requires(shutil.which("git") and (ROOT / ".git").exists(), "not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in sorted(set(listed.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_module_is_short_and_says_what_it_is(module: Path) -> None:
    assert broken_rules(module.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_docstrings_and_comments_are_in_plain_words(module: Path) -> None:
    if not str(module.relative_to(ROOT / "src" / "mew")).startswith(NOT_PLAIN_YET):
        assert dialect(module.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_texts_for_users_are_in_plain_words(module: Path) -> None:
    if module.relative_to(ROOT / "src" / "mew").parts[0] in TEXTS_FOR_USERS:
        assert dialect(module.read_text(encoding="utf-8"), literals) == []


def test_words_that_are_not_plain_are_found() -> None:
    source = '"""Asks somebody."""\n\nx = 1  # done at once\n"""Whoever it is."""\ny = "nobody"\n'
    assert dialect(source) == ["line 3: at once", "line 1: somebody", "line 4: Whoever"]
    assert dialect(source, literals) == ["line 1: somebody", "line 4: Whoever", "line 5: nobody"]
    assert dialect('x = f"{y} goes on"\n', literals) == ["line 1: goes on"]


def test_no_file_holds_what_belongs_to_another_place() -> None:
    offenders = {}
    for path in repository_files():
        # Bytes that are no text become marks, which match nothing.
        found = foreign_words(path.read_text(encoding="utf-8", errors="replace"))
        if found:
            offenders[str(path.relative_to(ROOT))] = found
    assert offenders == {}


def test_a_module_may_have_400_lines_and_no_more() -> None:
    source = '"""Says what it is."""\n' + "x = 1\n" * (MODULE_LINES - 1)
    assert broken_rules(source) == []
    assert broken_rules(source + "x = 1\n") == [f"the module has {MODULE_LINES + 1} lines"]


@pytest.mark.parametrize("word", ["def", "async def"])
def test_a_function_may_have_40_lines_and_no_more(word: str) -> None:
    source = f'"""Says what it is."""\n\n@decorated\n{word} long():\n' + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert broken_rules(source) == []
    assert broken_rules(source + "    x = 1\n") == [f"long has {FUNCTION_LINES + 1} lines"]


def test_a_module_must_say_what_it_is() -> None:
    assert broken_rules("x = 1\n") == ["the module does not say what it is"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see https://{}/simple".format("pypi" + ".org"), "a registry's host"),
        ("ls {}you/mew".format("/" + "home/"), "a path of one machine"),
        ("pip {}".format("install mew"), "somebody else's package"),
        ("pip {}".format("install 'mew[server]'"), "somebody else's package"),
    ],
)
def test_foreign_words_are_found(text: str, what: str) -> None:
    assert [found.partition(":")[0] for found in foreign_words(text)] == [what]


def test_our_own_words_are_not_foreign() -> None:
    assert foreign_words("pip install mew-protocol; GET /spaces/home/x; frame{0}/x; .{0}/x".format("/work")) == []
