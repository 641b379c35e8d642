"""Which environments there are, and which files of pins each is made of.

Must not read a file: what is on the disk is the affair of others.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALL_OPTIONS: Final[tuple[str, ...]] = ("--no-deps", "--require-hashes", "--no-build-isolation")
"""No resolution, no package without a hash, and no build tool but a pinned one."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment: its folder, and the pin files that go into it, in this order."""

    folder: str
    pins: tuple[str, ...]
    project: bool = field(default=False, kw_only=True)
    """Whether the project itself is installed into it, editable, with what Spark needs."""


ENVIRONMENTS: Final = (
    # The build tools come first: source packages are built with them.
    Environment(".venv", ("requirements/build.txt", "requirements/dev.txt"), project=True),
    Environment(".venv-core", ("requirements/core.txt",)),
    Environment(".venv-lock", ("requirements/lock.txt",)),
    Environment(".venv-try", ("requirements/server.txt",)),
)
PROJECT_SOURCES: Final = ("pyproject.toml",)
SPARK_SOURCES: Final = ("src/mew/pipeline/jars.py", "src/mew/pipeline/class_archive.py")
