"""The gateway's metrics in the Prometheus text format, and the state of its journals.

Metrics are collected on request, so counting costs the hot path one addition. Labels have a bounded number of values:
spaces, transports, planes, outcomes and error codes, never ids of participants or streams.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mew._internal.logging import log
from mew.journal.layout import disk_used
from mew.protocol.limits import BUDGETS
from mew.protocol.proposals import OUTCOMES

if TYPE_CHECKING:
    from mew.gateway.gateway import Gateway
    from mew.gateway.hub import Hub
    from mew.gateway.journaling import OpenJournal
    from mew.journal.layout import JournalFolder


FULL: Final = 0.8
"""Used fraction of a disk above which the operator is warned."""
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
"""Descriptions by attribute name in the writer's figures."""
_SHOWN: Final[dict[str, tuple[str, Callable[["OpenJournal"], float]]]] = {
    "position": ("The last position that the kernel has.", lambda journal: journal.writer.written),
    "synced_position": ("The last position that the disk has.", lambda journal: journal.writer.synced),
    "available": ("Whether the journal can be written.", lambda journal: int(journal.writer.problem is None)),
    "disk_used_ratio": ("Used part of the disk that it is on.", lambda journal: disk_used(journal.folder)),
}


def journal_metrics(gateway: "Gateway") -> Iterator[Metric]:
    """Yield the metrics of all journals."""
    journals = gateway.journals
    for name, what in _COUNTED.items():
        counted = CounterMetricFamily(f"mew_journal_{name}", what, labels=["space"])
        for space, journal in journals.open_journals.items():
            counted.add_metric([space], getattr(journal.writer.stats, name))
        yield counted
    for name, (what, value) in _SHOWN.items():
        shown = GaugeMetricFamily(f"mew_journal_{name}", what, labels=["space"])
        for space, journal in journals.open_journals.items():
            shown.add_metric([space], value(journal))
        yield shown
    waiting = "What the sealer has been asked to do and has not begun."
    yield GaugeMetricFamily("mew_journal_pending_requests", waiting, journals.maintenance.pending)


def journal_health(gateway: "Gateway") -> tuple[Literal["ok", "degraded"], dict[str, str]]:
    """Return `ok` or `degraded`, and the journal status of each space: ok, off, not open, or the error."""
    status_by_space = {}
    problems = gateway.journals.problems()
    for space in gateway.config.spaces:
        name = space.settings.space_id
        status_by_space[name] = (
            OFF if not space.journal.enabled else NOT_OPEN if name not in problems else problems[name] or OK
        )
    return "degraded" if any(problems.values()) else "ok", status_by_space


class DiskSpaceMonitor:
    """Warns once about each disk that fills up, and again only after it had free space in between."""

    def __init__(self, full: float = FULL) -> None:
        """Start without warnings; a disk counts as full from the used fraction `full` on."""
        self.full = full
        """Used fraction from which on a disk is too full."""
        self._warned: set[str] = set()

    def check(self, folders: Mapping[str, "JournalFolder"]) -> None:
        """Check all disks. Warn about those that have become too full since the last check."""
        for space, folder in folders.items():
            used = disk_used(folder)
            if used < self.full:
                self._warned.discard(space)
            elif space not in self._warned:
                self._warned.add(space)
                log.warning("journal's disk fills up", space=space, used=round(used, 3), folder=str(folder.root))


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(gateway: "Gateway") -> bytes:
    """Return the metrics in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_Reading(gateway))
    return generate_latest(registry)


class _Reading(Collector):
    """Collects a gateway's metrics once."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        hubs = self._gateway.hubs
        yield self._connections()
        yield _gauge("mew_streams", "Open streams.", {name: len(hub.space.state.streams) for name, hub in hubs.items()})
        yield from self._proposals()
        for name, what in _COUNTER_LINES.items():
            counted = CounterMetricFamily(name, what, labels=["space"])
            for space, hub in hubs.items():
                counted.add_metric([space], getattr(hub.counts, name.removeprefix("mew_")))
            yield counted
        yield self._refusals()
        yield self._exceeded()
        yield self._queues()
        yield GaugeMetricFamily("mew_sockets", "Open WebSockets, joined or not.", len(self._gateway.sockets))
        lag = max((hub.lag for hub in hubs.values()), default=0.0)
        yield GaugeMetricFamily("mew_loop_lag_seconds", "How late the last tick of the loop was.", lag)
        yield from journal_metrics(self._gateway)

    def _connections(self) -> Metric:
        family = GaugeMetricFamily(
            "mew_connections", "Participants and observers by how they are connected.", labels=["space", "transport"]
        )
        for space, hub in self._gateway.hubs.items():
            for transport, count in _transports(hub).items():
                family.add_metric([space, transport], count)
        return family

    def _proposals(self) -> Iterator[Metric]:
        open_ones = {name: list(hub.space.state.proposals.values()) for name, hub in self._gateway.hubs.items()}
        counted = {name: len(proposals) for name, proposals in open_ones.items()}
        yield _gauge("mew_open_proposals", "Proposals that may still be fulfilled.", counted)
        bytes_by_space = {name: sum(proposal.size for proposal in proposals) for name, proposals in open_ones.items()}
        yield _gauge("mew_open_proposal_bytes", "Their bytes, as they count towards the limits.", bytes_by_space)
        closed = CounterMetricFamily(
            "mew_closed_proposals", "Closed proposals, by outcome.", labels=["space", "outcome"]
        )
        for space, hub in self._gateway.hubs.items():
            for outcome in OUTCOMES:
                closed.add_metric([space, outcome], hub.counts.closed_proposals.get(outcome, 0))
        yield closed

    def _refusals(self) -> Metric:
        family = CounterMetricFamily("mew_refusals", "Refused messages by error code.", labels=["space", "code"])
        for space, hub in self._gateway.hubs.items():
            for code, count in hub.counts.refusals.items():
                family.add_metric([space, code], count)
        return family

    def _exceeded(self) -> Metric:
        family = CounterMetricFamily(
            "mew_rate_limited",
            "Messages and requests refused, by the used-up budget.",
            labels=["space", "budget"],
        )
        for space, hub in self._gateway.hubs.items():
            for budget in BUDGETS:
                family.add_metric([space, budget], hub.space.budgets.exceeded.get(budget, 0))
        return family

    def _queues(self) -> Metric:
        family = GaugeMetricFamily("mew_queue_bytes", "Bytes that wait for slow readers.", labels=["plane"])
        queued = [socket.sink.queued_bytes for socket in self._gateway.sockets]
        for index, plane in enumerate(("data", "control")):
            family.add_metric([plane], sum(sizes[index] for sizes in queued))
        return family


_COUNTER_LINES = {
    "mew_envelopes": "Envelopes of participants that were accepted.",
    "mew_frames": "Frames and stream data that were accepted.",
    "mew_deliveries": "Messages handed to readers.",
    "mew_delivered_bytes": "Their bytes.",
    "mew_dropped_frames": "Frames that slow readers did not get.",
}


def _transports(hub: "Hub") -> Counter[str]:
    return Counter(
        "observer" if session.observer else session.transport for session in list(hub.space.sessions.values())
    )


def _gauge(name: str, what: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=["space"])
    for space, value in values.items():
        family.add_metric([space], value)
    return family
