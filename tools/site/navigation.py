"""What the site's contents list, against the pages there are: Zensical itself minds neither a lack nor a rest."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.site.staging import PROJECT


class WrongNavigation(Exception):
    """The contents of the site name a page that is not there, or leave one out."""


def listed(configuration: Path) -> list[str]:
    """The pages that the contents name, in their order."""
    return list(_pages(tomllib.loads(configuration.read_text(encoding="utf-8"))["project"]["nav"]))


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
            continue
        for below in entry.values():
            yield from _pages(below if isinstance(below, list) else [below])


def check(configuration: Path, docs: Path) -> None:
    """Refuse contents that name a page twice or one that is not there, or leave out a page of docs/."""
    listed_pages = listed(configuration)
    present = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    twice = sorted({page for page in listed_pages if listed_pages.count(page) > 1})
    missing = [page for page in listed_pages if page not in present]
    left_out = sorted(page for page in present - set(listed_pages) if not page.startswith(f"{PROJECT}/"))
    for what, pages in (("twice", twice), ("but they are not there", missing), ("not", left_out)):
        if pages:
            raise WrongNavigation(f"the contents in {configuration.name} have these pages {what}: {', '.join(pages)}")
