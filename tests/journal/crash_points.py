"""Crash points: a process that ends silently just before its n-th change to the disk, for each n in turn.

Must not know what it crashes: it counts the calls of the system that make something last.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

CHANGES = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir")
CRASHED = 77
# Slow imports come first; nothing of ours, because the server's path is not that of the tests.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["duckdb", "pyarrow.compute", "pyarrow.parquet", "pytest"])


def crashes(work: Callable[..., Any], prepare: Callable[[int], tuple[Any, ...]]) -> Iterator[int]:
    """Do the work in a process that crashes before its first change, then in one before its second, and so on.

    Each number is yielded after its crash; that of the process which got to the end is the last. `prepare` makes
    the arguments of the work, new each time.
    """
    ours, theirs = multiprocessing.Pipe()
    parent = _CONTEXT.Process(target=_fork_each, args=(theirs, work))
    parent.start()
    theirs.close()
    number, code = 0, CRASHED
    while code == CRASHED:
        ours.send((number, prepare(number)))
        code = ours.recv()
        assert code in (0, CRASHED), f"the work ended with {code}"
        yield number
        number += 1
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
        calls = iter(range(number))
        for name in CHANGES:
            setattr(os, name, _counted(getattr(os, name), calls))
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def _counted(change: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **keywords: Any) -> Any:
        if next(calls, None) is None:
            os._exit(CRASHED)
        return change(*arguments, **keywords)

    return counted
