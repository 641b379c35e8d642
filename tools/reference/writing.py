"""What all reference pages share: their first line, and tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Final

MADE: Final = "<!-- Made by `python -m tools.reference`. Change its sources, not this page. -->\n\n"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, with escaped cells."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(_cell(text) for text in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Return text as code; an empty text stays empty."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Return text as one line that begins with a capital letter."""
    words = " ".join(text.split())
    return words[:1].upper() + words[1:]


def indented(text: str) -> str:
    """Return text as an indented block of code: a test runs fenced blocks."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _cell(text: str) -> str:
    """Return the text of a cell as one line, with escaped Markdown outside of code."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)
