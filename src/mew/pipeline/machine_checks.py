"""Checks what the pipeline needs of a machine, with one line of result for each check.

It starts no Spark and repairs nothing; each line of a failed check says what to do.
"""

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from mew.errors import MewError
from mew.pipeline import class_archive, settings
from mew.pipeline.jars import CONNECTORS, SETUP, JarsMissing, damaged_jars, find_jars
from mew.pipeline.java import find_java

PACKAGES: Final = ("pyspark", "deltalake", "duckdb", "pyarrow")
SPARK_JAR: Final = "spark-sql-kafka-0-10_2.13"
"""Of the same version as Spark itself."""


class MachineCheck(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    line: str
    """What is there, or what is missing and what to do."""


def checks() -> list[MachineCheck]:
    """Check everything that the pipeline needs."""
    probes: dict[str, Callable[[], str]] = {
        "java": _java,
        "connectors": _connectors,
        "versions": _versions,
        "class archive": _archive,
        "memory": _memory,
    }
    return [_check(name, probe) for name, probe in probes.items()]


def _check(name: str, probe: Callable[[], str]) -> MachineCheck:
    try:
        return MachineCheck(name, ok=True, line=probe())
    except MewError as error:
        return MachineCheck(name, ok=False, line=str(error))


def _java() -> str:
    java = find_java()
    return f"Java {java.build} of {java.source}, {java.home}"


def _connectors() -> str:
    jars = find_jars()
    damaged = damaged_jars(CONNECTORS, jars[0].parent)
    if damaged:
        raise JarsMissing(f"{damaged[0]} is damaged: remove {jars[0].parent}, then run `{SETUP}`")
    return f"{len(jars)} jars in {jars[0].parent}"


def _versions() -> str:
    """The packages; Spark and its jars must have the same version."""
    try:
        installed = {name: version(name) for name in PACKAGES}
    except PackageNotFoundError as error:
        raise JarsMissing(f"{error.name} is not installed: install mew-protocol[pipeline]") from None
    jars = {artifact.name: artifact.version for artifact in CONNECTORS.artifacts}
    if installed["pyspark"] != jars[SPARK_JAR]:
        raise JarsMissing(
            f"pyspark is {installed['pyspark']}, but its jars are of {jars[SPARK_JAR]}: "
            f"install pyspark=={jars[SPARK_JAR]}"
        )
    listed = ", ".join(f"{name} {number}" for name, number in installed.items())
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, {listed}"


def _archive() -> str:
    archive = class_archive.find_archive(find_java())
    return str(archive) if archive else f"none, so Spark starts slower; `{SETUP}` makes it"


def _memory() -> str:
    driver = settings.PipelineSettings().driver_memory
    return f"{settings.machine_memory() / 2**30:.1f} GiB, of which Spark's driver takes at most {driver}"
