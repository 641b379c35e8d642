"""The page about the pipeline names every table, column and command there is, and all it shows runs as it stands."""

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from mew.cli import app
from mew.journal.folder import Folder
from mew.journal.log import LogWriter
from mew.journal.sealing import seal
from mew.pipeline import open_lake
from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.report.gathering import LINES, ROWS
from mew.pipeline.report.scope import POINTS
from mew.pipeline.schemas import COMMENT, TABLES
from mew.protocol import Checkpoint
from mew.testing import MemorySpace

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STATEMENTS: Final = [text for language, text in BLOCKS if language == "sql"]
PROGRAMS: Final = [text for language, text in BLOCKS if language == "python"]
COMMANDS: Final = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
FIRST: Final = "mew pipeline run"
(SPACE,) = re.findall(
    r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
START: Final = int(datetime(2026, 11, 15, 14, tzinfo=UTC).timestamp()) * 1_000_000
MOVE: Final = {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}}
SECONDS: Final = 55


def section(title: str) -> str:
    """The text under a heading, up to the next."""
    _, found, rest = PAGE.partition(f"\n{title}\n")
    assert found, f"there is no section {title!r}"
    return re.split(r"\n##+ ", rest)[0]


def rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell, without backticks."""
    found = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split(" | ")] for row in found[2:]]


# What it says


@pytest.mark.parametrize("table", [*TABLES.values(), PROGRESS], ids=lambda table: table.name)
def test_every_column_of_a_table_stands_there_with_its_type_and_meaning(table: Any) -> None:
    expected = []
    for field in table.schema:
        of = str(field.type).replace("element: ", "").replace("timestamp[us, tz=UTC]", "timestamp")
        expected.append([field.name, f"{of}{'?' if field.nullable else ''}", field.metadata[COMMENT].decode()])
    assert rows(f"### `{table.name}`") == expected
    assert table.comment in section(f"### `{table.name}`")


def test_every_table_stands_there_and_no_other() -> None:
    assert re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE) == [*TABLES, PROGRESS.name]


def test_every_command_stands_there_and_no_other() -> None:
    listed = [command.removeprefix("mew pipeline ") for command, _ in rows("## Commands")]
    assert sorted(listed) == sorted(name for name in app["pipeline"] if not name.startswith("-"))


def test_what_is_cut_in_a_report_is_as_it_says() -> None:
    told = section("## Report").replace("\n", " ")
    for words in (f"at most {POINTS} points", f"the {LINES} busiest streams", f"after {ROWS} rows"):
        assert words in told


def test_every_section_is_in_its_contents() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    contents = PAGE.partition("Contents: ")[2].partition("\n\n")[0].replace("\n", " ")
    assert re.findall(r"\[(.+?)\]", contents) == titles
    assert re.findall(r"\(#(.+?)\)", contents) == [title.lower().replace(" ", "-") for title in titles]


# What it shows


def happened() -> MemorySpace:
    """A few minutes in a space: something of everything that the page asks for."""
    lab = MemorySpace(now=START, participants={"alice": [{"kind": "*"}], "bob": [{"kind": "*"}], "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    formats = [{"id": "move", "mime_type": "application/json", "schema": MOVE}]
    alice.send(kind="stream/announce", payload={"intent": "movement", "desired_id": "moves", "formats": formats})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    for sequence in (1, 2, 5):
        payload = {"stream_id": "moves", "format_id": "move", "sequence": sequence, "content": {"x": sequence / 2}}
        alice.send(kind="stream/data", payload=payload)
    alice.frame("moves", '{"x": "far"}')
    lab.advance(60)
    lab.join("carol").send(kind="stream/request")  # which she may not
    lab.lose("carol", "moves", 2, 3)
    bob.send(id="ask", kind="mcp/request", to=["alice"], payload={"method": "tools/list"})
    lab.advance(1)
    alice.send(kind="mcp/response", to=["bob"], correlation_id=["ask"], payload={"result": {}})
    lab.advance(60)
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": "moves", "new_owner": "bob"})
    lab.advance(120)
    bob.frame("moves", '{"x": 4}')
    bob.send(kind="stream/close", payload={"stream_id": "moves"})
    lab.advance(60)
    lab.run(Checkpoint())
    return lab


def ran(arguments: list[str], cwd: Path) -> str:
    """What a process said that went well."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    told = subprocess.run(
        arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (told.returncode, told.stderr) == (0, ""), told.stderr
    return told.stdout


