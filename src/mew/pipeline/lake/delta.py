"""A Delta table as a lake uses it: opened, its files and columns, and what a commit of ours says.

Decides nothing, and loads neither pyarrow nor an engine.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from mew._internal.files import sync
from mew.pipeline.lake.values import APPLICATION, LakeDamaged, LakeError

LOG: Final = "_delta_log"
OPEN: Final = "open"
"""The same as in the schemas, which load pyarrow."""


def has_batch(folder: Path, handle: DeltaTable) -> int:
    """The last batch that a table has."""
    batch = handle.transaction_version(APPLICATION)
    if batch is None:
        raise LakeError(f"{folder}: this table was not made by a lake, or what it says of its batches is lost")
    return batch


def opened(folder: Path, version: int | None = None) -> DeltaTable | None:
    """The table in a folder, now or at a version; None where there is none."""
    try:
        return DeltaTable(str(folder), version=version)
    except TableNotFoundError:
        return None
    except DeltaError as problem:
        which = "it" if version is None else f"its version {version}"
        raise LakeDamaged(f"{folder}: {which} cannot be read: {problem}") from None


def files(handle: DeltaTable) -> Iterator[tuple[str, int, bool | None]]:
    """The files of a table: path within its folder, size, and whether their rows are unfinished."""
    actions = handle.get_add_actions(flatten=True)
    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    partition = f"partition.{OPEN}"
    is_open = actions.column(partition).to_pylist() if partition in actions.column_names else [None] * len(paths)
    return zip(paths, sizes, is_open, strict=True)


def fields(schema: Schema) -> dict[str, dict[str, Any]]:
    """The columns by name, as Delta describes them."""
    return {field["name"]: field for field in json.loads(schema.to_json())["fields"]}


def exactly(note: str, batch: int | None = None) -> CommitProperties:
    """A commit to the very next version, or to none."""
    transactions = None if batch is None else [Transaction(APPLICATION, batch)]
    return CommitProperties({"userMetadata": note}, max_commit_retries=0, app_transactions=transactions)


def sync_commit(folder: Path, version: int) -> None:
    """Wait until a commit is on the disk, which Delta's writer does not."""
    log = folder / LOG
    try:
        sync(log / f"{version:020}.json")
    except FileNotFoundError:
        return  # It is in a checkpoint, and was old enough to go.
    sync(log)
