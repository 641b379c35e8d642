"""The cost of handling one message, counted during the work, in units of about a microsecond.

Pure and deterministic: it counts bytes, containers and characters, never time.
"""

from typing import Final

MAX_SCANNED: Final = 2**22
"""Maximum characters that capability patterns are tried on, or compared with each other, for one envelope."""
MESSAGE_UNITS: Final = 20
JOIN_UNITS: Final = 2_000
BYTES_PER_UNIT: Final = 256
CONTAINERS_PER_UNIT: Final = 4
SCANNED_PER_UNIT: Final = 1_000
KINDS_PER_UNIT: Final = 3
"""Capabilities per unit if only their kind is compared."""
TRIED_UNITS: Final = 1
"""Units for a capability whose patterns are tried on a payload or on recipients, in addition to the characters."""
CHECKED_PER_UNIT: Final = 128
"""Validation steps of stream content per unit."""


class ScannedTooMuch(Exception):
    """Trying the remaining patterns would exceed `MAX_SCANNED`."""


class Work:
    """The cost of one message so far."""

    __slots__ = ("_scanned", "_units")

    def __init__(self) -> None:
        """Start at zero."""
        self._units = 0
        self._scanned = 0

    @property
    def units(self) -> int:
        """The total cost, in units, including scanned characters."""
        return self._units + self._scanned // SCANNED_PER_UNIT

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit of scanned characters is exceeded, so no more patterns may be tried."""
        return self._scanned > MAX_SCANNED

    def add(self, units: int) -> None:
        """Add units to the cost."""
        self._units += units

    def scan(self, characters: int) -> None:
        """Add the characters that a pattern is tried on. Raises `ScannedTooMuch` above the limit of one envelope."""
        self._scanned += characters
        if self._scanned > MAX_SCANNED:
            raise ScannedTooMuch


class Unbounded(Work):
    """Work without a limit: for repeating work that was limited the first time and must have the same result."""

    __slots__ = ()

    def add(self, units: int) -> None:
        """Do nothing: the work was already charged the first time."""

    def scan(self, characters: int) -> None:
        """Do nothing: there is no limit."""


UNBOUNDED: Final = Unbounded()
"""A shared instance: it stores no counts."""
