"""How the journals of a gateway fare: figures for Prometheus, a word for `/health`, a warning before the disk is full.

Looks, and does nothing about what it sees.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from mew.gateway.operator_log import log
from mew.journal.folder import disk_used

if TYPE_CHECKING:
    from mew.gateway.gateway import Gateway
    from mew.gateway.journals import Kept
    from mew.journal.folder import Folder

FULL: Final = 0.8
"""How much of a disk may be used before somebody should know."""
OK: Final = "ok"
OFF: Final = "off"
NOT_OPEN: Final = "not open"

_COUNTED: Final = {
    "records": "Records that the kernel has taken.",
    "bytes": "Their bytes in the log.",
    "syncs": "How often the log was synced.",
    "sync_seconds": "Seconds spent waiting for the disk.",
    "failures": "Writes that failed.",
    "unrecorded": "Records that were dropped because they could not be written.",
}
"""By their names in the writer's figures."""
_SHOWN: Final[dict[str, tuple[str, Callable[["Kept"], float]]]] = {
    "position": ("The last position that the kernel has.", lambda kept: kept.writer.written),
    "synced_position": ("The last position that the disk has.", lambda kept: kept.writer.synced),
    "available": ("Whether the journal can be written.", lambda kept: int(kept.writer.problem is None)),
    "disk_used_ratio": ("Used part of the disk that it is on.", lambda kept: disk_used(kept.folder)),
}


def journal_metrics(gateway: "Gateway") -> Iterator[Metric]:
    """What there is to be said of every space's journal."""
    journals = gateway.journals
    for name, what in _COUNTED.items():
        counted = CounterMetricFamily(f"mew_journal_{name}", what, labels=["space"])
        for space, kept in journals.kept.items():
            counted.add_metric([space], getattr(kept.writer.figures, name))
        yield counted
    for name, (what, value) in _SHOWN.items():
        shown = GaugeMetricFamily(f"mew_journal_{name}", what, labels=["space"])
        for space, kept in journals.kept.items():
            shown.add_metric([space], value(kept))
        yield shown
    waiting = "What the sealer has been asked to do and has not begun."
    yield GaugeMetricFamily("mew_journal_pending_requests", waiting, journals.keeper.pending)


def journal_health(gateway: "Gateway") -> tuple[str, dict[str, str]]:
    """How the gateway is, as far as it depends on its journals; and of each space's: ok, off, or what is wrong."""
    said = {}
    problems = gateway.journals.problems()
    for space in gateway.config.spaces:
        name = space.settings.space_id
        said[name] = OFF if not space.journal.enabled else NOT_OPEN if name not in problems else problems[name] or OK
    return "degraded" if any(problems.values()) else "ok", said


class Room:
    """Warns of disks that fill up, of each once until it has room again."""

    def __init__(self, full: float = FULL) -> None:
        """Every disk has room, as far as is known."""
        self.full = full
        """From which part on it is too little."""
        self._warned: set[str] = set()

    def look(self, folders: Mapping[str, "Folder"]) -> None:
        """Warn of those that had room at the last look."""
        for space, folder in folders.items():
            used = disk_used(folder)
            if used < self.full:
                self._warned.discard(space)
            elif space not in self._warned:
                self._warned.add(space)
                log.warning("journal's disk fills up", space=space, used=round(used, 3), folder=str(folder.root))
