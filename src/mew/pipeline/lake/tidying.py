"""Tidying: what killed runs left in a lake's folders, and nobody can need, is deleted.

A part is nobody's when no commit names it and none ever can: the batch that it was written for is finished. Besides,
nothing goes that is younger than a day. State files are thinned out: after a week one an hour stays.
"""

import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable

from mew.pipeline.lake import progress as progress_rows
from mew.pipeline.lake.delta import LOG, files, opened
from mew.pipeline.lake.disk import TEMPORARY
from mew.pipeline.lake.plans import Plans
from mew.pipeline.lake.states import States, batch_of
from mew.pipeline.lake.values import Progress

DAY: Final = 24 * 3600
WEEK: Final = 7 * DAY
_HOUR: Final = 3600


class Tidied(msgspec.Struct, frozen=True):
    """What was deleted."""

    parts: tuple[str, ...]
    """Paths within the folder of the tables."""
    states: tuple[str, ...]
    drafts: tuple[str, ...]
    """Files that were being written when somebody was killed."""


def tidy(tables: Path, states: States, plans: Plans) -> Tidied:
    """Delete it."""
    handle = opened(tables / progress_rows.NAME)
    rows = [] if handle is None else list(progress_rows.rows(handle))
    now = time.time()
    parts = [path for folder in _folders(tables) for path in _orphans(folder, rows, now - DAY)]
    useless = [states.folder / name for name in _useless_states(states, rows, now)]
    drafts = [
        path
        for folder in (plans.folder, states.folder)
        for path in folder.glob(f".*{TEMPORARY}")
        if _modified(path) < now - DAY
    ]
    for path in [*parts, *useless, *drafts]:
        path.unlink(missing_ok=True)
    return Tidied(
        tuple(path.relative_to(tables).as_posix() for path in parts),
        tuple(path.name for path in useless),
        tuple(path.name for path in drafts),
    )


def _folders(tables: Path) -> list[Path]:
    return sorted(path.parent for path in tables.glob(f"*/{LOG}"))


def _orphans(folder: Path, rows: list[Progress], before: float) -> Iterator[Path]:
    """The files of a table's folder that are in no commit, and will be in none."""
    finished = rows[-1].batch if rows else 0
    # What there is, then what is known of: a file that is committed in between is known.
    candidates = [path for path in folder.rglob("*.parquet") if path.relative_to(folder).parts[0] != LOG]
    known = _known(folder, rows[-1].tables.get(folder.name) if rows else None)
    for path in candidates:
        batch = batch_of(path.name)
        is_over = batch is None or batch <= finished
        if is_over and path.relative_to(folder).as_posix() not in known and _modified(path) < before:
            yield path


def _known(folder: Path, version: int | None) -> Collection[str]:
    """The files that are in the table, were in it and have not been vacuumed yet, or are in what readers see."""
    handle = DeltaTable(str(folder))
    known = {path for path, _, _ in files(handle)}
    known.update(handle.vacuum(0, dry_run=True, enforce_retention_duration=False))
    if version is not None:
        known.update(path for path, _, _ in files(DeltaTable(str(folder), version=version)))
    return known


def _useless_states(states: States, rows: list[Progress], now: float) -> Iterator[str]:
    """Those that no finished batch names, and of old ones all but the last of each hour."""
    finished = rows[-1].batch if rows else 0
    named = {row.state for row in rows}
    ages = {name: now - _modified(states.folder / name) for name in states.names()}
    kept_hours = set()
    for name in reversed(ages):
        batch = batch_of(name)
        if name in named:
            hour = (now - ages[name]) // _HOUR
            if ages[name] > WEEK and hour in kept_hours and name != rows[-1].state:
                yield name
            kept_hours.add(hour)
        elif batch is not None and batch <= finished and ages[name] > DAY:
            yield name


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
