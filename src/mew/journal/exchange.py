"""Two folders trade their names in one step, so that whoever looks finds the one or the other and never both.

Copies and deletes nothing. Where the system cannot do it nothing is changed, and `CannotExchange` says so.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mew.errors import MewError
from mew.journal.log import sync_folder

_FROM_HERE: Final = -100
"""AT_FDCWD: a relative path begins at the working folder."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE."""
_SYSTEM_CALL: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
"""The number of renameat2 by machine, for a C library that does not name it."""
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP)
_PROBE: Final = ".exchange"


class CannotExchange(MewError):
    """The kernel or the file system has no exchange of two names."""

    def __init__(self, one: Path, other: Path, problem: str) -> None:
        """Of these two, and why not."""
        super().__init__(
            f"cannot exchange {one} and {other}: {problem}; compaction needs it, and nothing was changed"
            " (both must lie on one file system, and it must know renameat2's RENAME_EXCHANGE)"
        )
        self.one = one
        self.other = other


def exchange(one: Path, other: Path) -> None:
    """Each gets the other's name, in one step; then wait until both names are on the disk."""
    _exchange_names(one, other)
    for parent in {one.parent, other.parent}:
        sync_folder(parent)


def require_exchange(one: Path, other: Path) -> None:
    """`CannotExchange` unless what lies in these two folders can be exchanged; tried with two empty folders."""
    probes = (one / _PROBE, other / _PROBE)
    try:
        for probe in probes:
            probe.mkdir(exist_ok=True)
        _exchange_names(*probes)
    finally:
        for probe in probes:
            if probe.is_dir():
                probe.rmdir()


def _exchange_names(one: Path, other: Path) -> None:
    ctypes.set_errno(0)
    try:
        result = _renameat2()(_FROM_HERE, os.fsencode(one), _FROM_HERE, os.fsencode(other), _EXCHANGE)
    except NotImplementedError as reason:
        raise CannotExchange(one, other, str(reason)) from None
    if result == 0:
        return
    number = ctypes.get_errno()
    if number in _UNABLE:
        raise CannotExchange(one, other, os.strerror(number))
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _renameat2() -> Callable[[int, bytes, int, bytes, int], int]:
    library = ctypes.CDLL(None, use_errno=True)
    named = getattr(library, "renameat2", None)
    if named is not None:
        named.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        return lambda *arguments: int(named(*arguments))
    number = _SYSTEM_CALL.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        raise NotImplementedError(f"{platform.system()} on {platform.machine()} has no renameat2 that we know")
    library.syscall.restype = ctypes.c_long
    return lambda at, path, to, target, flags: int(
        library.syscall(
            ctypes.c_long(number), ctypes.c_int(at), ctypes.c_char_p(path), ctypes.c_int(to), ctypes.c_char_p(target),
            ctypes.c_uint(flags),
        )
    )  # fmt: skip
