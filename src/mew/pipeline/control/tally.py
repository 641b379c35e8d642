"""Counts what participants said and were refused, minute by minute, and whether refusals have reasons.

Counts only, a whole batch per call; which minutes are over is `participant_activity`'s to decide.
"""

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.control.checks import ConsistencyCheck
from mew.protocol.records import CONSUMED, ENVELOPE, FRAME_REJECTED, REJECTED
from mew.protocol.timestamps import SECOND

MINUTE: Final = 60 * SECOND
_ACCEPTED: Final = pa.array([ENVELOPE, CONSUMED], pa.string())
_REFUSED: Final = pa.array([REJECTED, FRAME_REJECTED], pa.string())


class Minute(msgspec.Struct, frozen=True):
    """What one participant did in one minute."""

    participant: str
    start: int
    """Microseconds since 1970, a whole minute."""
    kinds: dict[str, int] = {}
    """Envelopes that were accepted, by kind; without `stream/data`, which counts among the frames."""
    refusals: int = 0
    """Envelopes and frames that were refused."""


class ControlActivity(msgspec.Struct, frozen=True):
    """All minutes of a batch with activity; each participant's minute at most once."""

    minutes: tuple[Minute, ...] = ()


class Tally:
    """The minutes of one batch."""

    def __init__(self, refusals: ConsistencyCheck) -> None:
        """Nothing was done."""
        self._refusals_checked = refusals
        self._kinds: dict[tuple[int, str], dict[str, int]] = {}
        self._refusals: dict[tuple[int, str], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """What happened in a batch; the gateway's own envelopes count as its own."""
        event = batch.column("event")
        for minute, participant, kind, count in _counts(batch.filter(pc.is_in(event, _ACCEPTED))):
            kinds = self._kinds.setdefault((minute, participant), {})
            kinds[kind or ""] = kinds.get(kind or "", 0) + count
        refused = batch.filter(pc.is_in(event, _REFUSED))
        for minute, participant, _, count in _counts(refused):
            self._refusals[minute, participant] = self._refusals.get((minute, participant), 0) + count
        self._check(refused)

    def _check(self, refused: pa.RecordBatch) -> None:
        checked, reason = self._refusals_checked, refused.column("reason")
        checked.checked += refused.num_rows
        for row in refused.filter(pc.equal(pc.fill_null(reason, ""), "")).to_pylist():
            what = "it was refused without a reason"
            checked.violated(row["position"], what, participant=row["participant"])

    def activity(self) -> ControlActivity:
        """All of it, by minute and participant."""
        return ControlActivity(
            tuple(
                Minute(
                    participant,
                    minute * MINUTE,
                    dict(sorted(self._kinds.get((minute, participant), {}).items())),
                    self._refusals.get((minute, participant), 0),
                )
                for minute, participant in sorted(self._kinds.keys() | self._refusals.keys())
            )
        )


def _counts(rows: pa.RecordBatch) -> list[tuple[int, str, str | None, int]]:
    """Minute, participant, kind, and how many."""
    minute = pc.divide(rows.column("time").cast(pa.int64()), MINUTE)
    columns = {"minute": minute, "participant": rows.column("participant"), "kind": rows.column("kind")}
    counted = pa.table(columns).group_by(list(columns)).aggregate([([], "count_all")])
    return list(zip(*(counted.column(name).to_pylist() for name in (*columns, "count_all")), strict=True))
