"""The configuration of a space: where its file is, and the error for a file that cannot be used.

Imports nothing that is slow: commands look for a configuration at every start.
"""

from pathlib import Path

from mew.errors import MewError


class ConfigError(MewError):
    """The configuration cannot be used. The error names the file, the line, the path in the file and the problem."""

    def __init__(self, problem: str, *, file: Path | None = None, line: int | None = None, where: str = "") -> None:
        """Build a one-line message. The parts are also available as attributes."""
        self.problem, self.file, self.line, self.where = problem, file, line, where
        spot = "" if file is None else str(file) if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (spot, where, problem) if part))


def config_places(directory: Path) -> tuple[Path, Path]:
    """Return where the space.yaml of a space directory may be; the first file that exists is used (protocol §8)."""
    return directory / ".mew" / "space.yaml", directory / "space.yaml"


def config_file(directory: Path) -> Path | None:
    """Return the space.yaml of a space directory, or None if it has none."""
    return next((file for file in config_places(directory) if file.is_file()), None)


def find_config(directory: Path) -> Path:
    """Return the space.yaml of a space directory. Raises `ConfigError` if it has none."""
    file = config_file(directory)
    if file is None:
        places = " and ".join(map(str, config_places(directory)))
        raise ConfigError(f"no space.yaml found: looked for {places}; create a space with `mew init`")
    return file
