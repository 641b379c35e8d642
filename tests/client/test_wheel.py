"""The wheel alone, in an environment that has nothing but what the wheel says it needs.

The gateway is the repository's own; what stands in the clean environment never sees the tree.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.client.stage import joining, played, shut_down, url_of
from tests.gateway.raw import Running
from tests.needs import requires

ROOT: Final = Path(__file__).resolve().parents[2]
PINS: Final = ROOT / "requirements" / "dev.txt"
ABSENT: Final = ("mcp", "pyarrow", "pydantic", "pyspark", "starlette", "uvloop")
IMPORT_SECONDS: Final = 0.2


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False, timeout=50)


def done(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def requirements(wheel: Path) -> list[str]:
    """What a wheel says it needs."""
    with ZipFile(wheel) as archive:
        (described,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(described)).get_all("Requires-Dist", [])


def needed(first: Sequence[str]) -> set[str]:
    """What these requirements come to, without extras, by what is installed here."""
    found: set[str] = set()
    unread = [*first]
    while unread:
        requirement = Requirement(unread.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            unread += distribution(name).requires or []
    return found


def pins(names: set[str]) -> Iterator[str]:
    """The lines of the pins, with their hashes, of these and no others."""
    for entry in re.split(r"\n(?=[a-z0-9])", PINS.read_text(encoding="utf-8")):
        name = re.match(r"[a-z0-9][a-z0-9._-]*", entry)
        if name is not None and canonicalize_name(name.group()) in names:
            yield entry


class Clean:
    """A virtual environment with the wheel in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        wheel = self._built()
        done(run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder))
        self.needed = needed(requirements(wheel))
        self._install(wheel)

    def _built(self) -> Path:
        done(run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", self.folder / "dist"], ROOT))
        (wheel,) = (self.folder / "dist").glob("*.whl")
        return wheel

    def _install(self, wheel: Path) -> None:
        """By the pins, hashes checked; pip refuses what the wheel needs and nobody has pinned."""
        itself = f"mew-protocol @ {wheel.as_uri()} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}"
        listed = self.folder / "requirements.txt"
        listed.write_text("\n".join([itself, *pins(self.needed), ""]), encoding="utf-8")
        ran = self.pip("install", "--require-hashes", "--only-binary", ":all:", "--no-compile", "-r", listed)
        requires("No matching distribution" not in ran.stderr, "the package registry cannot be reached")
        done(ran)

    def pip(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        ours = ("-m", "pip", "--python", self.python, "--disable-pip-version-check")
        return run([sys.executable, *ours, *arguments], self.folder)

    def says(self, code: str) -> str:
        """What a program prints; nothing of ours is on its way."""
        return done(run([self.python, "-I", "-c", code], self.folder)).strip()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return Clean(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_brings_what_it_needs_and_nothing_else(clean: Clean) -> None:
    listed = "from importlib.metadata import distributions; print(*(each.name for each in distributions()))"
    assert {canonicalize_name(each) for each in clean.says(listed).split()} == {"mew-protocol", *clean.needed}
    done(clean.pip("check"))
    found = "from importlib.util import find_spec; print([name for name in {!r} if find_spec(name)])"
    assert clean.says(found.format((*ABSENT, "msgspec"))) == "['msgspec']"


@played
async def test_the_agent_runs_where_only_the_wheel_is(clean: Clean, gateway: Running) -> None:
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
            await alice.until(lambda view: "bob" in view.participants)
            heard = alice.envelopes("chat", sender="bob", to="alice")
            await alice.chat("hello", to="bob")
            assert (await anext(heard)).payload["text"] == "You said: hello"
            await shut_down(gateway, alice, "bob")
            assert (await agent.communicate(), agent.returncode) == ((b"", b""), 0)
        finally:
            if agent.returncode is None:
                agent.kill()
                await agent.communicate()


def test_the_sdk_runs_on_its_own_libraries(clean: Clean) -> None:
    code = "import sys, mew; mew.connect; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = clean.says(code)
    assert {"mew", "picows"} <= set(re.findall(r"\w+", loaded))
    assert clean.folder.as_posix() in clean.says("import mew; print(mew.__file__)")
    assert not {"cyclopts", "rich", *ABSENT} & set(re.findall(r"\w+", loaded))


def test_importing_mew_is_instant_and_imports_nothing(clean: Clean) -> None:
    news = "import sys; before = set(sys.modules); import mew; print(sorted(set(sys.modules) - before))"
    assert clean.says(news) == "['mew']"
    timed = "from time import perf_counter as now; began = now(); import {}; print(now() - began)"
    seconds = {name: min(float(clean.says(timed.format(name))) for _ in range(5)) for name in ("mew", "mew.client")}
    print({name: f"{each * 1000:.1f} ms" for name, each in seconds.items()})
    assert seconds["mew"] < IMPORT_SECONDS
