"""The wheel alone, in an environment that has only what the wheel requires.

The gateway runs from the repository. The programs in the clean environment never see the repository.
"""

import asyncio
import re
from email import message_from_bytes
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.utils import canonicalize_name

from tests.client.harness import joining, played, shut_down, url_of
from tests.gateway.raw import Running
from tests.support.fresh_environments import (
    ROOT,
    SECONDS,
    Fresh,
    applicable,
    build_wheel,
    done,
    installed,
    needed,
    read_pins,
)

PINS: Final = ROOT / "requirements" / "dev.txt"
ABSENT: Final = ("mcp", "pyarrow", "pydantic", "pyspark", "starlette", "uvloop")
IMPORT_SECONDS: Final = 0.2

pytestmark = pytest.mark.timeout(2 * SECONDS)


class Clean(Fresh):
    """A virtual environment with the wheel and its requirements, as pinned for this repository."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "venv")
        wheel = build_wheel(folder / "dist")
        with ZipFile(wheel) as archive:
            self.files = archive.namelist()
        self.needed = needed(map(str, applicable(requirements(wheel))), installed())
        pins = read_pins(PINS)
        self.install([pins[name] for name in sorted(self.needed & pins.keys())], wheel)


def requirements(wheel: Path) -> list[str]:
    """The requirements of a wheel."""
    with ZipFile(wheel) as archive:
        (described,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(described)).get_all("Requires-Dist", [])


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return Clean(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_installs_its_requirements_and_nothing_else(clean: Clean) -> None:
    script = "from importlib.metadata import distributions; print(*(each.name for each in distributions()))"
    assert {canonicalize_name(name) for name in clean.says(script).split()} == {"mew-protocol", *clean.needed}
    done(clean.pip("check"))
    script = "from importlib.util import find_spec; print([name for name in {!r} if find_spec(name)])"
    assert clean.says(script.format((*ABSENT, "msgspec"))) == "['msgspec']"


def test_the_wheel_contains_the_package_and_no_tool_of_the_repository(clean: Clean) -> None:
    folders = {name.partition("/")[0] for name in clean.files}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"mew"}
    assert "mew/journal/reader.py" in clean.files
    assert [name for name in clean.files if "generator" in name] == []


@played
async def test_the_example_agent_runs_with_the_wheel_only(clean: Clean, gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        agent = await asyncio.create_subprocess_exec(
            clean.python,
            *("-I", ROOT / "examples" / "agent.py"),
            cwd=clean.folder,
            env={"MEW_GATEWAY": url_of(gateway), "MEW_TOKEN": gateway.token("bob")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await alice.wait_until(lambda view: "bob" in view.participants)
            chats = alice.envelopes("chat", sender="bob", to="alice")
            await alice.chat("hello", to="bob")
            assert (await anext(chats)).payload["text"] == "You said: hello"
            await shut_down(gateway, alice, "bob")
            assert (await agent.communicate(), agent.returncode) == ((b"", b""), 0)
        finally:
            if agent.returncode is None:
                agent.kill()
                await agent.communicate()


def test_the_sdk_runs_with_its_own_libraries_only(clean: Clean) -> None:
    code = "import sys, mew; mew.connect; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = clean.says(code)
    assert {"mew", "picows"} <= set(re.findall(r"\w+", loaded))
    assert clean.folder.as_posix() in clean.says("import mew; print(mew.__file__)")
    assert not {"cyclopts", "rich", *ABSENT} & set(re.findall(r"\w+", loaded))


def test_importing_mew_is_fast_and_imports_nothing(clean: Clean) -> None:
    news = "import sys; before = set(sys.modules); import mew; print(sorted(set(sys.modules) - before))"
    assert clean.says(news) == "['mew']"
    timed = "from time import perf_counter as now; began = now(); import {}; print(now() - began)"
    seconds = {name: min(float(clean.says(timed.format(name))) for _ in range(5)) for name in ("mew", "mew.client")}
    print({name: f"{duration * 1000:.1f} ms" for name, duration in seconds.items()})
    assert seconds["mew"] < IMPORT_SECONDS