def mew(line: str, cwd: Path) -> str:
    name, *arguments = shlex.split(line)
    assert name == "mew"
    return ran([sys.executable, "-m", "mew", *arguments], cwd)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the space of the README, with what happened in it, after the page's first command."""
    path = tmp_path_factory.mktemp("lab")
    (path / "space.yaml").write_text(SPACE, encoding="utf-8")
    folder = Folder(path / ".mew" / "journal", "lab")
    folder.log.mkdir(parents=True)
    log = LogWriter(folder.log_file(0))
    log.append(happened().records)
    log.close()
    seal(folder, folder.logs()[0])
    assert COMMANDS[0] == FIRST
    assert "batch 1:" in mew(FIRST, path)
    return path


@pytest.mark.parametrize("line", COMMANDS[1:])
def test_a_command_of_the_page_says_something_and_goes_well(directory: Path, line: str) -> None:
    assert mew(line, directory) or "run" in line.split()  # a run that has nothing to do has no batch to tell of


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda text: re.findall(r"from (\w+)", text)[-1])
def test_a_statement_of_the_page_finds_something(directory: Path, statement: str) -> None:
    with open_lake(directory / ".mew" / "lake").sql(statement) as answer:
        assert list(answer)


def found(directory: Path, words: str) -> list[tuple[Any, ...]]:
    """What the statement finds that stands below these words."""
    statement = re.search(r"```sql\n(.*?)```", PAGE.partition(words)[2], re.DOTALL)
    assert statement is not None
    with open_lake(directory / ".mew" / "lake").sql(statement[1]) as answer:
        return list(answer)


def test_the_answers_are_what_happened(directory: Path) -> None:
    assert [row[:2] for row in found(directory, "Who owned what when")] == [("moves", "alice"), ("moves", "bob")]
    writing = {row[:3] for row in found(directory, "Who could write at 14:03")}
    assert ("moves", "bob", "owner") in writing
    assert ("moves", "alice", "owner") not in writing
    assert found(directory, "What was lost on the way in") == [("moves", "alice", 1, 2)]
    assert [row[:3] for row in found(directory, "What was lost on the way out")] == [("carol", "moves", 2)]
    assert [row[2] for row in found(directory, "What the frames said")] == [0.5, 1.0, 2.5, 4.0]
    assert found(directory, "as columns of their types") == [("alice", 3, 2.5), ("bob", 1, 4.0)]
    assert [row[3] for row in found(directory, "What was not what its format says")] == ["schema"]
    assert found(directory, "What was asked")[0][:4] == ("mcp/request", "tools/list", "fulfilled", 1)


def test_the_state_at_a_time_is_what_was_then(directory: Path) -> None:
    first, second, _ = (line for line in COMMANDS if line.startswith("mew pipeline state"))
    (stream,) = json.loads(mew(first, directory))["active_streams"]
    assert (stream["stream_id"], stream["owner"]) == ("moves", "bob")
    assert json.loads(mew(second, directory))["you"]["id"] == "alice"


SHOWN: Final = (["1 streams", "alice 2026-11-15 14:00:00+00:00"], ["|   bob|     1|", "0 streams are open"])


@pytest.mark.parametrize(
    ("program", "shown"), list(zip(PROGRAMS, SHOWN, strict=True)), ids=["without Spark", "with it"]
)
def test_a_program_of_the_page_runs_and_shows_what_there_is(directory: Path, program: str, shown: list[str]) -> None:
    said = ran([sys.executable, "-c", program], directory)
    for words in shown:
        assert words in said
