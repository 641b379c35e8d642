"""Reads the fenced blocks of a page with Sybil, and the comments that control them.

`languages` and `running` decide what happens to a block.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = tuple(
    sorted([*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG"))])
    + sorted((ROOT / "docs").rglob("*.md"))
)
DIRECTIVES: Final = {
    "file": "`<!-- file: space.yaml -->` writes the block to that file",
    "background": "`<!-- background -->` lets the command run on until the page ends",
    "no-run": "`<!-- no-run: reason -->` leaves it alone",
    "output": "`<!-- output -->` is what the block before printed",
    "fails": "`<!-- fails: 2 -->` ends with that exit code",
    "set-up": "`<!-- set-up: name -->` has a function of tests/docs/blocks/histories.py prepare the page's folder",
}
_NEEDS_WORDS: Final = {"file": "the name of a file", "no-run": "a reason", "fails": "an exit code", "set-up": "a name"}
_COMMENT: Final = re.compile(r"\s*<!--\s*([\w-]+)\s*(?::\s*(.*?))?\s*-->\s*")
_LEXER: Final = RawFencedCodeBlockLexer(re.compile(r"(?P<info>[^\n]*)\n"))
_FENCE: Final = re.compile(r"^[ \t>]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(`{3,}|~{3,})", re.MULTILINE)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block: its line, its language, its text and its comments."""

    line: int
    language: str
    source: str
    directives: Mapping[str, str]

    def wrong(self) -> str:
        """What is wrong with the comments before it, or an empty text."""
        for name, words in self.directives.items():
            if name not in DIRECTIVES:
                return f"unknown comment {name!r}; these are known: {'; '.join(DIRECTIVES.values())}"
            if name in _NEEDS_WORDS and not words:
                return f"`{name}` needs {_NEEDS_WORDS[name]}: {DIRECTIVES[name]}"
        return ""


def directives_before(lines: list[str]) -> dict[str, str]:
    """The comments at the end of these lines, by name."""
    directives: dict[str, str] = {}
    while lines and (comment := _COMMENT.fullmatch(lines[-1])):
        directives[comment[1]] = comment[2] or ""
        lines = lines[:-1]
    return directives


def parser(run: Callable[[Example], str | None]) -> Callable[[Document], Iterable[Region]]:
    """A Sybil parser: every fenced block of a page is an example that this function runs."""

    def parse(document: Document) -> Iterable[Region]:
        for region in _LEXER(document):
            before = document.text[: region.start].splitlines()
            region.parsed = Block(
                line=len(before) + 1,
                language=(region.lexemes["info"].split() or [""])[0],
                source=str(region.lexemes["source"]),
                directives=directives_before(before),
            )
            region.evaluator = run
            yield region

    return parse


def examples_of(path: Path, run: Callable[[Example], str | None]) -> list[Example]:
    """The blocks of a page, from top to bottom."""
    return list(Sybil(parsers=[parser(run)]).parse(path).examples())


def count_fences(text: str) -> int:
    """The number of lines that open or close a block, counted without the block reader."""
    return len(_FENCE.findall(text))


def idle_directives(text: str) -> list[str]:
    """The comments that control a block but have no block after them."""
    lines = text.splitlines()
    idle = []
    for number, line in enumerate(lines):
        comment = _COMMENT.fullmatch(line)
        if comment is None or comment[1] not in DIRECTIVES:
            continue
        following = (text_line for text_line in lines[number + 1 :] if not _COMMENT.fullmatch(text_line))
        if not _FENCE.match(next(following, "")):
            idle.append(f"line {number + 1}: {line.strip()}")
    return idle
