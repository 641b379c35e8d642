"""A file of the log: what was appended is read again, and damage costs nothing that stands before it."""

import errno
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.wal import LogDamaged, LogWriter, read_blocks
from mew.protocol.records import Record


def entries(first: int) -> list[JournalEntry]:
    """Four records from this position on."""
    return [
        Record(first, 1_000 + first, "envelope", "alice", "chat", f"a-{first}", size=2, payload=b"{}"),
        FrameBatch(
            first + 1, 1_000 + first, "bob", "stream-1", first, 10, [b"#stream-1#x", b"#stream-1#", b"#stream-1#y"]
        ),
    ]


def written(path: Path, blocks: int) -> list[int]:
    """A file of so many blocks; where each begins, and the end."""
    writer = LogWriter(path)
    ends = [0]
    for number in range(blocks):
        ends.append(ends[-1] + writer.append(entries(4 * number)))
    writer.sync()
    writer.close()
    return ends


def positions(path: Path) -> Iterator[int]:
    return (record.position for block in read_blocks(path) for record in block.records())


def test_what_was_appended_is_read_again_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    ends = written(path, 5)
    assert list(positions(path)) == list(range(20))
    assert [block.offset for block in read_blocks(path)] == ends[:-1]
    assert [block.head.first for block in read_blocks(path, ends[3])] == [12, 16]


def test_an_empty_file_has_no_block(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    written(path, 0)
    assert list(read_blocks(path)) == []


def test_a_file_that_exists_is_not_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    written(path, 1)
    with pytest.raises(FileExistsError):
        LogWriter(path)


def test_only_its_owner_may_read_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    written(path, 1)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_cut_off_at_any_byte_of_its_last_block_has_every_block_before(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    *_, begin, end = written(path, 3)
    whole = path.read_bytes()
    for size in range(begin + 1, end):
        path.write_bytes(whole[:size])
        with pytest.raises(LogDamaged) as damage:
            list(positions(path))
        assert damage.value.offset == begin
        assert str(path) in str(damage.value)
        path.write_bytes(whole[:begin])
        assert list(positions(path)) == list(range(8))


def test_a_flipped_bit_anywhere_is_found_and_nothing_is_invented(tmp_path: Path) -> None:
    path, chance = tmp_path / "a.log", random.Random(7)
    ends = written(path, 10)
    whole = path.read_bytes()
    for _ in range(100):
        bit = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        sound = sum(end <= bit // 8 for end in ends[1:])
        read: list[int] = []
        with pytest.raises(LogDamaged) as damage:
            for position in positions(path):
                read.append(position)
        assert read == list(range(4 * sound))
        assert damage.value.offset == ends[sound]


def test_a_block_that_does_not_fit_on_the_disk_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    writer = LogWriter(path)
    size = writer.append(entries(0))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            writer.append(entries(4))
        assert raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.stat().st_size == writer.size == size
    writer.append(entries(4))
    writer.close()
    assert list(positions(path)) == list(range(8))
