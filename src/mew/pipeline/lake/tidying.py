"""Deletes unneeded files that killed runs left in the folders of a lake.

A part is unneeded when no commit names it and none ever can: the batch that it was written for is finished. Besides,
nothing goes that is younger than a day. State files are thinned out: after some minutes only so many stay that few
records are between two of them, and after a week one an hour.
"""

import os
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable

from mew._internal.files import TEMPORARY
from mew.pipeline.lake import progress
from mew.pipeline.lake.delta import LOG, files, opened
from mew.pipeline.lake.plans import Plans
from mew.pipeline.lake.states import States, batch_of
from mew.pipeline.lake.values import APPLICATION, Progress

DAY: Final = 24 * 3600
WEEK: Final = 7 * DAY
FRESH: Final = 600
"""State files up to this age stay, because a process may be about to read them."""
APART: Final = 20_000
"""So many control records are between two state files of the last week, at most: a look back folds no more."""
LOG_BYTES: Final = 2**20
"""Of what the JVM says by itself; Spark's own log sees to its size."""
_HOUR: Final = 3600


class Tidied(msgspec.Struct, frozen=True):
    """What was deleted."""

    parts: tuple[str, ...]
    """Paths within the folder of the tables."""
    states: tuple[str, ...]
    drafts: tuple[str, ...]
    """Files whose writer was killed."""


def tidy(tables: Path, states: States, plans: Plans, now: float | None = None) -> Tidied:
    """Delete it; `now` is in seconds since 1970."""
    handle = opened(tables / progress.NAME)
    now = time.time() if now is None else now
    rows = [] if handle is None else _rows(handle, states)
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


def clear(stage: Path, log: Path, now: float | None = None) -> None:
    """Delete what killed runs shared with their tasks, and cut short what a JVM has said that talks too much."""
    before = (time.time() if now is None else now) - DAY
    for folder in stage.glob("*"):
        if _modified(folder) < before:
            shutil.rmtree(folder, ignore_errors=True)
    if log.is_file() and log.stat().st_size > LOG_BYTES:
        os.truncate(log, 0)


def _rows(handle: DeltaTable, states: States) -> list[Progress]:
    """The rows of the last batch, and of those whose state files are there: others may be very many."""
    batches = {*map(batch_of, states.names()), handle.transaction_version(APPLICATION)}
    return progress.of_batches(handle, {batch for batch in batches if batch is not None})


def _folders(tables: Path) -> list[Path]:
    return sorted(path.parent for path in tables.glob(f"*/{LOG}"))


def _orphans(folder: Path, rows: list[Progress], before: float) -> Iterator[Path]:
    """The files of a table's folder that are in no commit, and will be in none."""
    finished = rows[-1].batch if rows else 0
    # First the files, then the commits: a file that is committed in between is known.
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
    """Those that no finished batch names, and of the others all that are not needed to be near every record."""
    finished = rows[-1].batch if rows else 0
    named = {row.state for row in rows}
    ages = {name: now - _modified(states.folder / name) for name in states.names()}
    kept = _kept_states(states, {name: age for name, age in ages.items() if name in named}, now)
    for name, age in ages.items():
        batch = batch_of(name)
        if name in named:
            if name not in kept:
                yield name
        elif batch is not None and batch <= finished and age > DAY:
            yield name


def _kept_states(states: States, ages: dict[str, float], now: float) -> set[str]:
    """The newest, what is fresh, the last of each hour, and for a week so many that few records are between two."""
    names = list(ages)
    last_of_hour = {(now - age) // _HOUR: name for name, age in ages.items()}
    kept = {*names[-1:], *last_of_hour.values(), *(name for name, age in ages.items() if age <= FRESH)}
    thinned = [name for name in names if FRESH < ages[name] <= WEEK]
    counts = [states.records(name) for name in thinned]
    before = None
    for index, name in enumerate(thinned):
        here, after = counts[index], counts[index + 1] if index + 1 < len(thinned) else None
        if name in kept or here is None or before is None or after is None or not here <= after <= before + APART:
            kept.add(name)
            before = here
    return kept


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
