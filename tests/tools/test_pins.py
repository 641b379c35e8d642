"""Whatever is published later, the pins are installed as they stand: with the oldest supported pip and the newest."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.utils import canonicalize_name

from tests.support.host_requirements import requires
from tests.tools.wheels import FUTURE, empty_wheel, pin_lines, pin_of, pins_here, requirements_of, wheel_name
from tools.environments import ENVIRONMENTS, INSTALL_OPTIONS, pins

ROOT: Final = Path(__file__).resolve().parents[2]
PIN_FILES: Final = sorted((ROOT / "requirements").glob("*.txt"))
INSTALLED: Final = [file for file in PIN_FILES if not file.name.startswith("pip-")]
SECONDS: Final = 120
DOWNLOAD_SECONDS: Final = 600
"""For a dry run beside the index, which downloads every file: a slow network makes no test red."""

pytestmark = pytest.mark.timeout(2 * SECONDS)


def downloaded_pip(age: str, folder: Path) -> Path:
    """A pip in a folder. Python caches its modules there; those of a wheel would be compiled in every run."""
    pins = ROOT / "requirements" / f"pip-{age}.txt"
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", pins)
    ran = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    requires("No matching distribution" not in ran.stderr, "the package index cannot be reached")
    assert ran.returncode == 0, ran.stderr
    (wheel,) = folder.glob("pip-*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "pip"


@pytest.fixture(scope="module")
def oldest_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oldest pip that is supported."""
    return downloaded_pip("oldest", tmp_path_factory.mktemp("oldest"))


@pytest.fixture(scope="module", params=["oldest", "newest"])
def pip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oldest pip that is supported, then the newest of the pins."""
    if request.param == "oldest":
        return Path(request.getfixturevalue("oldest_pip"))
    return downloaded_pip("newest", tmp_path_factory.mktemp("newest"))


@pytest.fixture(scope="module")
def future(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels, one of a far later version for every package of the pins."""
    folder = tmp_path_factory.mktemp("future")
    for name in {name for file in PIN_FILES for name, _, _ in pin_lines(file)}:
        empty_wheel(folder, name, FUTURE)
    return folder


