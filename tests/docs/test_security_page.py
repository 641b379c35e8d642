"""The security page names every limit, with the default that the code has."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mew.config.models import Queues, Timeouts, UnadmittedLimits
from mew.gateway import http_protocol
from mew.protocol import dispatch, formats, patterns, proposals, raw_json, schema_cost, work
from mew.protocol.handlers import proposals as proposing
from mew.protocol.settings import Limits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
DEFAULTS = {
    **msgspec.structs.asdict(Limits()),
    **msgspec.structs.asdict(UnadmittedLimits()),
    **{f"gateway.timeouts.{key}": value for key, value in msgspec.structs.asdict(Timeouts()).items()},
    **{f"{key.removesuffix('_bytes')}_queue_bytes": value for key, value in msgspec.structs.asdict(Queues()).items()},
}
FIXED = {
    "nesting of JSON": (raw_json.MAX_NESTING,),
    "arrays, objects and members in one message; strings; commas": (
        raw_json.MAX_PARTS,
        raw_json.MAX_STRINGS,
        raw_json.MAX_ELEMENTS,
    ),
    "characters on which patterns are tried for one message": (work.MAX_SCANNED, patterns.MAX_SCANNED_TEXT),
    "JSON Schema of a format": (formats.SCHEMA_BYTES, schema_cost.COMPILED_BYTES),
    "patterns in the formats of its streams": (schema_cost.PER_SCHEMA,),
    "a proposal": (
        proposals.PROPOSAL_BYTES,
        proposing.MIN_LIFETIME_SECONDS,
        proposing.MAX_LIFETIME_SECONDS,
        proposing.DEFAULT_LIFETIME_SECONDS,
    ),
    "open proposals of one participant": (proposals.OPEN_PER_PROPOSER, proposals.BYTES_PER_PROPOSER),
    "open proposals": (proposals.OPEN_PER_SPACE, proposals.BYTES_PER_SPACE),
    "closed proposals that are remembered": (proposals.REMEMBERED_PER_PROPOSER, proposals.REMEMBERED_PER_SPACE),
    "details in the records of refused messages": (
        dispatch.HEAD_BYTES,
        dispatch.DETAILED_BURST,
        dispatch.DETAILED_PER_SECOND,
    ),
}


def rows() -> Iterator[list[str]]:
    section = re.split(r"\n## ", PAGE.partition("\n## Limits\n")[2])[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and "---" not in line:
            yield cells


def said(value: float | None) -> set[str]:
    """How the page may write a value."""
    if value is None:
        return {"no limit"}
    written = {f"{value:,.0f}"}
    for unit, size in (("KiB", 2**10), ("MiB", 2**20)):
        if value >= size and value % size == 0:
            written.add(f"{value / size:,.0f} {unit}")
    return written


def stands_in(value: float | None, text: str) -> bool:
    return any(re.search(rf"(?<![\d,]){form}(?![\d,]\d)", text) for form in said(value))


def test_every_limit_of_the_configuration_is_in_the_table() -> None:
    keys = {key for cells in rows() for key in re.findall("`([^`]+)`", cells[1])}
    assert DEFAULTS.keys() - keys == set()


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_limit_has_the_default_of_the_code(key: str) -> None:
    (cell,) = (f"{cells[2]} {cells[3]}" for cells in rows() if f"`{key}`" in cells[1])
    value = DEFAULTS[key]
    assert stands_in(value, cell), cell


@pytest.mark.parametrize("what", FIXED)
def test_what_cannot_be_configured_has_the_value_of_the_code(what: str) -> None:
    (cell,) = (cells[2] for cells in rows() if cells[0] == what)
    for value in FIXED[what]:
        assert stands_in(value, cell), (value, cell)


def test_a_peer_that_does_not_read_has_less_time_while_others_wait() -> None:
    (cell,) = (cells[2] for cells in rows() if cells[0] == "a peer that does not read an HTTP response")
    hurried = Timeouts().write_seconds * http_protocol.HURRIED_UNSENT_CHECKS / http_protocol.UNSENT_CHECKS
    assert f"{http_protocol.UNSENT_PROGRESS // 1024} KiB in {Timeouts().write_seconds:g} s" in cell
    assert f"in {hurried:g} s while others wait" in cell


def test_no_paragraph_stands_twice() -> None:
    paragraphs = re.split(r"\n(?=\n|- )", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    starts = [" ".join(paragraph.split())[:80] for paragraph in paragraphs if len(paragraph.split()) > 12]
    assert [start for start in starts if starts.count(start) > 1] == []


def test_the_contents_name_every_section() -> None:
    listed = re.findall(r"\[([^\]]+)\]\(#", PAGE.partition("Contents:")[2].partition("\n\n")[0])
    assert [title.replace("\n", " ") for title in listed] == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
