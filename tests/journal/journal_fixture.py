"""A journal on a disk for tests: blocks in logs and segments as a gateway writes them, with the truth beside it.

Must not read the journal: what a reader finds is compared with `records`.
"""

import json
from pathlib import Path

from mew.journal.block_format import FrameBatch, JournalEntry, decode_block, encode_block
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter
from mew.protocol.records import Record
from mew.protocol.timestamps import SECOND

NOON = 1_763_208_000 * SECOND
IN_A_BLOCK = 6


def entries(first: int, time: int) -> list[JournalEntry]:
    """A block's worth of six records: two of them control, three frames, and stream data."""
    chat = {"protocol": "mew/v0.4", "id": f"a-{first}", "from": "alice", "kind": "chat", "payload": {"text": "é\n"}}
    data = {"id": f"b-{first}", "from": "bob", "kind": "stream/data", "payload": {"sequence": first, "content": [1.50]}}
    chat_bytes, sent = json.dumps(chat).encode(), json.dumps(data).encode()
    frames = [b"#moves#" + json.dumps({"x": first}).encode(), b"#moves#", b"#moves#\x00\xff"]
    number = first + 4
    return [
        Record(
            first,
            time,
            "envelope",
            "alice",
            "chat",
            f"a-{first}",
            size=len(chat_bytes),
            payload=chat_bytes,
            capability="{}",
        ),
        FrameBatch(first + 1, time, "bob", "moves", first + 1, 7, frames),
        Record(
            number, time, "envelope", "bob", "stream/data", f"b-{first}", "moves", number, first, None, len(sent), sent
        ),
        Record(
            first + 5, time + 1, "frame_rejected", "carol", None, None, "moves", None, None, "not_a_writer", 1, b"x"
        ),
    ]


class JournalFixture:
    """One journal, as it grows."""

    def __init__(self, path: Path, space: str = "lab") -> None:
        self.folder = JournalFolder(path / "journal", space)
        self.folder.log.mkdir(parents=True)
        self.records: list[Record] = []
        """All that was written."""
        self.time = NOON
        self.next = 0
        self.writer: LogWriter | None = None

    def append(self, blocks: int = 1) -> "JournalFixture":
        """Blocks to the log that is written to; a new one where there is none."""
        for _ in range(blocks):
            self.write(entries(self.next, self.time))
        return self

    def write(self, block: list[JournalEntry]) -> None:
        """These entries as a block; they begin where the last one ended."""
        if self.writer is None:
            self.writer = LogWriter(self.folder.log_file(block[0].position))
        self.writer.append(block)
        self.records += decode_block(encode_block(block))
        self.next = self.records[-1].position + 1
        self.time = self.records[-1].time

    def checkpoint(self) -> None:
        """A checkpoint record as a block of its own."""
        self.write([Record(self.next, self.time, "checkpoint", "system:gateway", size=2, payload=b"{}")])

    def sync(self) -> None:
        """Say that the disk has what was written so far."""
        assert self.writer is not None
        first = int(self.writer.path.stem)
        self.folder.synced.write_text(f"{first:020} {self.writer.size:020}\n", encoding="ascii")

    def end(self) -> Path:
        """The log is complete."""
        assert self.writer is not None
        self.writer.close()
        path, self.writer = self.writer.path, None
        return path

    def seal(self) -> None:
        """All logs become segments; what comes next goes to a new one."""
        if self.writer is not None:
            self.end()
        for log in self.folder.logs():
            seal_log(self.folder, log)

    def next_hour(self) -> None:
        self.time += HOUR

    @property
    def control(self) -> list[Record]:
        return [record for record in self.records if record.frame_number is None]

    def starts(self) -> list[int]:
        """Every position there is, and one behind the last."""
        return list(range(self.next + 1))


def varied(path: Path) -> JournalFixture:
    """Three segments in two hours, a log that is sealed and still there, one that ended, and one that is written to."""
    fixture = JournalFixture(path)
    fixture.append(2).seal()
    fixture.append(3).seal()
    fixture.next_hour()
    fixture.append(2)
    log = fixture.end()
    whole = log.read_bytes()
    fixture.seal()
    log.write_bytes(whole)
    fixture.append(1).end()
    fixture.append(2)
    return fixture
