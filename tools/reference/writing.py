"""Words that all reference pages share: their first line, and tables in Markdown.

Must not know what any page is about.
"""

from collections.abc import Iterable, Sequence
from typing import Final

MADE: Final = "<!-- Made by `python -m tools.reference`: change what it reads, not this page. -->\n\n"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; what would end a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(_cell(each) for each in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Text as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Text as the beginning of a sentence, in one line."""
    words = " ".join(text.split())
    return words[:1].upper() + words[1:]


def indented(text: str) -> str:
    """Text as an indented block of code, because a test runs fenced blocks."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _cell(text: str) -> str:
    """In one line; what Markdown would take for more than text is escaped, but for what is code."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)
