"""A space that has little new goes through all stages in one task: one job of Spark's instead of three.

Wires what `tasks` has, in the same order and to the same rows; only where they are run is another. A job costs a tenth
of a second whatever is in it, and a watch waits for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mew.pipeline.jobs.keeping import RefreshBoundary
from mew.pipeline.jobs.tasks import (
    ControlDone,
    ControlTask,
    StitchDone,
    StitchTask,
    UnitDone,
    UnitTask,
    decode_unit,
    fold_space,
    merge_space,
)

SMALL: Final = 100_000
"""Records of a space that are little: a worker is through with them in less time than two more jobs take to start."""
_decode = msgspec.msgpack.decode
_encode = msgspec.msgpack.encode


class SpaceTask(msgspec.Struct, frozen=True):
    """Do everything for a space."""

    control: ControlTask
    units: list[UnitTask]
    """In order; none has a catalogue yet."""
    state: bytes | None
    """The stitch's."""
    floor: RefreshBoundary | None = None


class SpaceDone(msgspec.Struct, frozen=True):
    """What came of the stages, each as if it had been by itself."""

    control: ControlDone
    units: list[UnitDone]
    stitched: StitchDone


def is_little(start: Mapping[str, int], to: Mapping[str, int]) -> bool:
    """Whether no space of a plan has more than a little."""
    return all(to[space] - start[space] < SMALL for space in to)


def last_time(control: ControlDone, units: Iterable[UnitDone]) -> int:
    """Of the last record of all; a space's clock never goes back."""
    times = [control.last_time, *(each.summary.last_time for each in units)]
    return max(each for each in times if each is not None)


def stitch_task(
    asked: ControlTask,
    control: ControlDone,
    units: Sequence[UnitDone],
    state: bytes | None,
    floor: RefreshBoundary | None,
) -> bytes:
    """What the stitch of a space is to do, after the other two stages."""
    summaries = [each.summary for each in units]
    time = last_time(control, units)
    if state is None and floor is not None:
        state = floor.seed
    return _encode(StitchTask(asked.where, state, summaries, control.activity, control.streams, time, floor))


def do_a_space(task: bytes) -> bytes:
    """`SpaceTask` to `SpaceDone`."""
    asked = _decode(task, type=SpaceTask)
    control = _decode(fold_space(_encode(asked.control)), type=ControlDone)
    catalogue = _encode(control.catalogue)
    units = [
        _decode(decode_unit(_encode(msgspec.structs.replace(unit, given=catalogue))), type=UnitDone)
        for unit in asked.units
    ]
    stitched = _decode(
        merge_space(stitch_task(asked.control, control, units, asked.state, asked.floor)), type=StitchDone
    )
    return _encode(SpaceDone(control, units, stitched))
