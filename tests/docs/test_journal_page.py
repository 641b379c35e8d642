"""The page about the journal says what the files are. Its examples are run by `test_blocks.py`."""

import re
from pathlib import Path
from struct import calcsize

import msgspec
import pytest

from mew.cli import app
from mew.gateway.http.responses import EXAMPLE_PAGE as PAGE_EXAMPLE
from mew.journal import JournalSettings, block_format, segments, writer
from mew.journal import segments as drafts
from mew.journal.arrow import SCHEMA, SCHEMA_VERSION
from mew.journal.block_format import BLOCK_EVENTS, BLOCK_HEAD_BYTES, RUN
from mew.journal.compaction import COMPACTED_BYTES
from mew.journal.kafka.messages import MessageHeaders
from mew.journal.segments import SegmentFooter

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "journal.md").read_text(encoding="utf-8")
SIZES = {"bytes": "4s", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q", "": "x"}


def section(title: str, page: str = PAGE) -> str:
    """The text under a heading, up to the next."""
    _, separator, rest = page.partition(f"\n{title}\n")
    assert separator, f"there is no section {title!r}"
    return re.split(r"\n##+ ", rest)[0]


def table(title: str, page: str = PAGE) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell, without backticks."""
    rows = re.findall(r"^\| (.*) \|$", section(title, page), re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split("|")] for row in rows[2:]]


def test_every_column_stands_there_with_its_type_and_whether_it_can_be_null() -> None:
    listed = [(name, kind, null.startswith("never")) for name, kind, _, null in table("## Columns")]
    assert listed == [(field.name, str(field.type), not field.nullable) for field in SCHEMA]
    assert f"Version {SCHEMA_VERSION} of the schema" in section("## Columns")


def test_every_event_stands_there_in_the_order_of_its_number() -> None:
    assert sorted(event for event, *_ in table("## What is recorded")) == sorted(BLOCK_EVENTS)
    _, _, listed = section("### Run").partition("Events: ")
    assert re.findall(r"`(\w+)`", listed) == list(BLOCK_EVENTS)


def test_every_field_of_the_footer_stands_there() -> None:
    assert [field for field, _ in table("### The footer")] == list(SegmentFooter.__struct_fields__)
    for key in (segments.FOOTER_KEY, drafts.VERSION_KEY):
        assert f"`{key.decode()}`" in section("### The footer")


@pytest.mark.parametrize(
    ("title", "layout"),
    [
        ("### Head of a block", (block_format._MARK.format + block_format._COUNTED.format).replace("<", "")),
        ("### Run", RUN.format.removeprefix("<")),
    ],
)
def test_every_byte_of_a_block_is_accounted_for(title: str, layout: str) -> None:
    at, total = 0, ""
    for start, size, kind, _ in table(title):
        assert (int(start), int(size)) == (at, calcsize(f"<{SIZES[kind]}"))
        at += int(size)
        total += SIZES[kind]
    assert total == re.sub(r"(\d+)(?!s)", "", layout)
    assert at == (BLOCK_HEAD_BYTES if "Head" in title else RUN.size)


def test_its_numbers_are_those_of_the_program() -> None:
    usual = JournalSettings()
    behind = writer.ReplayBudget
    for title, words in {
        "## Segments": [f"at most {drafts.GROUP_ROWS:,} rows"],
        "## What can be lost": [f"by default {usual.interval_ms}", f"frames of the last {usual.interval_ms} ms"],
        "## Starting again": [f"{behind.ENTRIES:,} records", f"{behind.BYTES >> 20} MiB", f"{behind.FILES} files"],
        "## Sealing, compaction, retention": [f"at most {COMPACTED_BYTES // 10**6} MB"],
    }.items():
        for text in words:
            assert text in section(title).replace("\n", " ")
    assert writer.WRITE_RETRY_SECONDS == 1 / 5  # five times a second


def test_every_header_of_a_message_stands_there() -> None:
    assert [header for header, _ in table("## Shipping to Kafka")] == list(MessageHeaders.__struct_fields__)


def test_every_command_stands_there_and_no_other() -> None:
    listed = [command.removeprefix("mew journal ") for command, _ in table("## Commands")]
    assert sorted(listed) == sorted(name for name in app["journal"] if not name.startswith("-"))


def test_the_reference_shows_a_page_as_it_is_answered() -> None:
    reference = (DOCS / "protocol.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*)\n```", section("### Journal", reference), re.MULTILINE)
    assert msgspec.json.decode(shown) == PAGE_EXAMPLE
