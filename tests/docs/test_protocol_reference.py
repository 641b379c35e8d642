"""The protocol reference names every kind and every error code, and none that does not exist."""

import re
from pathlib import Path

from mew.protocol import ERROR_CODES, KINDS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


def section(title: str) -> str:
    """The text under a heading of the second level."""
    _, _, rest = REFERENCE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert rest, f"docs/protocol.md has no section {title!r}"
    return rest.partition("\n## ")[0]


def first_column(title: str) -> list[str]:
    """What stands in backticks in the first column of a section's table."""
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


def test_every_kind_stands_in_the_reference_and_the_other_way_round() -> None:
    listed = first_column("Kinds")
    assert sorted(listed) == sorted(KINDS)


def test_every_error_code_stands_in_the_reference_and_the_other_way_round() -> None:
    listed = first_column("Error codes")
    assert sorted(listed) == sorted(ERROR_CODES)
