"""A page as GitHub shows it, made into one that the site's Markdown shows alike.

Must not change a word: only indentation, empty lines, and what no reader sees.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FENCE: Final = re.compile(r" *(```+|~~~+)")
_DIRECTIVE: Final = re.compile(r"\s*<!--.*-->\s*")
_ITEM: Final = re.compile(r"( *)([-*+]|[0-9]{1,9}[.)])( +)\S")
_HEADING: Final = re.compile(r"#+ ")


@dataclass(frozen=True)
class Line:
    """A line, and whether it is code, in which nothing is a link."""

    text: str
    code: bool = False


def for_site(page: str) -> Iterator[Line]:
    """The lines of a page as the site wants them; directives to the tests that run a page are left out.

    GitHub puts what belongs to an item of a list below the item's text, the site four spaces in. And there a list needs
    an empty line before it.
    """
    fence, items, empty = "", list[int](), True
    for line in page.splitlines(keepends=True):
        if fence:
            yield Line(_moved(line, items), code=True)
            fence = "" if line.strip() == fence else fence
            continue
        if _DIRECTIVE.fullmatch(line):
            continue
        item, opening = _ITEM.match(line), _FENCE.match(line)
        if line.strip():
            new = bool(item or opening or _HEADING.match(line))
            if new and not items and not empty and item:
                yield Line("\n")
            if new or empty:  # else it is the rest of a paragraph, wherever it begins
                items = [start for start in items if start <= _indent(line)]
        yield Line(_moved(line, items), code=bool(opening))
        items = [*items, item.end(3)] if item else items
        fence = opening[1] if opening else ""
        empty = not line.strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _moved(line: str, items: list[int]) -> str:
    """A line below these items, given where the text of each begins."""
    if not items or not line.strip():
        return line
    return " " * (4 * len(items) + max(_indent(line) - items[-1], 0)) + line.lstrip(" ")
