"""Commits: a batch's parts become rows of a table, exactly once, also with concurrent attempts.

The rule (pipeline, Exactly once): open; a table that has the batch is left alone; one that lacks an earlier batch is
an error, unless it begins with this one; else commit with that same handle, which fails if anybody was quicker, and
then decide again from the start.
That Delta keeps our batch number beside the table is not enough by itself: it does not keep anybody from adding twice.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from mew._internal.files import make_folder
from mew.pipeline.lake.delta import exactly, fields, files, has_batch, opened, sync_commit
from mew.pipeline.lake.parts import indexed
from mew.pipeline.lake.values import BatchOutOfOrder, LakeDamaged, LakeError, ParquetPart
from mew.pipeline.schemas import OPEN, Table

CONFIGURATION: Final = {
    # Old entries of the log go when the lake is compacted, so that none goes that a reader is about to open.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.checkpointInterval": "100",
}


class TableCommit(msgspec.Struct, frozen=True):
    """What a batch brings to one table."""

    table: Table
    batch: int
    parts: tuple[ParquetPart, ...]
    note: str
    """Kept with the commit, for people."""
    replaces: bool = False
    """Whether nothing of what was there stays."""
    keeps: frozenset[str] = frozenset()
    """Files that stay nevertheless."""
    begins: bool = False
    """Whether the table is one from this batch on: what an abandoned batch left of it is ignored."""
    skips: bool = False
    """Whether the table only gets the batch's number: its rows and columns stay, whatever they are."""


def add(folder: Path, addition: TableCommit) -> int | None:
    """Bring it to the table in a folder, which is made if need be; a version that has this batch and none behind it.

    None where the table has later batches already.
    """
    stuck = -1
    while True:
        handle = _opened(folder, addition)
        version, batch = handle.version(), has_batch(folder, handle)
        if batch >= addition.batch:
            return version if batch == addition.batch else None
        if batch != addition.batch - 1 and not addition.begins:
            raise BatchOutOfOrder(f"{folder}: the table has batch {batch}, so batch {addition.batch} cannot be next")
        _check_parts(folder, addition.parts)
        try:
            if not _fits(handle, folder, addition):
                continue
            _commit(handle, addition)
        except CommitFailedError as problem:
            # If a concurrent commit was first, the table has changed now; otherwise it never works.
            if stuck == version:
                raise LakeError(f"{folder}: batch {addition.batch} cannot be committed: {problem}") from None
            stuck = version
            continue
        sync_commit(folder, version + 1)
        return version + 1


# ------------------------------------------------------------------------------------------------ in parts


def _opened(folder: Path, addition: TableCommit) -> DeltaTable:
    found = opened(folder)
    if found is not None:
        return found
    table = addition.table
    make_folder(folder)
    try:
        DeltaTable.create(
            str(folder),
            Schema.from_arrow(table.schema),
            partition_by=table.partitions,
            name=table.name,
            description=table.comment,
            configuration={**CONFIGURATION, "delta.dataSkippingStatsColumns": ",".join(indexed(table))},
            # A table that comes later than others has nothing of the batches before: as if it had them.
            commit_properties=exactly(addition.note, addition.batch - 1),
        )
        sync_commit(folder, 0)
    except DeltaError:
        if opened(folder) is None:
            raise
    return DeltaTable(str(folder))


def _check_parts(folder: Path, parts: tuple[ParquetPart, ...]) -> None:
    for part in parts:
        path = folder / part.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise LakeDamaged(f"{path}: this part was written, and is not there") from None
        if size != part.size:
            raise LakeDamaged(f"{path}: this part has {size} bytes, {part.size} were written")


def _fits(handle: DeltaTable, folder: Path, addition: TableCommit) -> bool:
    """Whether the table has the columns; if not, those that are new are added, and the handle is of no use any more.

    Without that Delta would take the files, and not show the columns.
    """
    if _overwrites(addition) or addition.skips:
        return True
    has, needs = fields(handle.schema()), fields(Schema.from_arrow(addition.table.schema))
    changed = [name for name in needs if name in has and has[name]["type"] != needs[name]["type"]]
    lost = [name for name in has if name not in needs and not has[name]["nullable"]]
    if changed or lost:
        columns = ", ".join([*changed, *lost])
        raise LakeError(f"{folder}: its columns are not what this program makes ({columns}): a full refresh is needed")
    new = [Field.from_json(json.dumps({**needs[name], "nullable": True})) for name in needs if name not in has]
    if new:
        handle.alter.add_columns(new, commit_properties=exactly(addition.note))
    return not new


def _overwrites(addition: TableCommit) -> bool:
    return addition.replaces and not addition.keeps


def _commit(handle: DeltaTable, addition: TableCommit) -> None:
    if addition.skips:
        own = handle.metadata().partition_columns
        handle.create_write_transaction(
            [], "append", handle.schema(), own, commit_properties=exactly(addition.note, addition.batch)
        )
        return
    now = int(time.time() * 1000)
    removed = [] if _overwrites(addition) else list(_removed(handle, addition, now))
    added = [AddAction(part.path, part.size, part.partition, now, True, part.stats) for part in addition.parts]
    handle.create_write_transaction(
        [*removed, *added],
        "overwrite" if _overwrites(addition) else "append",
        Schema.from_arrow(addition.table.schema),
        addition.table.partitions,
        commit_properties=exactly(addition.note, addition.batch),
    )


def _removed(handle: DeltaTable, addition: TableCommit, now: int) -> Iterator[RemoveAction]:
    """Unfinished rows go in the very commit that brings the new ones."""
    for path, size, is_open in files(handle):
        if is_open or (addition.replaces and path not in addition.keeps):
            partition: dict[str, str | None] | None = None if is_open is None else {OPEN: str(is_open).lower()}
            yield RemoveAction(path, True, now, size, partition)
