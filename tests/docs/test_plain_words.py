"""Texts are in plain technical English: none of them has a word that hides the usual one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.sources import OUTSIDE_FOLDERS, ROOT, python_texts, repository_files

HIDING_WORDS = re.compile(
    r"""\b(
    # participants
    whoever | whomever | somebody | nobody | everybody | onlookers? | household | crew
    # time
    | anew | at\ once | for\ good | of\ late | now\ and\ then | go(?:es)?\ on | gone\ on\ with | as\ of\ one\ moment
    # quantity
    | likewise | more\ than\ no\ time | fewer\ than\ none | takes?\ its\ time
    # talking
    | (?:is|are|was|were|be|been)\ told | in\ words | a\ word\ too\ many | without\ a\ word
    | by\ (?:its|their|whose)\ word | last\ words | tells?\ apart
    # failing
    | cannot\ be\ had | given\ up | hopeless | mend(?:s|ed|ing)? | wrong\ use | in\ good\ order
    # delivery
    | turned\ away | on\ (?:its|their)\ way | hold(?:s|ing)?\ off | held\ off | turns?\ of\ the\ loop | goodbye
    # access and content
    | doors? | seats? | turnstile | heed(?:s|ed|ing)? | by\ what\ right | keeper | what\ there\ is
    | what\ be(?:comes|came)\ of
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""The usual words are: a participant, no participant, all participants; again, immediately, periodically, continues;
the same; receives, reports, as text; is unavailable, abandoned, repaired, a usage error, gracefully; rejected, in
flight, delays, event-loop iteration; transport, connection, observer, apply, contents, outcome."""
PLACES = ("src", "tests", "docs", "examples", "deploy", "inspector", "tools", "bench", "")
"""Folders whose files are checked; an empty name means the files at the top of the repository."""
TEXT_FILES = {".md", ".ts", ".tsx", ".mjs", ".js", ".css", ".html", ".sh", ".toml", ".yaml", ".yml", ".ipynb", ".pyi"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with its line: of Python comments and literals, of other files everything."""
    if path.suffix == ".py":
        yield from python_texts(path.read_text(encoding="utf-8"))
    elif path.suffix in TEXT_FILES or path.name in {"Makefile", "Dockerfile"}:
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)


def hiding_words(numbered: Iterator[tuple[int, str]]) -> list[str]:
    """The words of the list in texts, each with its line."""
    return [f"line {line}: {match.group()}" for line, text in numbered for match in HIDING_WORDS.finditer(text)]


def offenders(place: str) -> dict[str, list[str]]:
    """The words of the list in the files of a folder, by file; not in this module, which has the list."""
    by_file = {}
    for path in repository_files():
        name = path.relative_to(ROOT).as_posix()
        is_there = name.startswith(f"{place}/") if place else "/" not in name
        if is_there and path != Path(__file__) and (words := hiding_words(texts(path))):
            by_file[name] = words
    return by_file


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place or "top")
def test_texts_are_in_plain_words(place: str) -> None:
    assert offenders(place) == {}


def names(path: Path) -> Iterator[tuple[int, str]]:
    """The names of functions and classes of a module, as words, each with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")


@pytest.mark.parametrize("folder", OUTSIDE_FOLDERS)
def test_names_are_in_plain_words(folder: str) -> None:
    by_file = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if words := hiding_words(names(path)):
            by_file[path.relative_to(ROOT).as_posix()] = words
    assert by_file == {}


def test_words_of_the_list_are_recognized_in_names(tmp_path: Path) -> None:
    module = tmp_path / "test_a.py"
    module.write_text("class Door:\n    def test_nobody_is_told(self): ...\n", encoding="utf-8")
    assert sorted(hiding_words(names(module))) == ["line 1: Door", "line 2: is told", "line 2: nobody"]


def test_words_of_the_list_are_recognized_in_docstrings_comments_and_literals() -> None:
    source = '"""To somebody."""\n\nx = 1  # done at once\n"""Whoever it is."""\ny = f"{x} goes on"\nz = "is nobody"\n'
    assert sorted(hiding_words(python_texts(source))) == [
        "line 1: somebody",
        "line 3: at once",
        "line 4: Whoever",
        "line 5: goes on",
        "line 6: nobody",
    ]
    assert hiding_words(python_texts('participant = "nobody"\n')) == []


def test_other_files_are_checked_line_by_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nIt was told twice,\nand held off.\n", encoding="utf-8")
    assert hiding_words(texts(page)) == ["line 3: was told", "line 4: held off"]


def test_usual_words_are_not_reported() -> None:
    assert hiding_words(iter([(1, "All participants receive it once; the outdoor seating; amended")])) == []
