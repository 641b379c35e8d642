"""What `mew pipeline run` and `watch` do where the journal comes through Kafka: land it first.

Must not know how a message becomes a segment.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mew.errors import MewError

if TYPE_CHECKING:
    from mew.pipeline.lake import Lake
    from mew.pipeline.landing.landing import Arrived, Landing

OWN: Final = "journal"
"""Where in a lake the records are that were landed."""


class BadSource(MewError):
    """What was asked for cannot be landed."""


def places_of(source: str, journal: Path | None, lake: Path) -> tuple[Path, Path]:
    """The lake's own journal, and the lake; `BadAddress` or `BadSource` where it cannot be meant so."""
    from mew.journal.kafka.address import read_address

    read_address(source)
    if journal is not None:
        raise BadSource("the journal comes from --source: leave out --journal")
    return lake / OWN, lake


def landing_of(source: str, lake: "Lake", session: Callable[[], Any]) -> "Landing":
    """What brings it."""
    from mew.journal.kafka.address import read_address
    from mew.pipeline.landing.landing import Landing

    return Landing(lake, read_address(source), session)


def land(source: str, lake: "Lake", session: Callable[[], Any]) -> None:
    """Land all that is there, and say on standard error what came."""
    for arrived in landing_of(source, lake, session).arrivals():
        print(described(arrived), file=sys.stderr, flush=True)
        for alarm in arrived.alarms:
            for each in alarm.sample:
                print(f"mew: {alarm.space or 'landing'}: {each['what']}", file=sys.stderr, flush=True)


def described(arrived: "Arrived") -> str:
    """A landing in a line."""
    again = f", {arrived.repeats:,} of them again" if arrived.repeats else ""
    return (
        f"landed {arrived.records:,} records of {arrived.messages:,} messages{again} "
        f"in {arrived.segments:,} segments, {arrived.seconds:.1f} s"
    )
