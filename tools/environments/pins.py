"""What is pinned for this Python and what is installed, as JSON: run in an environment, with what its pip brings.

`python -I pins.py <site-packages> <file of pins>...`: a marker such as `sys_platform == "win32"` decides where a pin
holds, and the standard library cannot evaluate it.
"""

import importlib
import json
import re
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)(?: *; *(.*?))?(?: +--hash\S+)* *\\?$")


def canonical(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_here(file: Path) -> dict[str, str]:
    """The version of each pin of a file that holds for this Python on this platform."""
    marker: Any = importlib.import_module("pip._vendor.packaging.markers").Marker
    pins = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        match = PIN.match(line)
        if not match and re.match(r"[A-Za-z0-9]", line):
            raise SystemExit(f"{file}: this is no pin: {line}")
        if match and (not match[3] or marker(match[3]).evaluate()):
            pins[canonical(match[1])] = match[2]
    return pins


def installed(site_packages: str) -> dict[str, list[str]]:
    """The versions of each package in a folder: more than one if an installation left its predecessor."""
    versions: dict[str, list[str]] = {}
    for package in distributions(path=[site_packages]):
        versions.setdefault(canonical(package.metadata["Name"] or "a package without a name"), []).append(
            package.version
        )
    return versions


def main(arguments: Sequence[str]) -> None:
    """Print what is pinned and what is installed, and each pin that is not installed as it stands."""
    site_packages, *files = arguments
    pins = {file: pins_here(Path(file)) for file in files}
    present = installed(site_packages)
    version: Any = importlib.import_module("pip._vendor.packaging.version").Version
    wrong = []
    for name, pinned in sorted(
        {name: version_text for pins_of_file in pins.values() for name, version_text in pins_of_file.items()}.items()
    ):
        if name not in present:
            wrong.append(f"{name} {pinned} is missing")
        elif [version(version_text) for version_text in present[name]] != [version(pinned)]:
            wrong.append(f"{name} is {' and '.join(present[name])}, not {pinned}")
    print(json.dumps({"pins": pins, "installed": sorted(present), "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1:])
