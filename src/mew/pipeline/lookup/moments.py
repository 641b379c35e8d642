"""The state of a space at any time: exactly what a joiner would have received then.

Reads the lake as of its last batch, and of the journal only the control records between a snapshot and that time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from mew.pipeline.control.moment import state_at
from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.values import LakeError, Progress
from mew.pipeline.lookup.asking import query
from mew.protocol.kinds import STREAM_DATA
from mew.protocol.records import ENVELOPE, FRAME, Record
from mew.protocol.timestamps import SECOND

SNAPSHOT: Final = "/at/"
"""Between a space's name and a position, in the name of a part of a state file."""


class NoSuchMoment(LakeError):
    """A time, or a position, of which the lake knows nothing."""


class PointInTime(msgspec.Struct, frozen=True):
    """A place in a space's order, and what a joiner would have got there."""

    space: str
    position: int
    welcome: bytes


class Engine(msgspec.Struct, frozen=True):
    """Runs the queries of the tables."""

    ask: Callable[[str], AbstractContextManager[Iterable[tuple[Any, ...]]]]
    """The rows of an answer, for a question in SQL."""
    micros: str
    """What it calls the function from a time to microseconds since 1970."""


def moment(
    lake: Lake,
    journal: Path,
    space: str,
    at: int | float,
    participant: str | None = None,
    engine: Engine | None = None,
) -> PointInTime:
    """The welcome at a position, or with a float at a time in seconds since 1970; by default an observer's.

    DuckDB is asked, unless another engine is given.
    """
    engine = engine or Engine(partial(query, lake, journal=journal), "epoch_us")
    progress = _progress(lake, space)
    position = _position(engine, space, at) if isinstance(at, float) else at
    if not 0 <= position <= progress.positions[space]:
        raise NoSuchMoment(
            f"{space!r} is in the lake up to position {progress.positions[space]}, and not at {position}"
        )
    snapshot, start = _snapshot(lake, space, position)
    records = _records(engine, space, start, position)
    frames = _frame_counts(engine, space, position)
    return PointInTime(space, position, state_at(space, snapshot, records, position, participant, frames))


def _records(engine: Engine, space: str, first: int, last: int) -> Iterator[Record]:
    """The control records of a range, in order."""
    fields = Record.__struct_fields__
    columns = ", ".join(f"{engine.micros}(time)" if name == "time" else name for name in fields)
    sql = (
        f"select {columns} from events where space = '{_quoted(space)}' and position between {first} and {last} "
        f"and event <> '{FRAME}' and not (event = '{ENVELOPE}' and kind = '{STREAM_DATA}') order by position"
    )
    with engine.ask(sql) as answer:
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


def _position(engine: Engine, space: str, seconds: float) -> int:
    """The last record at or before a time: a time is resolved once, and everything else goes by position."""
    until = f"{engine.micros}(time) <= {_micros(seconds)}"
    sql = f"select max(position) from events where space = '{_quoted(space)}' and {until}"
    with engine.ask(sql) as answer:
        found = next(iter(answer))[0]
    if found is None:
        raise NoSuchMoment(f"{space!r} has no record at that time: it began later")
    return int(found)


def _frame_counts(engine: Engine, space: str, position: int) -> dict[str, int]:
    sql = (
        "select stream_id, max(frame_number) from frames "
        f"where space = '{_quoted(space)}' and position <= {position} group by stream_id"
    )
    with engine.ask(sql) as answer:
        return {stream_id: int(number) for stream_id, number in answer}


def _snapshot(lake: Lake, space: str, position: int) -> tuple[bytes | None, int]:
    """The last state at or before a position, and from where on records are to be read."""
    last, found = lake.progress(), dict[int, bytes]()
    fold = None if last is None else last.versions.fold
    batches = [each for each in lake.with_states() if each.versions.fold == fold and space in each.positions]
    before = [each for each in batches if each.positions[space] <= position]
    behind = [each for each in batches if each.positions[space] > position]
    if before:
        name = f"{space}/control"
        found[before[-1].positions[space]] = lake.read_state(before[-1].state, [name])[name]
    if behind:
        after = f"{space}{SNAPSHOT}"
        parts = lake.read_state(behind[0].state)
        places = {int(name.removeprefix(after)): name for name in parts if name.startswith(after)}
        found |= {place: parts[name] for place, name in places.items() if place <= position}
    return (found[max(found)], max(found) + 1) if found else (None, 0)


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)
