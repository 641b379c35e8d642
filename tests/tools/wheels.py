"""Wheels without code: real metadata where a package is installed here, any version, and the pins that name them."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from packaging.markers import Marker
from packaging.utils import canonicalize_name

FUTURE: Final = "9999"
"""The version that a resolver would prefer to every pin."""


def pin_lines(file: Path) -> Iterator[tuple[str, str, str]]:
    """The name, version and marker of each pin of a file."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;]+)(?: *; *(.*?))? *\\?$", line):
            yield match[1], match[2], (match[3] or "").strip()


def pins_here(*files: Path) -> dict[str, str]:
    """The version of each pin that counts on this platform and Python."""
    lines = [line for file in files for line in pin_lines(file)]
    return {canonicalize_name(name): version for name, version, marker in lines if not marker or holds(marker)}


def holds(marker: str) -> bool:
    return Marker(marker).evaluate({"extra": ""})


def requirements_of(name: str) -> Sequence[str]:
    """What an installed package requires; nothing for one that is not installed here."""
    try:
        return distribution(name).requires or ()
    except PackageNotFoundError:
        return ()


def extras_of(name: str) -> Sequence[str]:
    """The extras that an installed package offers."""
    try:
        return distribution(name).metadata.get_all("Provides-Extra") or ()
    except PackageNotFoundError:
        return ()


def wheel_name(name: str, version: str) -> str:
    """The file name of a wheel for every platform."""
    return f"{canonicalize_name(name).replace('-', '_')}-{version}-py3-none-any.whl"


def empty_wheel(
    folder: Path, name: str, version: str, requirements: Sequence[str] = (), extras: Sequence[str] = ()
) -> Path:
    """A wheel that installs nothing but its metadata. It has the extras of the installed package, and these."""
    stem = wheel_name(name, version).removesuffix("-py3-none-any.whl")
    metadata = [
        *("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"),
        *(f"Provides-Extra: {extra}" for extra in (*extras_of(name), *extras)),
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
    ]
    files = {
        "METADATA": "\n".join([*metadata, ""]),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: mew\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = folder / wheel_name(name, version)
    with ZipFile(wheel, "w") as archive:
        for file, text in files.items():
            archive.writestr(f"{stem}.dist-info/{file}", text)
        record = [*(f"{stem}.dist-info/{file},," for file in files), f"{stem}.dist-info/RECORD,,", ""]
        archive.writestr(f"{stem}.dist-info/RECORD", "\n".join(record))
    return wheel


def pin_of(wheel: Path, name: str, version: str, marker: str = "") -> str:
    """The line of a pin file for a wheel, with its hash."""
    condition = f" ; {marker}" if marker else ""
    return f"{name}=={version}{condition} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
