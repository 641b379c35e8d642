"""The versions that `pyproject.toml` allows, by the lowest and by the highest of them: real wheel, real environments.

`make lock` resolves both once, into `lowest.txt` and `highest.txt` beside this file: what is published later changes
neither. A package that is installed here in the same version is linked, not installed again.
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from mew.pipeline import share
from tests.client.gateway_process import gateway_process
from tests.support.fresh_environments import ROOT, SECONDS, Fresh, build_wheel, done, installed, needed, read_pins, run

LOWEST: Final = Path(__file__).with_name("lowest.txt")
HIGHEST: Final = Path(__file__).with_name("highest.txt")
DEV: Final = ROOT / "requirements" / "dev.txt"
SOURCES: Final = sorted((ROOT / "src").rglob("*.py"))
PRIVATE: Final = {
    "mcp": "mcp.shared._httpx_utils",
    "picows": "picows.picows",
    "pyspark": "SparkContext._gateway",
    "textual": "super()._on_key",
    "uvicorn": "uvicorn.protocols.http.httptools_impl",
}
"""Libraries that are used through names that they do not promise to keep, and where the sources show it."""
MODULE_EXTRAS: Final = {
    "mew": (),
    "mew._internal.logging": ("server",),
    "mew.bridge": ("bridge",),
    "mew.cli.space.gateway": ("server",),
    "mew.cli.pipeline.query": ("pipeline",),
    "mew.cli.terminal": ("terminal",),
    "mew.cli.space.token": ("server",),
    "mew.config": ("server",),
    "mew.config.served_folders": (),
    "mew.gateway": ("server",),
    "mew.inspector": ("server",),
    "mew.journal": ("server",),
    "mew.journal.kafka": ("kafka", "server"),
    "mew.journal.export_mcap": ("mcap", "server"),
    "mew.pipeline": ("pipeline",),
    "mew.pipeline.landing": ("kafka", "pipeline"),
    "mew.supervisor": ("server",),
    "mew.supervisor.state_file": (),
}
"""The extras that the modules of a package need, if no longer name in this table says otherwise."""
COMBINATIONS: Final = sorted(set(MODULE_EXTRAS.values()))

CLIENT: Final = """
import asyncio, mew

async def main():
    async with mew.connect() as space:
        cat = await space.open_stream(description="where the cat is", desired_id="cat")
        await cat.send("on the roof")

asyncio.run(main())
"""

pytestmark = pytest.mark.timeout(2 * SECONDS)


# ------------------------------------------------------------------------------------------------------- bounds


def project_requirements() -> list[Requirement]:
    """What the project requires, with every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]


def bound(requirement: Requirement, *operators: str) -> str | None:
    """The version behind one of these operators; None where the requirement has none."""
    return next((specifier.version for specifier in requirement.specifier if specifier.operator in operators), None)


def just_below(version: Version, bound: str) -> bool:
    """Whether the bound, at its own length, is the very next version: 2.3.1 is just below 2.4, and just below 3."""
    *major, last = version.release[: len(Version(bound).release)]
    return Version(bound).release == (*major, last + 1)


def is_outside(requirement: Requirement, file: Path) -> bool:
    """Whether a file pins a version that the requirement does not allow."""
    pin = read_pins(file).get(canonicalize_name(requirement.name))
    return pin is not None and not requirement.specifier.contains(pin.version)


