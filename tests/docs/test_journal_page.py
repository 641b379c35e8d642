"""The page about the journal says what the files are, and its examples run as they stand."""

import io
import re
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path
from struct import calcsize

import duckdb
import msgspec
import pytest

from mew.cli import app
from mew.gateway.journal_config import KEYS
from mew.gateway.openapi_examples import PAGE as PAGE_EXAMPLE
from mew.journal import blocks, drafts, segments, writer
from mew.journal.blocks import EVENTS, HEAD_BYTES, RUN
from mew.journal.compaction import FILE_BYTES
from mew.journal.folder import Folder
from mew.journal.kafka.messages import Label
from mew.journal.log import LogWriter
from mew.journal.retention import readers
from mew.journal.sealing import seal
from mew.journal.segments import Footer
from mew.journal.settings import JournalSettings
from mew.journal.tables import SCHEMA, SCHEMA_VERSION
from mew.protocol import Checkpoint
from mew.testing import MemorySpace

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "journal.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(sql|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SIZES = {"bytes": "4s", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q", "": "x"}


def section(title: str, page: str = PAGE) -> str:
    """The text under a heading, up to the next."""
    _, found, rest = page.partition(f"\n{title}\n")
    assert found, f"there is no section {title!r}"
    return re.split(r"\n##+ ", rest)[0]


def table(title: str, page: str = PAGE) -> list[list[str]]:
    """The rows of the table under a heading, cell by cell, without backticks."""
    rows = re.findall(r"^\| (.*) \|$", section(title, page), re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split("|")] for row in rows[2:]]


# What it says


def test_every_column_stands_there_with_its_type_and_whether_it_can_be_null() -> None:
    listed = [(name, kind, null.startswith("never")) for name, kind, _, null in table("## Columns")]
    assert listed == [(field.name, str(field.type), not field.nullable) for field in SCHEMA]
    assert f"Version {SCHEMA_VERSION} of the schema" in section("## Columns")


def test_every_event_stands_there_in_the_order_of_its_number() -> None:
    assert sorted(event for event, *_ in table("## What is recorded")) == sorted(EVENTS)
    _, _, listed = section("### Run").partition("Events: ")
    assert re.findall(r"`(\w+)`", listed) == list(EVENTS)


def test_every_field_of_the_footer_stands_there() -> None:
    assert [field for field, _ in table("### The footer")] == list(Footer.__struct_fields__)
    for key in (segments.FOOTER_KEY, drafts.VERSION_KEY):
        assert f"`{key.decode()}`" in section("### The footer")


@pytest.mark.parametrize(
    ("title", "layout"),
    [
        ("### Head of a block", (blocks._MARK.format + blocks._COUNTED.format).replace("<", "")),
        ("### Run", RUN.format.removeprefix("<")),
    ],
)
def test_every_byte_of_a_block_is_accounted_for(title: str, layout: str) -> None:
    at, said = 0, ""
    for start, size, kind, _ in table(title):
        assert (int(start), int(size)) == (at, calcsize(f"<{SIZES[kind]}"))
        at += int(size)
        said += SIZES[kind]
    assert said == re.sub(r"(\d+)(?!s)", "", layout)
    assert at == (HEAD_BYTES if "Head" in title else RUN.size)


def test_its_numbers_are_those_of_the_program() -> None:
    usual = JournalSettings()
    behind = writer.Behind
    for title, words in {
        "## Segments": [f"at most {drafts.GROUP_ROWS:,} rows"],
        "## What can be lost": [f"by default {usual.interval_ms}", f"frames of the last {usual.interval_ms} ms"],
        "## Starting again": [f"{behind.ENTRIES:,} records", f"{behind.BYTES >> 20} MiB", f"{behind.FILES} files"],
        "## Sealing, compaction, retention": [f"at most {FILE_BYTES // 10**6} MB"],
    }.items():
        for each in words:
            assert each in section(title).replace("\n", " ")
    assert writer.RETRY_SECONDS == 1 / 5  # five times a second


def test_every_key_of_the_configuration_has_its_default() -> None:
    usual = JournalSettings()
    listed = {key: default for key, default, _ in table("### `journal`", OPERATIONS)}
    assert listed == {
        "enabled": "true",
        "sync": f"interval:{usual.interval_ms}",
        "segment_bytes": str(usual.segment_bytes),
        "segment_seconds": str(usual.segment_seconds),
        "retention": "all",
        "on_error": usual.on_error,
        "kafka": "none",
    }
    assert listed.keys() == KEYS


def test_every_header_of_a_message_stands_there() -> None:
    assert [header for header, _ in table("## Shipping to Kafka")] == list(Label.__struct_fields__)


def test_every_command_stands_there_and_no_other() -> None:
    listed = [command.removeprefix("mew journal ") for command, _ in table("## Commands")]
    assert sorted(listed) == sorted(name for name in app["journal"] if not name.startswith("-"))


def test_the_reference_shows_a_page_as_it_is_answered() -> None:
    reference = (DOCS / "protocol.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*)\n```", section("### Journal", reference), re.MULTILINE)
    assert msgspec.json.decode(shown) == PAGE_EXAMPLE


# Its examples


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a space called lab has a journal of a few records, sealed and not."""
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for text in ("hello", "how are you?"):
        alice.send(kind="chat", payload={"text": text})
    alice.send(kind="stream/request")
    for _ in range(3):
        alice.frame("stream-1", "x" * 10)
        bob.frame("stream-1", "not mine")
    lab.run(Checkpoint())
    path = tmp_path_factory.mktemp("lab")
    folder = Folder(path / ".mew" / "journal", "lab")
    folder.log.mkdir(parents=True)
    half = len(lab.records) - 2
    for part in (lab.records[:half], lab.records[half:]):
        log = LogWriter(folder.log_file(part[0].position))
        log.append(part)
        log.close()
    seal(folder, folder.logs()[0])
    return path


@pytest.fixture
def here(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(directory)
    return directory


def rows(statement: str) -> list[tuple[object, ...]]:
    with closing(duckdb.connect()) as connection:
        return connection.sql(statement.rstrip().removesuffix(";")).fetchall()


def examples(language: str) -> Iterator[str]:
    return (text for found, text in EXAMPLES if found == language)


@pytest.mark.usefixtures("here")
def test_the_statements_for_duckdb_find_what_was_said() -> None:
    counted, said = (rows(statement) for statement in examples("sql"))
    assert ("alice", "chat", 2) in counted
    assert [text for _, _, text in said] == ["hello", "how are you?"]


SHOWN = {"polars": "stream-1", "pandas": "unauthorized_stream_write", "reading": "envelope alice chat", "retention": ""}


@pytest.mark.parametrize("library", SHOWN)
def test_the_code_for_a_library_runs_and_shows_what_there_is(here: Path, library: str) -> None:
    imported = re.compile(rf"^(from|import) \S*\b{library}\b", re.MULTILINE)
    (code,) = (each for each in examples("python") if imported.search(each))
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "journal.md", "exec"), {})
    assert SHOWN[library] in out.getvalue()
    if library == "retention":
        assert readers(Folder(here / ".mew" / "journal", "lab")) == {"my-pipeline": 118}


def test_every_example_is_run_by_somebody() -> None:
    # Spark's needs a session, and a JVM: tests/journal/test_engines.py reads a journal with the same two calls.
    (left,) = (code for code in examples("python") if "import" not in code)
    assert "partitionColumnTypeInference.enabled" in left
    assert "spark.read.parquet(" in left
    assert len(EXAMPLES) == len(SHOWN) + 2 + 1
