"""The page about the SDK names what there is, and its code runs as it stands, against a real gateway."""

import ast
import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from inspect import isclass
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

import mew.client
from mew.bridge import StdioServer
from mew.bridge.__main__ import parser, read_settings
from mew.client import Controls, Event, Space, errors
from mew.client.connecting import Options, Settings
from tests.client.stage import played, url_of
from tests.gateway.raw import Running, running_from

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
SECTIONS: Final = {
    text.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for text in PAGE.split("\n## ")[1:]
}
"""The code below each heading."""
(SPACE,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WRITTEN: Final = "ws://localhost:8080"
"""The address that the page has, in place of that of the test's gateway."""


def is_program(block: str) -> bool:
    return "asyncio.run(" in block


PIECES: Final = {title: [each for each in blocks if not is_program(each)] for title, blocks in SECTIONS.items()}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    with running_from(tmp_path / "space.yaml") as started:
        yield started


def token(folder: Path, participant: str) -> str:
    return (folder / ".mew" / "tokens" / f"{participant}.token").read_text(encoding="utf-8").strip()


class Expecting(ast.NodeTransformer):
    """What the page catches is raised: a `try` that goes well has failed."""

    def visit_Try(self, node: ast.Try) -> ast.Try:
        node.orelse = node.orelse or ast.parse('raise AssertionError("nothing was raised")').body
        return node


async def run(block: str, names: dict[str, Any]) -> None:
    """Run code as if it stood in a coroutine whose variables are these."""
    read = compile(block, "sdk.md", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    changed = ast.fix_missing_locations(Expecting().visit(read))
    compiled = compile(changed, "sdk.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(compiled, names)
    if waiting is not None:
        await waiting


@pytest.mark.parametrize("title", [title for title, blocks in PIECES.items() if blocks])
@played
async def test_the_code_of_a_section_runs(gateway: Running, tmp_path: Path, title: str) -> None:
    url, mine = url_of(gateway), token(tmp_path, "alice")
    names: dict[str, Any] = {"asyncio": asyncio, "mew": mew, "token": token(tmp_path, "carol")}
    for earlier in SECTIONS:  # what a section has imported, those after it need not import again
        if earlier == title:
            break
        exec(imports(earlier), names)
    async with (
        mew.connect(url, space="lab", token=mine) as names["space"],
        mew.connect(url, space="lab", token=token(tmp_path, "bob")) as names["bob"],
    ):
        await names["space"].until(lambda view: "bob" in view.participants)
        for block in PIECES[title]:
            await run(block.replace(WRITTEN, url), names)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


def imports(title: str) -> str:
    """The import statements of a section."""
    found = [node for block in PIECES[title] for node in ast.parse(wrapped(block)).body[0].body]  # type: ignore[attr-defined]
    return "\n".join(ast.unparse(node) for node in found if isinstance(node, ast.Import | ast.ImportFrom))


def wrapped(block: str) -> str:
    return "async def piece():\n" + "".join(f"    {line}\n" for line in block.splitlines())


PROGRAMS: Final = [block for blocks in SECTIONS.values() for block in blocks if is_program(block)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: re.findall(r"async def (\w+)", block)[0])
def test_a_program_of_the_page_runs(gateway: Running, tmp_path: Path, program: str) -> None:
    code = program.replace(WRITTEN, url_of(gateway))
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_every_piece_of_code_says_what_comes_of_it() -> None:
    assert len(PROGRAMS) >= 1
    assert sum(map(len, PIECES.values())) >= 10
    for block in (block for blocks in PIECES.values() for block in blocks):
        assert "assert " in block


def table(title: str) -> list[list[str]]:
    """The rows of the first table below a heading, cell by cell, without backticks."""
    _, found, rest = PAGE.partition(f"\n## {title}\n")
    assert found, f"docs/sdk.md has no section {title!r}"
    rows = re.findall(r"(?:^\| .* \|\n)+", rest.partition("\n## ")[0], re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("| ").split(" | ")] for row in rows]


def test_every_option_stands_there_with_its_default() -> None:
    listed = {name: default for name, default, _ in table("Connect")}
    assert listed == {name: str(value) for name, value in msgspec.structs.asdict(Settings()).items()}
    assert set(listed) == set(Options.__annotations__)


def test_every_exception_stands_there_and_no_other() -> None:
    known = [name for name in errors.__all__ if isclass(getattr(errors, name)) and name != "MewError"]
    assert sorted(name for name, _ in table("Requests and errors")) == sorted(known)


def test_every_event_stands_there() -> None:
    assert [name for name, _ in table("Events")] == [each.__name__ for each in get_args(Event)]


def test_every_order_stands_there_with_its_hook() -> None:
    hooks = [name.removeprefix("on_") for name in vars(Controls) if name.startswith("on_")]
    assert [(order, hook) for order, hook, _ in table("Being told what to do")] == [
        (f"space.{name}", f"on_{name}") for name in hooks
    ]
    assert all(callable(getattr(Space, name)) for name in hooks)


def test_every_option_of_the_bridge_stands_there() -> None:
    options = [action.option_strings[0] for action in parser()._actions if action.option_strings]
    assert [name for name, _ in table("The bridge")] == [name for name in options if name != "-h"]


def test_the_command_for_a_bridge_is_one() -> None:
    (line,) = re.findall(r"^MEW_TOKEN=… python -m mew\.bridge (.+)$", PAGE, re.MULTILINE)
    settings = read_settings(parser().parse_args(shlex.split(line)), {"MEW_TOKEN": "secret"})
    assert isinstance(settings.server, StdioServer)
    assert settings.server.command[0] == "npx"


def test_every_public_name_stands_somewhere() -> None:
    code = "\n".join(re.findall(r"`+[^`]+`+", PAGE))
    assert [name for name in mew.client.__all__ if not re.search(rf"\b{name}\b", code)] == []


def test_every_example_of_the_repository_stands_there() -> None:
    listed = {cell.partition("]")[0].strip("[") for cell, _ in table("Examples")}
    assert listed == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_the_contents_name_every_section() -> None:
    contents = PAGE.partition("Contents: ")[2].partition("\n## ")[0]
    assert [" ".join(each.split()) for each in re.findall(r"\[([^]]+)\]", contents)] == list(SECTIONS)
