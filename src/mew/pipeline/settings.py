"""How the pipeline runs: what a configuration says of it, as one frozen value, its defaults taken from the machine."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mew.errors import MewError

LOCAL: Final = "local[*]"
LEAST_MEMORY: Final = 512 * 2**20
"""Spark does not start with less."""
MOST_MEMORY: Final = 8 * 2**30
"""What is large is held by the workers' Python, beside the JVM."""
WORKER_MEMORY: Final = 2**30
"""Of a cluster's machines nothing is known: what every worker can give, and enough where Python does the work."""
_MEMORY: Final = re.compile(r"[1-9][0-9]*[mg]")
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class BadSetting(MewError, ValueError):
    """A setting that Spark could not be started with."""


def machine_memory() -> int:
    """The bytes that this process may hope for: the machine's, or what its container is allowed."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits()])


def _container_limits() -> Iterator[int]:
    for name in _LIMITS:
        try:
            yield int(Path(name).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such file, or `max`
            continue


def memory_bytes(amount: str) -> int:
    """The bytes of an amount such as `512m` or `4g`."""
    return int(amount[:-1]) * (2**20 if amount[-1] == "m" else 2**30)


def default_memory() -> str:
    """Half of the machine's memory, within bounds."""
    half = min(max(machine_memory() // 2, LEAST_MEMORY), MOST_MEMORY)
    return f"{half // 2**20}m"


def default_worker_memory() -> str:
    """As much as Spark asks for by itself, or half of a machine that has less."""
    return f"{min(max(machine_memory() // 2, LEAST_MEMORY), WORKER_MEMORY) // 2**20}m"


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `pipeline` section of space.yaml."""

    master: str = LOCAL
    """Where Spark runs, in Spark's own words."""
    driver_memory: str = msgspec.field(default_factory=default_memory)
    """Of the driver's JVM, as in `512m` or `4g`; with a local master there is no other."""
    worker_memory: str = msgspec.field(default_factory=default_worker_memory)
    """Of each executor's JVM in a cluster; a worker that has less is never asked."""
    typed: tuple[str, ...] = ()
    """Formats, by id, slug or fingerprint, that get a table of their own however few frames they have."""

    def __post_init__(self) -> None:
        """Refuse what Spark would refuse later, and less clearly."""
        for name in ("driver_memory", "worker_memory"):
            value = getattr(self, name)
            if not _MEMORY.fullmatch(value):
                raise BadSetting(f"pipeline.{name} is {value!r}, not an amount like '512m' or '4g'")
            if memory_bytes(value) < LEAST_MEMORY:
                raise BadSetting(f"pipeline.{name} is {value!r}: Spark needs at least {LEAST_MEMORY // 2**20}m")
        if not all(name.strip() for name in self.typed):
            raise BadSetting("pipeline.typed has an empty name: it lists formats by id, slug or fingerprint")
        if not self.master.startswith(("local", "spark://", "yarn", "k8s://")):
            raise BadSetting(f"pipeline.master is {self.master!r}, not a master that Spark knows")
