"""The wheel of this project, and fresh environments that hold it, pinned packages, and nothing else.

Must not decide which versions those are: the caller brings the pins. Nothing here is resolved.
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
"""For one command: an installation without a cache, over a slow network, is the longest."""


def run(
    command: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = [*map(str, command)]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=SECONDS)


def done(ran: subprocess.CompletedProcess[str]) -> str:
    """What a command printed that must not fail."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this project as it is now."""
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
    """Its lines in the file, with the hashes."""


def read_pins(file: Path) -> dict[str, Pin]:
    """The pins of a file that apply to this platform and Python."""
    found: dict[str, Pin] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", file.read_text(encoding="utf-8")):
        requirement = Requirement(entry.splitlines()[0].rstrip("\\"))
        if requirement.marker is None or requirement.marker.evaluate():
            (version,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            found[name] = Pin(name, version.version, entry)
    return found


def installed(packages: Path | None = None) -> dict[str, Distribution]:
    """The distributions of a site-packages folder, or else of the running environment."""
    found = distributions() if packages is None else distributions(path=[str(packages)])
    return {canonicalize_name(each.name): each for each in found}


def needed(asked: Iterable[str], present: Mapping[str, Distribution]) -> set[str]:
    """The names that these requirements come to. Each must be present, in a version that every requirement allows."""
    found: set[str] = set()
    seen: set[str] = set()
    unread = [*map(Requirement, asked)]
    while unread:
        requirement = unread.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = canonicalize_name(requirement.name)
        assert name in present, f"{requirement} is not installed"
        version = present[name].version
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} does not allow {version}"
        found.add(name)
        unread += applicable(present[name].requires or (), requirement.extras)
    return found


def applicable(lines: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """The requirements that count here, with these extras asked for."""
    found = []
    for requirement in map(Requirement, lines):
        marker, requirement.marker = requirement.marker, None
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.append(requirement)
    return found


# ------------------------------------------------------------------------------------------------- environments


class Fresh:
    """A virtual environment outside the tree, empty at first and without a pip of its own."""

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
        """What a program prints; nothing of the tree is on its path."""
        return done(run([self.python, "-I", "-c", code], self.folder)).strip()
