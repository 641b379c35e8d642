"""Crash points of a lake: a process that ends silently before its n-th change, be it Python's or Delta's.

Each change is counted, so that a crash before one is a crash right behind the one before it.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

CHANGES = ("fsync", "link", "mkdir", "unlink")
COMMITS = ("create_write_transaction", "create", "vacuum", "cleanup_metadata")
CRASHED = 77
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["deltalake", "duckdb", "mew.pipeline.lake", "pandas", "polars", "pyarrow.compute", "pyarrow.parquet"]
)
"""Processes that are forked from one that has loaded everything, and used nothing yet."""


def crashes(work: Callable[..., Any], prepare: Callable[[int], tuple[Any, ...]], every: int = 1) -> Iterator[int]:
    """Do the work in a process that crashes before its first change, and so on, or before every so-manieth.

    Each number is yielded after its crash; that of the process which got to the end is the last.
    """
    ours, theirs = multiprocessing.Pipe()
    parent = CONTEXT.Process(target=_fork_each, args=(theirs, work))
    parent.start()
    theirs.close()
    number, code = 0, CRASHED
    while code == CRASHED:
        ours.send((number, prepare(number)))
        code = ours.recv()
        assert code in (0, CRASHED), f"the work ended with {code}"
        yield number
        number += every
    ours.close()
    parent.join()


def _fork_each(orders: Connection, work: Callable[..., Any]) -> None:
    """A process whose libraries have done nothing yet, so that others can be forked from it."""
    while True:
        try:
            number, arguments = orders.recv()
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            _run(number, work, arguments)
        orders.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(number: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    code = 1
    try:
        from deltalake import DeltaTable
        from deltalake.table import TableAlterer, TableOptimizer

        calls = iter(range(number))
        for name in CHANGES:
            setattr(os, name, _counted(getattr(os, name), calls))
        for owner, names in ((DeltaTable, COMMITS), (TableAlterer, ("add_columns",)), (TableOptimizer, ("compact",))):
            for name in names:
                setattr(owner, name, _counted(getattr(owner, name), calls))
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def _counted(change: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            os._exit(CRASHED)
        return change(*arguments, **named)

    return counted
