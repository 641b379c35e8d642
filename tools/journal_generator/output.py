"""Output of the generator: simulates the spaces of a journal and writes their WAL files, segments and checkpoints.

Spaces are independent, so it makes no difference to the bytes whether they are written in parallel.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from ctypes import c_int64
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import HOUR, JournalFolder, first_position
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter, save_checkpoint
from mew.protocol.records import CHECKPOINT, Record
from tools.journal_generator.faults import PlantedFault, plant
from tools.journal_generator.forged_files import ForgedFiles
from tools.journal_generator.ground_truth import SpaceTruth
from tools.journal_generator.participants import space_name
from tools.journal_generator.payloads import pool_size
from tools.journal_generator.plan import MIN_SPACE_RECORDS, START, Plan
from tools.journal_generator.simulation import Simulation
from tools.journal_generator.timeline import Timeline

BLOCK_RECORDS: Final = 1_000
"""Approximate number of records per block, as in the journal of a busy gateway."""
_MODE: Final = 0o600


class JournalFiles:
    """The files of one space's journal. A file ends with the hour, when it is full, or when the gateway crashes."""

    def __init__(self, folder: JournalFolder, *, segment_bytes: int, sealed: bool) -> None:
        """Create the folder of the WAL, which must not exist."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sealed = sealed
        self._file: LogWriter | None = None
        self._hour = 0
        self._pending: list[JournalEntry] = []
        self._records = 0
        """Number of records in `_pending`."""
        self._checkpoint: Record | None = None
        folder.log.mkdir(parents=True)

    def put(self, entry: JournalEntry) -> None:
        """Append an entry."""
        hour = entry.time // HOUR
        if hour != self._hour:
            self.end_file()
            self._hour = hour
        self._pending.append(entry)
        if isinstance(entry, FrameBatch):
            self._records += len(entry.messages)
        else:
            self._records += 1
            if entry.event == CHECKPOINT:
                self._checkpoint = entry
        if self._records >= BLOCK_RECORDS:
            self._write()
            if self._file is not None and self._file.size >= self._segment_bytes:
                self.end_file()

    def _write(self) -> None:
        if not self._pending:
            return
        if self._file is None:
            self._file = LogWriter(self._folder.log_file(self._pending[0].position))
        self._file.append(self._pending)
        self._pending = []
        self._records = 0

    def end_file(self) -> None:
        """Close the current file; the next entry starts a new one."""
        self._write()
        file, self._file = self._file, None
        if file is None:
            return
        if self._sealed:
            file.close()
            seal_log(self._folder, file.path)
            return
        file.sync()
        file.close()
        self._folder.synced.write_text(f"{first_position(file.path):020} {file.size:020}\n", encoding="utf-8")
        self._folder.synced.chmod(_MODE)

    def close(self) -> None:
        """Write the remaining entries and the last checkpoint."""
        self.end_file()
        if self._checkpoint is not None:
            save_checkpoint(self._folder, self._checkpoint)


PARALLEL_RECORDS: Final = 400_000
"""Journals of this size are written by one process per space."""
PROGRESS_RECORDS: Final = 10_000
"""Number of records between two progress reports."""
POLL_SECONDS: Final = 0.2

Progress = Callable[[int], None]
"""Callback that receives the number of records written so far."""


def write_spaces(root: Path, plan: Plan, progress: Progress) -> dict[str, SpaceTruth]:
    """Write all spaces and return their ground truths, in order."""
    if plan.spaces > 1 and plan.records >= PARALLEL_RECORDS and (os.cpu_count() or 1) > 1:
        truths = write_spaces_in_parallel(root, plan, progress)
    else:
        truths = [
            write_space(root, plan, index, _offset_progress(plan, index, progress)) for index in range(plan.spaces)
        ]
    return {truth.space: truth for truth in truths}


def _offset_progress(plan: Plan, index: int, progress: Progress) -> Progress:
    """Return a callback that adds the records of the preceding spaces."""
    preceding = sum(map(plan.share, range(index)))
    return lambda records: progress(preceding + records)


def write_space(root: Path, plan: Plan, index: int, progress: Progress) -> SpaceTruth:
    """Simulate one space, write its journal and return its ground truth."""
    fault = plan.faults[index] if index < len(plan.faults) else None
    folder = JournalFolder(root, space_name(index))
    files = (
        JournalFiles(folder, segment_bytes=plan.segment_bytes, sealed=plan.seal)
        if fault is None
        else ForgedFiles(root, folder.space)
    )
    records = plan.share(index)
    simulation = Simulation(index, plan.seed, plan.start, files, pool_size(records))
    timeline = Timeline(simulation, records)
    reported = 0
    while not timeline.is_finished:
        timeline.advance()
        if simulation.written - reported >= PROGRESS_RECORDS:
            reported = simulation.written
            progress(reported)
    if fault is not None:
        plant(simulation, fault)
    truth = simulation.finish()
    progress(simulation.written)
    return truth


def write_faults(root: Path, faults: Sequence[PlantedFault], seed: int = 0) -> dict[str, PlantedFault]:
    """Write one small space for each fault: the scene of the fault, and nothing else. Return the fault of each."""
    spaces = {}
    for index, fault in enumerate(faults):
        simulation = Simulation(index, seed, START, ForgedFiles(root, space_name(index)), pool_size(MIN_SPACE_RECORDS))
        plant(simulation, fault)
        simulation.finish()
        spaces[simulation.name] = fault
    return spaces


def write_spaces_in_parallel(root: Path, plan: Plan, progress: Progress) -> list[SpaceTruth]:
    """Write the spaces in one process each, up to one per processor at a time."""
    context = multiprocessing.get_context("spawn")
    counts = context.Array(c_int64, plan.spaces)
    workers = min(plan.spaces, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_counts, initargs=(counts,)) as pool:
        futures = [pool.submit(_write_space_in_worker, root, plan, index) for index in range(plan.spaces)]
        _poll(futures, lambda: progress(sum(counts[:])))
        return [msgspec.json.decode(future.result(), type=SpaceTruth) for future in futures]


def _poll(futures: list[Future[bytes]], look: Callable[[], None]) -> None:
    """Call `look` periodically until all futures are done; stop at the first failure."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, POLL_SECONDS, FIRST_EXCEPTION)
        look()
        if any(future.exception() for future in done):
            for future in pending:
                future.cancel()
            return


_counts: Any = None
"""In a worker process: number of records of each space so far."""


def _set_counts(counts: Any) -> None:
    global _counts  # noqa: PLW0603 - set once per worker process, by the pool's initializer
    _counts = counts


def _write_space_in_worker(root: Path, plan: Plan, index: int) -> bytes:
    return msgspec.json.encode(write_space(root, plan, index, partial(_counts.__setitem__, index)))
