"""Compaction: many small files of a table become few large ones, and files that no reader can want are deleted.

Changes no row, and no batch number: a batch that is being committed meanwhile finds another version, and decides
again. Readers stay at the version of the progress row, whose files stay, until that row names the new one.
"""

import time
from pathlib import Path
from typing import Any, Final

import msgspec
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from mew._internal.files import sync
from mew.pipeline.lake import parts
from mew.pipeline.lake import progress as progress_rows
from mew.pipeline.lake.delta import LOG, OPEN, exactly, files, has_batch, opened, sync_commit
from mew.pipeline.lake.progress_table import PROGRESS, as_arrow
from mew.pipeline.lake.values import ABANDONED, Progress

TARGET_BYTES: Final = 256 * 2**20
SMALL_BYTES: Final = 64 * 2**20
"""What is smaller is a small file."""
KEPT_HOURS: Final = 7 * 24
"""A file that was removed from a table stays so long, for those who have begun to read it."""
_NOTE: Final = '{"compacted":true}'
_ZSTD_LEVEL: Final = 3


class CompactionResult(msgspec.Struct, frozen=True):
    """What was done to a table."""

    before: int
    """Files of it."""
    after: int
    deleted: int
    """Deleted files that no reader can need."""


def compact(tables: Path, at_least: int) -> dict[str, CompactionResult]:
    """Compact every table below a folder that has so many small files; what changed, by table."""
    handle = opened(tables / progress_rows.NAME)
    progress = None if handle is None else progress_rows.last(handle)
    if progress is not None and progress.versions == ABANDONED:
        return {}  # What is in the tables is not what readers see, until the next batch has rebuilt them.
    versions = {} if progress is None else progress.tables
    done = {}
    for folder in sorted(path.parent for path in tables.glob(f"*/{LOG}")):
        # Only what is finished: the rest changes with the next batch anyway.
        if folder.name in versions:
            done[folder.name] = _compact_one(folder, at_least, versions[folder.name])
    if progress is not None:
        _move(tables, progress)
        done[progress_rows.NAME] = _compact_one(tables / progress_rows.NAME, at_least, None)
    return {name: each for name, each in done.items() if each.before != each.after or each.deleted}


def _compact_one(folder: Path, at_least: int, needed: int | None) -> CompactionResult:
    handle = DeltaTable(str(folder))
    here = list(files(handle))
    small = [size for _, size, is_open in here if size < SMALL_BYTES and not is_open]
    if len(small) >= max(at_least, 2):
        _merge(folder, handle)
    deleted = _vacuum(folder, needed)
    # As of the version that readers have now: none goes that one of them is about to open.
    DeltaTable(str(folder), version=needed).cleanup_metadata()
    return CompactionResult(len(here), len(list(files(DeltaTable(str(folder))))), deleted)


def _merge(folder: Path, handle: DeltaTable) -> None:
    partition: Any = [(OPEN, "=", "false")] if OPEN in handle.metadata().partition_columns else None
    known = {path for path, _, _ in files(handle)}
    try:
        handle.optimize.compact(
            partition,
            target_size=TARGET_BYTES,
            writer_properties=WriterProperties(compression="ZSTD", compression_level=_ZSTD_LEVEL),
            commit_properties=exactly(_NOTE),
        )
    except CommitFailedError:
        return  # A batch came between; the next time will do.
    new = [folder / path for path, _, _ in files(handle) if path not in known]
    for path in [*new, *{path.parent for path in new}]:
        sync(path)
    sync_commit(folder, handle.version())


def _vacuum(folder: Path, needed: int | None) -> int:
    """Files that were removed long ago, and are not of the version that readers have."""
    handle = DeltaTable(str(folder))
    kept = None if needed is None else [needed]
    if not handle.vacuum(KEPT_HOURS, dry_run=True, keep_versions=kept):
        return 0
    try:
        return len(handle.vacuum(KEPT_HOURS, dry_run=False, keep_versions=kept, commit_properties=exactly(_NOTE)))
    except CommitFailedError:
        return 0


def _move(tables: Path, progress: Progress) -> None:
    """Let the progress row name the compacted versions: they have the same batch, so they have the same rows."""
    moved = {name: _same_batch(tables / name, progress.batch, at) for name, at in progress.tables.items()}
    folder = tables / progress_rows.NAME
    handle = DeltaTable(str(folder))
    if moved == progress.tables or has_batch(folder, handle) != progress.batch:
        return
    # The row alone cannot be changed, only its file, with all rows there are in it.
    actions = handle.get_add_actions(flatten=True)
    names = ("path", "size_bytes", "min.batch", "max.batch")
    for path, size, low, high in zip(*(actions.column(name).to_pylist() for name in names), strict=True):
        if high == progress.batch:
            rows = progress_rows.rows(handle, f"batch >= {low} and batch <= {high}")
            new = [row if row.batch < high else msgspec.structs.replace(row, tables=moved) for row in rows]
            _swap(folder, handle, (path, size), new)


def _same_batch(folder: Path, batch: int, version: int) -> int:
    """The last version of a table, if it has no later batch."""
    handle = DeltaTable(str(folder))
    return handle.version() if has_batch(folder, handle) == batch else version


def _swap(folder: Path, handle: DeltaTable, old: tuple[str, int], rows: list[Progress]) -> None:
    version, now = handle.version(), int(time.time() * 1000)
    new = parts.write(PROGRESS, as_arrow(rows), folder, name=f"{rows[-1].batch}-{progress_rows.NAME}")
    path, size = old
    removed = RemoveAction(path, False, now, size)
    added = [AddAction(part.path, part.size, part.partition, now, False, part.stats) for part in new]
    try:
        handle.create_write_transaction([removed, *added], "append", handle.schema(), commit_properties=exactly(_NOTE))
    except CommitFailedError:
        return  # The next batch is finished: its row counts now.
    sync_commit(folder, version + 1)
