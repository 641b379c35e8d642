"""How a block of each language is checked: run, parsed, compared, or skipped for a reason.

`Page` starts the processes.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mew.config.loader import SECTIONS, load_config
from mew.errors import MewError
from mew.protocol.envelope import parse
from tests.docs.blocks import histories
from tests.docs.blocks.reading import Block
from tests.docs.blocks.running import BlockFailed, Page
from tests.support.host_requirements import requires

NEEDED: Final = ("curl", "jq")
"""Programs that a page uses and a machine may lack."""
PRINTING: Final = frozenset({"bash", "python", "sql"})
ANYTHING: Final = "…"
QUERY: Final = """import sys
from mew.pipeline import open_lake
from mew.pipeline.lookup import write
found = list(open_lake(".mew/lake").sql({0!r}))
with open_lake(".mew/lake").sql({0!r}) as answer:
    write(answer, sys.stdout, form="table")"""
"""The work of `mew pipeline query`, without a process for each statement."""
_COMMAND: Final = re.compile(r"^(?:\$ |(?:mew|make|python|pip|curl|npm|docker|kubectl) [\w-])", re.MULTILINE)


def run_block(page: Page, block: Block, before: Block | None = None) -> None:
    """Check a block by its language and its comments. `BlockFailed` says what is wrong."""
    if wrong := block.wrong():
        raise BlockFailed(wrong)
    if not block.language:
        raise BlockFailed(f"the block has no language: write ```bash, ```text or another of {_named(LANGUAGES)}")
    if "no-run" in block.directives:
        return
    if block.language not in LANGUAGES:
        raise BlockFailed(
            f"cannot run {block.language!r}: use one of {_named(LANGUAGES)}, "
            "or say why not with `<!-- no-run: reason -->`"
        )
    if "set-up" in block.directives:
        histories.prepare(block.directives["set-up"], page.folder)
    if "output" in block.directives:
        _compare(page, block, before)
    elif "file" in block.directives:
        _write(page, block)
    else:
        page.printed = None
        LANGUAGES[block.language](page, block)


def _named(present: Mapping[str, object]) -> str:
    return ", ".join(present)


def _compare(page: Page, block: Block, before: Block | None) -> None:
    if block.language not in ("text", "json"):
        raise BlockFailed("output is a block of `text` or `json`")
    if before is None or before.language not in PRINTING or page.printed is None:
        raise BlockFailed("output comes right after the block that printed it, which is of bash, python or sql")
    if not fits(page.with_free_ports(block.source), page.printed):
        raise BlockFailed(f"the block of line {before.line} printed something else:\n{page.printed}")


def fits(shown: str, printed: str) -> bool:
    """Whether the shown text equals the output, except spaces at line ends; `…` stands for any text."""
    pieces = _trimmed(shown).split(ANYTHING)
    return re.fullmatch(".*?".join(map(re.escape, pieces)), _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _write(page: Page, block: Block) -> None:
    path = page.folder / block.directives["file"]
    if not path.resolve().is_relative_to(page.folder.resolve()):
        raise BlockFailed(f"{block.directives['file']!r} is not in the folder of the page")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.with_free_ports(block.source), encoding="utf-8")
    if block.language in DATA:
        LANGUAGES[block.language](page, block)
    elif block.language == "python":
        compile(block.source, path.name, "exec")


def _bash(page: Page, block: Block) -> None:
    if re.search(r"^\$ ", block.source, re.MULTILINE):
        raise BlockFailed("a bash block has no prompts: write the commands alone, and what they print as `text`")
    for program in NEEDED:
        if re.search(rf"\b{program}\b", block.source):
            requires(shutil.which(program), f"{program} is not installed")
    script = page.with_free_ports(block.source)
    if "background" in block.directives:
        page.start(script, until=page.with_free_ports(block.directives["background"]))
    else:
        page.run(script, expected=int(block.directives.get("fails", "0")))


def _python(page: Page, block: Block) -> None:
    page.python(page.with_free_ports(block.source), block.line)


def _sql(page: Page, block: Block) -> None:
    """Run a statement on the files it names, else on the page's lake. It must find rows."""
    statement = block.source.strip().removesuffix(";")
    if "read_parquet(" in statement:
        code = f"import duckdb\nanswer = duckdb.connect().sql({statement!r})\nfound = len(answer)\nprint(answer)"
    else:
        code = QUERY.format(statement)
    page.python(f"{code}\nassert found, 'the statement finds nothing'", block.line)


def _text(_: Page, block: Block) -> None:
    if command := _COMMAND.search(block.source):
        raise BlockFailed(f"{command.group()!r} is a command, and commands stand in a block of bash")


def _yaml(page: Page, block: Block) -> None:
    try:
        values = list(YAML(typ="safe").load_all(block.source))
    except YAMLError as error:
        raise BlockFailed(f"no YAML: {error}") from error
    if len(values) == 1 and isinstance(values[0], dict) and ("space" in values[0] or values[0].keys() <= SECTIONS):
        text = block.source if "space" in values[0] else f"space: {{id: lab}}\n{block.source}"
        _read_configuration(page.folder.parent / "space.yaml", page.with_free_ports(text))


def _read_configuration(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    try:
        warnings = load_config([file], environ={}).warnings
    except MewError as error:
        raise BlockFailed(f"a gateway would refuse this: {error}") from error
    finally:
        file.unlink()
    if warnings:
        raise BlockFailed(f"a gateway would warn of this: {'; '.join(warnings)}")


def _json(_: Page, block: Block) -> None:
    try:
        value: Any = json.loads(block.source)
    except ValueError as error:
        raise BlockFailed(f"no JSON: {error}") from error
    if isinstance(value, dict) and "protocol" in value:
        try:
            parse(block.source.encode())
        except MewError as error:
            raise BlockFailed(f"no envelope: {error}") from error


def _toml(_: Page, block: Block) -> None:
    try:
        tomllib.loads(block.source)
    except tomllib.TOMLDecodeError as error:
        raise BlockFailed(f"no TOML: {error}") from error


LANGUAGES: Final[dict[str, Callable[[Page, Block], None]]] = {
    "bash": _bash,
    "python": _python,
    "sql": _sql,
    "yaml": _yaml,
    "json": _json,
    "toml": _toml,
    "text": _text,
}
DATA: Final = frozenset({"yaml", "json", "toml"})
