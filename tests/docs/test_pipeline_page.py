"""The page about the pipeline names every table, column and command there is. What it shows, `test_blocks.py` runs."""

import re
from pathlib import Path
from typing import Final

from mew.cli import app
from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.report.gathering import LINES, ROWS
from mew.pipeline.report.scope import POINTS
from mew.pipeline.schemas import TABLES

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading, up to the next."""
    _, separator, rest = PAGE.partition(f"\n{title}\n")
    assert separator, f"there is no section {title!r}"
    return re.split(r"\n##+ ", rest)[0]


def rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell, without backticks."""
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split(" | ")] for row in lines[2:]]


def test_every_table_is_named_once_with_its_place_in_the_reference() -> None:
    links = re.findall(r"\[`(\w+)`\]\(reference/tables\.md#(\w+)\)", section("## Tables"))
    assert sorted(links) == sorted((name, name) for name in (*TABLES, PROGRESS.name))


def test_every_command_stands_there_and_no_other() -> None:
    listed = [command.removeprefix("mew pipeline ") for command, _ in rows("## Commands")]
    assert sorted(listed) == sorted(name for name in app["pipeline"] if not name.startswith("-"))


def test_what_is_cut_in_a_report_is_as_it_says() -> None:
    text = section("## Report").replace("\n", " ")
    for words in (f"at most {POINTS} points", f"the {LINES} busiest streams", f"after {ROWS} rows"):
        assert words in text


def test_every_section_is_in_its_contents() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    contents = PAGE.partition("Contents: ")[2].partition("\n\n")[0].replace("\n", " ")
    assert re.findall(r"\[(.+?)\]", contents) == titles
    assert re.findall(r"\(#(.+?)\)", contents) == [title.lower().replace(" ", "-") for title in titles]
