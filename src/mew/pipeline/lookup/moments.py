"""The state of a space at any time: what exactly a joiner would have been told then.

Reads the lake as of its last batch, and of the journal only the control records between a snapshot and that time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mew.journal.folder import SECOND
from mew.pipeline.control.moment import state_at
from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.values import LakeError, Progress
from mew.pipeline.lookup.asking import query
from mew.protocol.kinds import STREAM_DATA
from mew.protocol.records import ENVELOPE, FRAME, Record

SNAPSHOT: Final = "/at/"
"""Between a space's name and a position, in the name of a part of a state file."""


class NoSuchMoment(LakeError):
    """A time, or a position, of which the lake knows nothing."""


class Moment(msgspec.Struct, frozen=True):
    """A place in a space's order, and what a joiner would have got there."""

    space: str
    position: int
    welcome: bytes


def moment(lake: Lake, journal: Path, space: str, at: int | float, participant: str | None = None) -> Moment:
    """The welcome at a position, or with a float at a time in seconds since 1970; with nobody named an observer's."""
    progress = _progress(lake, space)
    position = _position(lake, journal, space, at) if isinstance(at, float) else at
    if not 0 <= position <= progress.positions[space]:
        raise NoSuchMoment(
            f"{space!r} is in the lake up to position {progress.positions[space]}, and not at {position}"
        )
    snapshot, start = _snapshot(lake, space, position)
    records = _records(lake, journal, space, start, position)
    frames = _frame_counts(lake, space, position)
    return Moment(space, position, state_at(space, snapshot, records, position, participant, frames))


def _records(lake: Lake, journal: Path, space: str, first: int, last: int) -> Iterator[Record]:
    """The control records of a range, in order."""
    columns = ", ".join("epoch_us(time)" if name == "time" else name for name in Record.__struct_fields__)
    sql = (
        f"select {columns} from events where space = '{_quoted(space)}' and position between {first} and {last} "
        f"and event <> '{FRAME}' and not (event = '{ENVELOPE}' and kind = '{STREAM_DATA}') order by position"
    )
    with query(lake, sql, journal=journal) as answer:
        for row in answer:
            yield Record(*row)


def _progress(lake: Lake, space: str) -> Progress:
    progress = lake.progress()
    if progress is None:
        raise NoSuchMoment(f"{lake.path}: nothing is finished yet; `mew pipeline run` begins")
    if space not in progress.positions:
        known = ", ".join(map(repr, sorted(progress.positions)))
        raise NoSuchMoment(f"the lake knows no space {space!r}, only {known}")
    return progress


def _position(lake: Lake, journal: Path, space: str, seconds: float) -> int:
    """The last record at or before a time: a time is resolved once, and everything else goes by position."""
    sql = f"select max(position) from events where space = '{_quoted(space)}' and epoch_us(time) <= {_micros(seconds)}"
    with query(lake, sql, journal=journal) as answer:
        found = next(iter(answer))[0]
    if found is None:
        raise NoSuchMoment(f"{space!r} has no record at that time: it began later")
    return int(found)


def _frame_counts(lake: Lake, space: str, position: int) -> dict[str, int]:
    sql = (
        "select stream_id, max(frame_number) from frames "
        f"where space = '{_quoted(space)}' and position <= {position} group by stream_id"
    )
    with query(lake, sql) as answer:
        return {stream_id: int(number) for stream_id, number in answer}


def _snapshot(lake: Lake, space: str, position: int) -> tuple[bytes | None, int]:
    """The last state at or before a position, and from where on records are to be read."""
    history, states = lake.history(), frozenset(lake.states())
    for batch in reversed(history):
        if batch.state not in states or batch.versions.fold != history[-1].versions.fold:
            continue
        parts = lake.read_state(batch.state)
        after = f"{space}{SNAPSHOT}"
        places = {int(name.removeprefix(after)): name for name in parts if name.startswith(after)}
        if batch.positions.get(space, position + 1) <= position:
            places[batch.positions[space]] = f"{space}/control"
        found = [place for place in places if place <= position]
        if found:
            return parts[places[max(found)]], max(found) + 1
    return None, 0


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)