def resolved(pip: Path, options: Sequence[str], pins: Path, folder: Path) -> dict[str, str]:
    """What pip would install, by its own report; `CalledProcessError` if it refuses."""
    report = folder / "report.json"
    dry = ("install", "--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed", "--report", report)
    command = [sys.executable, pip, *dry, *options, "-r", pins]
    subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=DOWNLOAD_SECONDS)
    planned = [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {canonicalize_name(package["name"]): package["version"] for package in planned}


@pytest.fixture(scope="module")
def offline(future: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the index: each pin as a wheel with its real requirements, and its far later version."""
    folder = tmp_path_factory.mktemp("index")
    for wheel in future.glob("*.whl"):
        shutil.copy(wheel, folder)
    for name, version in {(name, version) for file in PIN_FILES for name, version, _ in pin_lines(file)}:
        empty_wheel(folder, name, version, requirements_of(name))
    return folder


def pins_for(index: Path, pins: Path, folder: Path) -> Path:
    """The same pins with the hashes of the wheels in a folder."""
    lines = [
        pin_of(index / wheel_name(name, version), name, version, marker) for name, version, marker in pin_lines(pins)
    ]
    file = folder / pins.name
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return file


@pytest.mark.parametrize("pins", INSTALLED, ids=lambda file: file.stem)
def test_each_file_of_pins_is_installed_as_it_stands(pip: Path, offline: Path, pins: Path, tmp_path: Path) -> None:
    options = ("--no-index", "--find-links", str(offline), *INSTALL_OPTIONS)
    assert resolved(pip, options, pins_for(offline, pins, tmp_path), tmp_path) == pins_here(pins)


@pytest.fixture(scope="module")
def every_pin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pins of all files, each once, without pyspark, whose source has half a gigabyte."""
    entries = {}
    for pin_file in INSTALLED:
        for entry in re.split(r"\n(?=[A-Za-z0-9])", pin_file.read_text(encoding="utf-8")):
            entries[entry.partition(" ")[0]] = entry
    file = tmp_path_factory.mktemp("every") / "pins.txt"
    pin_entries = [entry for pin, entry in entries.items() if not pin.startswith("pyspark==")]
    file.write_text("\n".join(pin_entries), encoding="utf-8")
    assert set(pins_here(*INSTALLED)) - set(pins_here(file)) == {"pyspark"}
    return file


@pytest.mark.timeout(2 * DOWNLOAD_SECONDS)
def test_beside_the_real_index_a_later_release_of_everything_changes_nothing(
    pip: Path, future: Path, every_pin: Path, tmp_path: Path
) -> None:
    """All pins together: each is resolved by itself, and the test above reads each file."""
    options = ("--find-links", str(future), *INSTALL_OPTIONS)
    assert resolved(pip, options, every_pin, tmp_path) == pins_here(every_pin)


def test_an_installer_that_resolves_breaks(oldest_pip: Path, offline: Path, tmp_path: Path) -> None:
    """What the tests above are worth: the options that were used before fail on the same folder."""
    pins = pins_for(offline, ROOT / "requirements" / "server.txt", tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        resolved(oldest_pip, ("--no-index", "--find-links", str(offline), "--require-hashes"), pins, tmp_path)
    assert "must have their versions pinned" in refused.value.stderr


@pytest.mark.parametrize("file", PIN_FILES, ids=lambda file: file.stem)
def test_set_up_reads_the_pins_that_hold_here(file: Path) -> None:
    assert pins.pins_here(file) == pins_here(file)


def test_set_up_passes_over_no_line_that_it_does_not_understand(tmp_path: Path) -> None:
    file = tmp_path / "pins.txt"
    file.write_text("one[more]==1.0 \\\n    --hash=sha256:0\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="this is no pin"):
        pins.pins_here(file)


def test_every_environment_is_made_of_files_of_pins_and_the_build_tools_come_first() -> None:
    pin_files = {ROOT / pins for environment in ENVIRONMENTS for pins in environment.pins}
    assert pin_files <= set(INSTALLED)
    for environment in ENVIRONMENTS:
        if any("pyspark" in pins_here(ROOT / pins) for pins in environment.pins):
            assert environment.pins[0] == "requirements/build.txt"


def our_files() -> list[Path]:
    """Every file in which a command for people or machines may stand; what tools leave behind is not ours."""
    paths: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in LEFT_BEHIND and not re.match(r"\.(?!ci$|github$)", name)]
        paths += [Path(folder, name) for name in files]
    return sorted(paths)


LEFT_BEHIND: Final = ("__pycache__", "build", "dist", "mutants", "node_modules")
INSTALLS: Final = re.compile(r"\bpip (?:install|sync)\b.*\s(?:-r|--requirement)[ =]")
CHECKS: Final = re.compile(r"^(?:RUN |sudo )*(?:\S+ -m )?\S*\bpip check$")


def rooms(file: Path) -> list[str]:
    """The parts of a file whose commands work on one environment: a block of a page, a stage of an image, or all."""
    text = re.sub(r"\\\n", " ", file.read_text(encoding="utf-8"))
    if file.suffix == ".md":
        return re.split(r"^ *```.*$", text, flags=re.MULTILINE)
    return re.split(r"^FROM ", text, flags=re.MULTILINE)


def commands(room: str) -> list[str]:
    return [part.strip() for line in room.splitlines() for part in re.split(r"&&|;|\|\|", re.sub(r" #.*", "", line))]


COMMANDED: Final = [
    file
    for file in our_files()
    if (file.suffix in (".md", ".sh", ".yaml", ".yml") or "Dockerfile" in file.name or file.parent.name == ".ci")
    and any(INSTALLS.search(command) for room in rooms(file) for command in commands(room))
]


def test_the_commands_that_install_pins_are_found() -> None:
    known_files = {ROOT / file for file in ("deploy/Dockerfile", "docs/deployment.md", "docs/supply-chain.md")}
    assert known_files <= set(COMMANDED)


@pytest.mark.parametrize("file", COMMANDED, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_command_that_installs_pins_resolves_nothing_and_a_check_follows(file: Path) -> None:
    for room in rooms(file):
        installs = [number for number, command in enumerate(commands(room)) if INSTALLS.search(command)]
        for number in installs:
            assert set(INSTALL_OPTIONS) <= set(commands(room)[number].split()), commands(room)[number]
        if installs:
            after = commands(room)[installs[-1] + 1 :]
            assert any(CHECKS.match(command) for command in after), (
                f"no `pip check` after {commands(room)[installs[-1]]}"
            )


PACKAGE_LOCKS: Final = [file.with_name("package-lock.json") for file in our_files() if file.name == "package.json"]


@pytest.mark.parametrize("lock", PACKAGE_LOCKS, ids=lambda file: str(file.parent.relative_to(ROOT)))
def test_each_javascript_package_has_its_hash_and_names_no_registry(lock: Path) -> None:
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    entries = {name: entry for name, entry in packages.items() if name}
    assert entries
    for name, entry in entries.items():
        assert re.match(r"sha512-\S{86}==$", entry.get("integrity", "")), name
        assert "resolved" not in entry, name
