"""The reference pages are what the program says of itself: every key, command, table and public name, and no other."""

import io
import re
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from mew.cli import app
from mew.client import errors
from mew.config import loader
from mew.config.loader import IGNORED_KEYS, load_config
from mew.config.models import TLS, BridgeConfig, LoggingConfig, McpServerConfig, ParticipantConfig, Timeouts
from mew.config.yaml_source import file_keys
from mew.pipeline import open_lake
from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.schemas import TABLES, Table
from mew.pipeline.settings import PipelineSettings
from mew.protocol.settings import ApprovalRule, Limits, StreamSettings
from tests.docs.blocks.histories import prepare
from tests.pipeline.jobs.lakes import run_all
from tools.reference import command_line, configuration, sdk, tables
from tools.reference.__main__ import FOLDER, PAGES, main
from tools.reference.writing import table

EVERY: Final = [*TABLES.values(), PROGRESS]


# The files


def test_the_committed_pages_are_what_would_be_written() -> None:
    assert main(["--check"]) == 0


def test_pages_that_are_changed_missing_or_left_over_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "sdk.md").unlink()
    for name in ("tables.md", "old.md"):
        (tmp_path / name).write_text("# something else\n", encoding="utf-8")
    assert main(["--check", "--folder", str(tmp_path)]) == 1
    pages = re.findall(r"(\S+\.md) is not up to date", capsys.readouterr().err)
    assert pages == [str(tmp_path / name) for name in ("sdk.md", "tables.md", "old.md")]


def test_every_page_says_that_it_is_made() -> None:
    for name in PAGES:
        assert (FOLDER / name).read_text(encoding="utf-8").startswith("<!-- Made by `python -m tools.reference`")


def test_what_markdown_would_take_for_more_than_text_is_escaped() -> None:
    assert table(("a",), [("x|y <id> * `<b> *`",)]) == "| a |\n| --- |\n| x\\|y &lt;id> \\* `<b> *` |\n"


# The configuration


KNOWN: Final = {
    "space": {"id", *loader.SPACE_KEYS, *IGNORED_KEYS["space"]},
    "participants.ID": {*file_keys(ParticipantConfig), *IGNORED_KEYS["participants"]},
    "participants.ID.mcp_server": McpServerConfig.__struct_fields__,
    "participants.ID.bridge_config": BridgeConfig.__struct_fields__,
    "defaults": {"capabilities", *IGNORED_KEYS["defaults"]},
    "approvals": file_keys(ApprovalRule),
    "gateway": {*loader.GATEWAY_KEYS, *loader.GATEWAY_KEYS_OF_SPACE, "limits"},
    "gateway.tls": TLS.__struct_fields__,
    "gateway.timeouts": Timeouts.__struct_fields__,
    "gateway.limits": {*file_keys(Limits), *loader.GATEWAY_LIMITS},
    "gateway_logging": {"enabled", *LoggingConfig.__struct_fields__},
    "streams": StreamSettings.__struct_fields__,
    "journal": loader.JOURNAL_KEYS,
    "journal.kafka": loader.KAFKA_KEYS,
    "pipeline": PipelineSettings.__struct_fields__,
}
"""The keys that are read."""


def test_every_key_that_is_read_stands_there_and_no_other() -> None:
    assert {part.path.partition(".")[0] for part in configuration.PARTS} == loader.SECTIONS
    listed = {part.path: sorted(key.name for key in part.listed()) for part in configuration.PARTS}
    assert listed == {path: sorted(keys) for path, keys in KNOWN.items()}


def test_every_key_has_a_type_and_a_meaning() -> None:
    for part in configuration.PARTS:
        for key in part.listed():
            assert key.type, f"{part.path}.{key.name}"
            assert key.meaning.endswith("."), f"{part.path}.{key.name}"


def written(part: configuration.Part) -> dict[str, Any]:
    """A section of a file with all defaults that the page gives, as a reader would copy them."""
    defaults = {key.name: re.fullmatch("`(.+)`", key.default) for key in part.listed()}
    return {name: YAML(typ="safe").load(io.StringIO(value[1])) for name, value in defaults.items() if value}


def test_every_default_is_what_holds_where_nothing_is_said(tmp_path: Path) -> None:
    file: dict[str, Any] = {"space": {"id": "lab"}, "participants": {"bob": {}}}
    nothing = tmp_path / "space.yaml"
    YAML().dump(file, nothing)
    before = load_config([nothing], environ={})
    count = 0
    for part in configuration.PARTS:
        if part.path.startswith(("pipeline", "approvals")):
            continue
        values = written(part)
        count += len(values)
        place = file
        for step in part.path.replace("ID", "bob").split(".") if values else ():
            place = place.setdefault(step, {})
        place.update(values)
    YAML().dump(file, nothing)
    after = load_config([nothing], environ={})
    assert count > 30
    assert (before.warnings, after.warnings) == ((), ())
    (space,), (same,) = before.spaces, after.spaces
    assert (after.host, after.port, after.timeouts, after.queues) == (
        before.host,
        before.port,
        before.timeouts,
        before.queues,
    )
    assert (same.settings, same.logging, same.journal) == (space.settings, space.logging, space.journal)


# The command


def test_every_command_stands_there() -> None:
    titles = re.findall(r"^##+ (mew.*)$", (FOLDER / "command-line.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == [" ".join(words) for words, _ in command_line.commands()]
    assert {name for name in app if name[0] != "-"} <= {title.split()[1] for title in titles if " " in title}


@pytest.mark.parametrize(("words", "command"), list(command_line.commands()), ids=lambda value: str(value)[:30])
def test_a_command_says_what_it_does_and_what_each_option_means(words: tuple[str, ...], command: Any) -> None:
    description, _ = command_line.describe(command)
    assert description.strip()
    if command.default_command is not None:
        for argument in command.assemble_argument_collection(parse_docstring=True):
            assert not argument.show or argument.parameter.help, f"{' '.join(words)} {argument.names[0]}"


# The tables


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a few minutes in which something of everything happened."""
    folder = tmp_path_factory.mktemp("lab")
    prepare("minutes", folder)
    run_all(folder / ".mew" / "journal", folder / ".mew" / "lake")
    return folder / ".mew" / "lake"


@pytest.mark.parametrize("of", EVERY, ids=lambda table: table.name)
def test_the_question_to_a_table_is_answered_by_it(lake: Path, of: Table) -> None:
    _, sql = tables.QUESTIONS[of.name]
    assert re.search(rf"\bfrom {of.name}\b", sql)
    with open_lake(lake).sql(sql) as answer:
        assert list(answer)


@pytest.mark.parametrize("of", EVERY, ids=lambda table: table.name)
def test_the_key_of_a_table_tells_its_rows_apart(lake: Path, of: Table) -> None:
    columns = ", ".join(f'"{name}"' for name in of.key)
    with open_lake(lake).sql(f'select count(*), count(distinct ({columns})) from "{of.name}"') as answer:
        ((rows, keys),) = list(answer)
    assert rows == keys > 0


# The library


def test_every_public_name_stands_there_once() -> None:
    shown = [name for _, names in sdk.SECTIONS.values() for name in names]
    assert len(shown) == len(set(shown))
    listed_errors = {f"mew.client.{name}" for name in errors.__all__}
    assert set(sdk.public_names()) - listed_errors <= set(shown)
