"""The exit code of each error of the package."""

import importlib
import subprocess
import sys

import pytest

from mew.cli.common.errors import EXIT_CODES, CommandFailed, UsageError, exit_code_of
from mew.client.errors import ConnectionLost, JoinRefused, RequestTimeout
from mew.config import ConfigError
from mew.errors import MewError
from mew.journal.block_format import CorruptData
from mew.journal.recovery import JournalDamaged
from mew.pipeline.lake import LakeBusy, LakeDamaged
from mew.protocol.errors import CapabilityViolation, NotFound
from tests.docs.sources import PACKAGE


@pytest.mark.parametrize("name", EXIT_CODES)
def test_every_entry_of_the_table_is_an_error_of_the_package(name: str) -> None:
    module, _, class_name = name.rpartition(".")
    error_class = getattr(importlib.import_module(module), class_name)
    assert issubclass(error_class, MewError)
    assert error_class.__module__ == module


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MewError("any other error"), 1),
        (CorruptData("a block is damaged"), 1),
        (JournalDamaged("a log is damaged"), 1),
        (LakeDamaged("a table is missing"), 1),
        (RequestTimeout("no answer"), 1),
        (CommandFailed("it failed"), 1),
        (CommandFailed("the gateway ended", exit_code=2), 2),
        (UsageError("no such directory"), 2),
        (ConfigError("unknown key"), 2),
        (LakeBusy("another process writes"), 2),
        (ConnectionLost("closed"), 3),
        (JoinRefused(4401, "unauthorized"), 4),
        (CapabilityViolation("not permitted"), 4),
        (NotFound("no such message"), 4),
    ],
)
def test_an_error_has_the_exit_code_of_its_nearest_class_in_the_table(error: MewError, code: int) -> None:
    assert exit_code_of(error) == code


def test_no_error_outside_the_command_has_an_exit_code() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert len(modules) > 100
    assert [str(path) for path in modules if "exit_code" in path.read_text(encoding="utf-8")] == []


def test_the_table_imports_none_of_the_modules_that_it_names() -> None:
    script = "import sys, mew.cli.common.errors; print(*{'msgspec', 'asyncio', 'mew.config'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "\n"
