"""Checks what the pipeline needs of a machine, with one line of result for each check.

Starts no Spark and repairs nothing: it says what to do.
"""

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from mew.errors import MewError
from mew.pipeline import archive, connectors, java, settings

PACKAGES: Final = ("pyspark", "deltalake", "duckdb", "pyarrow")
SPARK_JAR: Final = "spark-sql-kafka-0-10_2.13"
"""Of the same version as Spark itself."""


class MachineCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    line: str
    """What was found, or what is missing and what to do."""


def checks() -> list[MachineCheck]:
    """Everything that the pipeline needs, found or not."""
    looks: dict[str, Callable[[], str]] = {
        "java": _java,
        "connectors": _connectors,
        "versions": _versions,
        "class archive": _archive,
        "memory": _memory,
    }
    return [_check(name, look) for name, look in looks.items()]


def _check(name: str, look: Callable[[], str]) -> MachineCheck:
    try:
        return MachineCheck(name, ok=True, line=look())
    except MewError as error:
        return MachineCheck(name, ok=False, line=str(error))


def _java() -> str:
    found = java.find()
    return f"Java {found.build} of {found.source}, {found.home}"


def _connectors() -> str:
    found = connectors.jars()
    damaged = connectors.damaged(connectors.CONNECTORS, found[0].parent)
    if damaged:
        raise connectors.ConnectorsMissing(
            f"{damaged[0]} is damaged: remove {found[0].parent}, then run `{connectors.COMMAND}`"
        )
    return f"{len(found)} jars in {found[0].parent}"


def _versions() -> str:
    """The packages, where Spark's version is that of its jars."""
    try:
        installed = {name: version(name) for name in PACKAGES}
    except PackageNotFoundError as error:
        raise connectors.ConnectorsMissing(f"{error.name} is not installed: install mew-protocol[pipeline]") from None
    jars = {artifact.name: artifact.version for artifact in connectors.CONNECTORS.artifacts}
    if installed["pyspark"] != jars[SPARK_JAR]:
        raise connectors.ConnectorsMissing(f"pyspark is {installed['pyspark']}, its jars are of {jars[SPARK_JAR]}")
    listed = ", ".join(f"{name} {number}" for name, number in installed.items())
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, {listed}"


def _archive() -> str:
    found = archive.find(java.find())
    return str(found) if found else f"none, so Spark starts slower; `{archive.COMMAND}` makes it"


def _memory() -> str:
    asked = settings.PipelineSettings()
    return f"{settings.machine_memory() / 2**30:.1f} GiB, of which Spark's driver takes at most {asked.driver_memory}"
