"""The page about the SDK names every public name. Its code is run by `test_blocks.py`."""

import re
from inspect import isclass
from pathlib import Path
from typing import Final, get_args

import msgspec

import mew.client
from mew.client import ControlHandler, Event, Space, errors
from mew.client.session import ConnectOptions, ConnectSettings

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
SECTIONS: Final = {
    text.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for text in PAGE.split("\n## ")[1:]
}
"""The code below each heading."""


def test_every_piece_of_code_says_what_comes_of_it() -> None:
    pieces = [block for blocks in SECTIONS.values() for block in blocks if "asyncio.run(" not in block]
    assert len(pieces) >= 10
    for block in pieces:
        assert "assert " in block or "server.run()" in block


def table(title: str) -> list[list[str]]:
    """The rows of the first table below a heading, cell by cell, without backticks."""
    _, separator, rest = PAGE.partition(f"\n## {title}\n")
    assert separator, f"docs/sdk.md has no section {title!r}"
    rows = re.findall(r"(?:^\| .* \|\n)+", rest.partition("\n## ")[0], re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("| ").split(" | ")] for row in rows]


def test_every_option_stands_there_with_its_default() -> None:
    listed = {name: default for name, default, _ in table("Connect")}
    assert listed == {name: str(value) for name, value in msgspec.structs.asdict(ConnectSettings()).items()}
    assert set(listed) == set(ConnectOptions.__annotations__)


def test_every_exception_stands_there_and_no_other() -> None:
    names = [name for name in errors.__all__ if isclass(getattr(errors, name)) and name != "MewError"]
    assert sorted(name for name, _ in table("Requests and errors")) == sorted(names)


def test_every_event_stands_there() -> None:
    assert [name for name, _ in table("Events")] == [event.__name__ for event in get_args(Event)]


def test_every_order_stands_there_with_its_hook() -> None:
    hooks = [name.removeprefix("on_") for name in vars(ControlHandler) if name.startswith("on_")]
    assert [(order, hook) for order, hook, _ in table("Control requests")] == [
        (f"space.{name}", f"on_{name}") for name in hooks
    ]
    assert all(callable(getattr(Space, name)) for name in hooks)


def test_every_public_name_stands_somewhere() -> None:
    code = "\n".join(re.findall(r"`+[^`]+`+", PAGE))
    assert [name for name in mew.client.__all__ if not re.search(rf"\b{name}\b", code)] == []


def test_every_example_of_the_repository_stands_there() -> None:
    listed = {cell.partition("]")[0].strip("[") for cell, _ in table("Examples")}
    assert listed == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_the_contents_name_every_section() -> None:
    contents = PAGE.partition("Contents: ")[2].partition("\n## ")[0]
    assert [" ".join(title.split()) for title in re.findall(r"\[([^]]+)\]", contents)] == list(SECTIONS)
