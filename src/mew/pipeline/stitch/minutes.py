"""Minutes of participants: what they sent as frames and what they did besides, added up until the minute is over.

Pure.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from mew.pipeline import schemas
from mew.pipeline.kernel.summary import WriterMinute
from mew.pipeline.stitch.activity import MINUTE, ControlActivity
from mew.pipeline.stitch.state import MinuteState

_SCHEMA = schemas.PARTICIPANT_ACTIVITY.schema


class Minutes:
    """Those of one space that have something in them."""

    def __init__(self, known: Iterable[MinuteState]) -> None:
        """As the state has them."""
        self._minutes = {(each.participant, each.start): each for each in known}

    def add_frames(self, minutes: Iterable[WriterMinute]) -> None:
        """What a unit counted."""
        for each in minutes:
            minute = self._minute(each.participant, each.start)
            minute.frames += each.frames
            minute.bytes += each.bytes

    def add_control(self, activity: ControlActivity) -> None:
        """What the control records of a batch were."""
        for each in activity.minutes:
            minute = self._minute(each.participant, each.start)
            minute.refusals += each.refusals
            for kind, count in each.kinds.items():
                minute.kinds[kind] = minute.kinds.get(kind, 0) + count

    def _minute(self, participant: str, start: int) -> MinuteState:
        return self._minutes.setdefault((participant, start), MinuteState(participant, start))

    def rows(self, space: str, time: int) -> pa.Table:
        """All of them as `participant_activity` has them; those that end after this time are open."""
        rows = [_row(space, self._minutes[key], time) for key in sorted(self._minutes)]
        arrays = [pa.array([row[name] for row in rows], _SCHEMA.field(name).type) for name in _SCHEMA.names]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)

    def rest(self, time: int) -> list[MinuteState]:
        """Those that end after this time."""
        return [each for each in self._minutes.values() if each.start + MINUTE > time]


def _row(space: str, minute: MinuteState, time: int) -> dict[str, Any]:
    return {
        "space": space,
        "participant": minute.participant,
        "start": minute.start,
        "envelopes": sum(minute.kinds.values()),
        "kinds": [{"kind": kind, "count": minute.kinds[kind]} for kind in sorted(minute.kinds)],
        "refusals": minute.refusals,
        "frames": minute.frames,
        "bytes": minute.bytes,
        "open": minute.start + MINUTE > time,
    }
