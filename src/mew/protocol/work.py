"""What handling one message takes, counted as it is done, in units of about a microsecond.

Pure and deterministic: counted are bytes, containers and characters, never time.
"""

from typing import Final

MOST_SCANNED: Final = 2**22
"""Characters that the patterns of capabilities may be tried on, or compared with each other, for one envelope."""
MESSAGE_UNITS: Final = 20
JOIN_UNITS: Final = 2_000
BYTES_PER_UNIT: Final = 256
CONTAINERS_PER_UNIT: Final = 4
SCANNED_PER_UNIT: Final = 1_000
KINDS_PER_UNIT: Final = 3
"""Capabilities of which only the kind is looked at."""
TRIED_UNITS: Final = 1
"""For a capability whose patterns are tried on a payload or on recipients, besides the characters."""
CHECKED_PER_UNIT: Final = 128
"""Steps of validating content."""


class ScannedTooMuch(Exception):
    """The patterns that are left to be tried would exceed `MOST_SCANNED`."""


class Work:
    """What one message has taken so far."""

    __slots__ = ("_scanned", "_units")

    def __init__(self) -> None:
        """Nothing yet."""
        self._units = 0
        self._scanned = 0

    @property
    def units(self) -> int:
        """All of it."""
        return self._units + self._scanned // SCANNED_PER_UNIT

    @property
    def is_exhausted(self) -> bool:
        """Whether patterns may be tried on nothing more."""
        return self._scanned > MOST_SCANNED

    def add(self, units: int) -> None:
        """So much more."""
        self._units += units

    def scan(self, characters: int) -> None:
        """A pattern is tried on so many characters; `ScannedTooMuch` where that is too much for one envelope."""
        self._scanned += characters
        if self._scanned > MOST_SCANNED:
            raise ScannedTooMuch


class Unbounded(Work):
    """For what was bounded when it was first done: it is done again, and must come out the same."""

    __slots__ = ()

    def add(self, units: int) -> None:
        """It is paid already."""

    def scan(self, characters: int) -> None:
        """Nothing is too much."""


UNBOUNDED: Final = Unbounded()
"""It counts nothing, so one is enough."""
