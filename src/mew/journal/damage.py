"""Where a file of the log is not whole: each such place, what a crash can have left, and what is whole behind it.

Reads, and mends nothing. What no checksum vouches for is neither believed nor shown.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from mew.journal.blocks import HEAD_BYTES, MAGIC, Damaged, Head, check, read_head
from mew.journal.folder import log_first
from mew.journal.log import Block, LogDamaged, read_blocks


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a file that are no whole block."""

    path: Path
    offset: int
    """Where the last whole block before them ends."""
    problem: str
    resumed: int | None
    """Where the next whole block begins; None where no other does."""


def scan(path: Path) -> Iterator[Block | Damage]:
    """Every whole block of a file, in order, and between them what is not; while it is written to, as far as it was."""
    offset: int | None = 0
    last = log_first(path) - 1
    while offset is not None:
        try:
            for block in read_blocks(path, offset):
                last = block.head.last
                yield block
            return
        except LogDamaged as found:
            damage = damage_at(path, found.offset, last)
            if damage is not None:
                yield damage
            offset = found.offset if damage is None else damage.resumed


def damage_at(path: Path, offset: int, last: int) -> Damage | None:
    """What is wrong at a place where no block could be read, behind the record of a position.

    None where one has been written there by now.
    """
    # One look for the place and for what is behind it: a writer may be at work, and it writes from front to back.
    data = path.read_bytes()
    try:
        _check(data, offset)
    except Damaged as problem:
        behind = (candidate for candidate in _candidates(data, offset) if _is_whole(data, candidate, last + 2))
        return Damage(path, offset, str(problem), next(behind, None))
    return None


def is_torn(damage: Damage, synced: int) -> bool:
    """Whether a crash can have left this at the end of the last file, or somebody is writing it.

    Nothing whole follows it, and nobody was told that it was on the disk: so many bytes were, before it was looked at.
    """
    return damage.resumed is None and damage.offset >= synced


def _check(data: bytes, offset: int) -> Head:
    head = read_head(data[offset : offset + HEAD_BYTES])
    check(head, data[offset : offset + HEAD_BYTES + head.body_bytes])
    return head


def _candidates(data: bytes, offset: int) -> Iterator[int]:
    """First where the damaged block says that it ends, then wherever a block could begin."""
    with suppress(Damaged):
        yield offset + HEAD_BYTES + read_head(data[offset : offset + HEAD_BYTES]).body_bytes
    found = data.find(MAGIC, offset + 1)
    while found >= 0:
        yield found
        found = data.find(MAGIC, found + 1)


def _is_whole(data: bytes, offset: int, least: int) -> bool:
    """Whether a block stands here, of records from a position on: a frame may hold the copy of an earlier one."""
    try:
        return _check(data, offset).first >= least
    except Damaged:
        return False