def private_imports(source: str) -> Iterator[str]:
    """The libraries out of whose private modules, or whose private names, a source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [name for alias in node.names for name in alias.name.split(".")]
        else:
            continue
        if names[0] not in {"mew", *sys.stdlib_module_names} and any(re.match("_[^_]", name) for name in names):
            yield names[0]


@pytest.mark.parametrize("requirement", project_requirements(), ids=str)
def test_a_requirement_allows_what_was_tried(requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    lowest, highest, dev = (Version(read_pins(file)[name].version) for file in (LOWEST, HIGHEST, DEV))
    lower, upper = bound(requirement, ">=", "=="), bound(requirement, "<", "==")
    assert lower is not None and lowest == Version(lower), "run `make lock UPGRADE=1`"
    assert lowest <= dev <= highest
    assert requirement.specifier.contains(highest)
    if upper is not None:
        assert highest == Version(upper) or just_below(highest, upper), "allow what was tried, and nothing newer"
    if highest.major == 0 or name in PRIVATE:
        assert upper is not None and len(Version(upper).release) > 1, "a minor version may break it"


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.stem)
def test_what_is_pinned_elsewhere_is_allowed(file: Path) -> None:
    assert [str(requirement) for requirement in project_requirements() if is_outside(requirement, file)] == []


@pytest.mark.parametrize(("library", "words"), PRIVATE.items())
def test_a_library_in_the_table_is_used_through_private_names(library: str, words: str) -> None:
    sources = [source for source in (path.read_text(encoding="utf-8") for path in SOURCES) if words in source]
    assert any(re.search(rf"^\s*(from|import) {library}\b", source, re.MULTILINE) for source in sources)


def test_what_is_imported_by_a_private_name_is_in_the_table() -> None:
    libraries = {library for path in SOURCES for library in private_imports(path.read_text(encoding="utf-8"))}
    assert libraries <= PRIVATE.keys()


@pytest.mark.parametrize(
    ("version", "upper", "expected"), [("0.60.3", "0.61", True), ("2.3.3", "3", True), ("0.60.3", "0.62", False)]
)
def test_the_next_version_is_not_mistaken_for_a_later_one(version: str, upper: str, expected: bool) -> None:
    assert just_below(Version(version), upper) is expected


# ------------------------------------------------------------------------------------------------ environments


class Level:
    """All that one file pins, in one environment; those of single extras show its packages."""

    def __init__(self, folder: Path, file: Path, wheel: Path) -> None:
        self._folder = folder
        self.complete = Fresh(folder / "complete")
        present, pins = installed(), read_pins(file)
        linked = {name for name, pin in pins.items() if name in present and present[name].version == pin.version}
        self.complete.install((pin for name, pin in pins.items() if name not in linked), wheel)
        for name in linked:
            self.complete.link(present[name])
        self._present = installed(self.complete.packages)
        self._made: dict[str, Fresh] = {}

    def only(self, *extras: str) -> Fresh:
        """An environment with the project, these extras of it, and nothing else."""
        requirement = f"mew-protocol[{','.join(extras)}]"
        if requirement not in self._made:
            fresh = self._made[requirement] = Fresh(self._folder / "-".join(["only", *extras]))
            for name in needed([requirement], self._present):
                fresh.link(self._present[name])
        return self._made[requirement]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=[LOWEST, HIGHEST], ids=lambda file: file.stem)
def level(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Level:
    return Level(tmp_path_factory.mktemp(request.param.stem), request.param, wheel)


def modules(wheel: Path, extras: Iterable[str]) -> list[str]:
    """The modules of the wheel that these extras, all of them, are made for."""
    names = []
    with ZipFile(wheel) as archive:
        for path in archive.namelist():
            if path.endswith(".py") and not path.startswith("mew/templates/") and "__main__" not in path:
                module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                package = max((prefix for prefix in MODULE_EXTRAS if f"{module}.".startswith(f"{prefix}.")), key=len)
                if MODULE_EXTRAS[package] == extras:
                    names.append(module)
    return names


def test_the_pins_fit_each_other(level: Level) -> None:
    done(level.complete.pip("check"))


@pytest.mark.parametrize("extras", COMBINATIONS, ids=lambda extras: "+".join(extras) or "none")
def test_every_module_can_be_imported_with_its_extras_alone(level: Level, wheel: Path, extras: tuple[str, ...]) -> None:
    names = modules(wheel, extras)
    assert names
    fresh = level.only(*extras)
    fresh.says(f"from importlib import import_module\nfor name in {names!r}: import_module(name)")


# ----------------------------------------------------------------------------------------------------- in use


def show_jars(fresh: Fresh) -> None:
    """Show an environment what Spark needs beside its package: it was fetched at set-up, and is no pin."""
    share_folder = fresh.folder / "share" / "mew"
    share_folder.mkdir(parents=True)
    for folder in share.places()[0].glob("*"):
        (share_folder / folder.name).symlink_to(folder)


@pytest.mark.parametrize("level", [LOWEST], ids=["lowest"], indirect=True)
def test_a_space_is_served_recorded_exported_and_asked_on_the_lowest_versions(level: Level, tmp_path: Path) -> None:
    client, server, pipeline = level.only(), level.only("mcap", "server"), level.only("pipeline", "server")
    show_jars(pipeline)
    with gateway_process(tmp_path, "{enabled: true}", server.python) as gateway:
        environ = {"MEW_GATEWAY": gateway.url, "MEW_TOKEN": "token-of-alice"}
        done(run([client.python, "-I", "-c", CLIENT], tmp_path, environ))
        gateway.stop()
    export = ("-I", "-m", "mew", "journal", "export", "--to", "mcap", "-o", "lab.mcap")
    assert run([server.python, *export], tmp_path).stderr.endswith(" records to lab.mcap\n")
    done(run([pipeline.python, "-I", "-m", "mew", "pipeline", "run"], tmp_path))
    query = ("-I", "-m", "mew", "pipeline", "query", "select owner, frames from streams", "--form", "json")
    assert json.loads(done(run([pipeline.python, *query], tmp_path))) == {"owner": "alice", "frames": 1}
