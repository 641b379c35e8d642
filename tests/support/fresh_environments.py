"""The wheel of this project, and new environments with the wheel and pinned packages only.

The caller passes the pins; nothing is resolved here.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.host_requirements import requires

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 150
"""The time for one command. The longest is an installation without a cache over a slow network."""


def run(
    command: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = [*map(str, command)]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=SECONDS)


def done(ran: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that must succeed."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    done(run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


# ----------------------------------------------------------------------------------------------- pins and needs


@dataclass(frozen=True)
class Pin:
    """A package in one version."""

    name: str
    version: str
    entry: str
    """The lines of the file for it, with the hashes."""


def read_pins(file: Path) -> dict[str, Pin]:
    """The pins of a file that apply to this platform and Python."""
    pins: dict[str, Pin] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", file.read_text(encoding="utf-8")):
        requirement = Requirement(entry.splitlines()[0].rstrip("\\"))
        if requirement.marker is None or requirement.marker.evaluate():
            (version,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            pins[name] = Pin(name, version.version, entry)
    return pins


def installed(packages: Path | None = None) -> dict[str, Distribution]:
    """The distributions of a site-packages folder, or else of the running environment."""
    present = distributions() if packages is None else distributions(path=[str(packages)])
    return {canonicalize_name(package.name): package for package in present}


def needed(requested: Iterable[str], present: Mapping[str, Distribution]) -> set[str]:
    """All packages that these requirements need. Each must be present in a version that they allow."""
    names: set[str] = set()
    read: set[str] = set()
    unread = [*map(Requirement, requested)]
    while unread:
        requirement = unread.pop()
        if str(requirement) in read:
            continue
        read.add(str(requirement))
        name = canonicalize_name(requirement.name)
        assert name in present, f"{requirement} is not installed"
        version = present[name].version
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} does not allow {version}"
        names.add(name)
        unread += applicable(present[name].requires or (), requirement.extras)
    return names


def applicable(lines: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """The requirements that apply to this platform, with these extras."""
    requirements = []
    for requirement in map(Requirement, lines):
        marker, requirement.marker = requirement.marker, None
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            requirements.append(requirement)
    return requirements


# ------------------------------------------------------------------------------------------------- environments


class Fresh:
    """A virtual environment outside the tree, empty at first and without its own pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        done(run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent))
        (self.packages,) = folder.glob("lib/python3*/site-packages")

    def install(self, pins: Iterable[Pin], wheel: Path) -> None:
        """Install the wheel and exactly these pins, hashes checked. `pip check` finds what is not pinned and needed."""
        itself = f"mew-protocol @ {wheel.as_uri()} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}"
        listed = self.folder / "requirements.txt"
        listed.write_text("\n".join([itself, *(pin.entry for pin in pins), ""]), encoding="utf-8")
        options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile")
        ran = self.pip("install", *options, "-r", listed)
        requires("No matching distribution" not in ran.stderr, "the package registry cannot be reached")
        done(ran)

    def link(self, distribution: Distribution) -> None:
        """Show an installed distribution here as well, without a copy."""
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (self.packages / name).symlink_to(Path(str(distribution.locate_file(name))))

    def pip(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        ours = ("-m", "pip", "--python", self.python, "--disable-pip-version-check")
        return run([sys.executable, *ours, *arguments], self.folder)

    def says(self, code: str) -> str:
        """The output of a program without the tree on its path."""
        return done(run([self.python, "-I", "-c", code], self.folder)).strip()
