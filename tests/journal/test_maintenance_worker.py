"""The sealer as a process: it does what it is asked, answers each line with one, and outlives what it cannot do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.block_format import FrameBatch
from mew.journal.layout import JournalFolder
from mew.journal.segment_reader import read_segment, verify_segment
from mew.journal.wal import LogWriter
from mew.protocol.records import Record

HOUR = 3600 * 10**6


class Sealer:
    """A running sealer."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "mew.journal.maintenance_worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def tell(self, *lines: bytes) -> None:
        self.stdin.write(b"".join(line + b"\n" for line in lines))
        self.stdin.flush()

    def hear(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line.endswith(b"\n")
        return dict(msgspec.json.decode(line))

    def ask(self, **request: dict[str, Any]) -> dict[str, Any]:
        self.tell(msgspec.json.encode(request))
        return self.hear()

    def end(self) -> None:
        self.stdin.close()
        with self.stdout:
            assert self.stdout.read() == b""
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def sealer() -> Iterator[Sealer]:
    """One for all tests that do not end it: starting takes as long as all they do."""
    running = Sealer()
    yield running
    running.end()


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    return JournalFolder(tmp_path / "journal", "lab")


def logged(folder: JournalFolder, first: int, time: int = HOUR, event: str = "leave") -> Path:
    """A complete file of the log, of four records."""
    folder.log.mkdir(parents=True, exist_ok=True)
    with closing(LogWriter(folder.log_file(first))) as writer:
        frames = FrameBatch(first + 1, time, "bob", "stream-1", first + 1, 10, [b"#stream-1#x"] * 3)
        writer.append([Record(first, time, event, "bob", payload=b"{}"), frames])
    return writer.path


def request(folder: JournalFolder, log: Path) -> dict[str, Any]:
    return {"root": str(folder.root), "space": folder.space, "log": str(log)}


def test_a_log_is_sealed_and_its_segment_told(sealer: Sealer, folder: JournalFolder) -> None:
    log = logged(folder, 4)
    answer = sealer.ask(seal=request(folder, log))
    (segment,) = folder.segments()
    verify_segment(segment)
    result = answer["sealed"]
    assert result.pop("seconds") > 0
    size = segment.control.stat().st_size + segment.frames.stat().st_size
    assert result == {"log": str(log), "first": 4, "last": 7, "records": 4, "bytes": size}
    assert not log.exists()


def test_an_empty_log_is_sealed_with_no_records(sealer: Sealer, folder: JournalFolder) -> None:
    folder.log.mkdir(parents=True)
    log = folder.log_file(4)
    LogWriter(log).close()
    result = sealer.ask(seal=request(folder, log))["sealed"]
    assert (result["first"], result["last"], result["records"], result["bytes"]) == (None, None, 0, 0)
    assert not log.exists()


def test_asked_again_it_gives_the_same_answer(sealer: Sealer, folder: JournalFolder) -> None:
    log = logged(folder, 0)
    once, again = (sealer.ask(seal=request(folder, log))["sealed"] for _ in range(2))
    assert {**once, "seconds": 0} == {**again, "seconds": 0}


BAD_LINES = [
    b"",
    b"nonsense",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b'{"seal":{"root":"x"}}',
    b'{"seal":null,"polish":{}}',
    b'{"seal":{"root":"a","space":"b","log":"c"},"compact":{"root":"a","space":"b","before":1}}',
]


def test_a_bad_line_is_answered_and_the_next_is_done(sealer: Sealer, folder: JournalFolder) -> None:
    for line in BAD_LINES:
        sealer.tell(line)
        failed = sealer.hear()["failed"]
        assert failed["problem"]
    assert sealer.ask(seal=request(folder, logged(folder, 0)))["sealed"]["records"] == 4


def test_a_failure_names_its_request(sealer: Sealer, folder: JournalFolder) -> None:
    log = logged(folder, 0)
    os.truncate(log, log.stat().st_size - 1)
    seal_request = request(folder, log)
    failed = sealer.ask(seal=seal_request)["failed"]
    assert failed["request"] == {"seal": seal_request}
    assert str(log) in failed["problem"]
    assert log.exists()


def test_a_missing_log_is_a_failure(sealer: Sealer, folder: JournalFolder) -> None:
    failed = sealer.ask(seal=request(folder, folder.log_file(9)))["failed"]
    assert "No such file" in failed["problem"]  # the words of the operating system


def test_hours_that_are_over_are_compacted(sealer: Sealer, folder: JournalFolder) -> None:
    for first in (0, 4, 8):
        sealer.ask(seal=request(folder, logged(folder, first)))
    target = {"root": str(folder.root), "space": folder.space}
    result = sealer.ask(compact={**target, "before": 3 * HOUR})["compacted"]
    assert (result["hours"], result["segments"]) == (1, 1)
    (segment,) = folder.segments()
    assert read_segment(segment).column("position").to_pylist() == list(range(12))


def test_an_hour_that_cannot_be_compacted_does_not_keep_others_from_it(sealer: Sealer, folder: JournalFolder) -> None:
    for first, hour in ((0, 1), (4, 1), (8, 2), (12, 2)):
        sealer.ask(seal=request(folder, logged(folder, first, hour * HOUR)))
    damaged = folder.segments()[0].frames
    os.truncate(damaged, 100)
    target = {"root": str(folder.root), "space": folder.space}
    failed = sealer.ask(compact={**target, "before": 5 * HOUR})["failed"]
    assert damaged.name in failed["problem"]
    assert [(segment.first, segment.last) for segment in folder.segments()] == [(0, 3), (4, 7), (8, 15)]


def test_what_need_not_be_kept_is_removed(sealer: Sealer, folder: JournalFolder) -> None:
    for first, hour in ((0, 1), (4, 2), (8, 3)):
        sealer.ask(seal=request(folder, logged(folder, first, hour * HOUR, "checkpoint")))
    target = {"root": str(folder.root), "space": folder.space}
    result = sealer.ask(retain={**target, "now": 4 * HOUR, "keep_seconds": 1.5 * 3600})["retained"]
    assert result["segments"] == 1
    assert [segment.first for segment in folder.segments()] == [4, 8]


def test_it_takes_no_time_from_others(sealer: Sealer) -> None:
    sealer.ask(seal={})
    assert os.getpriority(os.PRIO_PROCESS, sealer.process.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


def test_an_interrupt_is_not_for_it(sealer: Sealer, folder: JournalFolder) -> None:
    sealer.ask(seal={})
    sealer.process.send_signal(signal.SIGINT)
    assert sealer.ask(seal=request(folder, logged(folder, 0)))["sealed"]["records"] == 4


def test_it_ends_with_its_input_after_all_that_was_asked(folder: JournalFolder) -> None:
    lines = [msgspec.json.encode({"seal": request(folder, logged(folder, first))}) for first in range(0, 40, 4)]
    sealer = Sealer()
    sealer.tell(*lines)
    sealer.stdin.close()
    result = [msgspec.json.decode(line)["sealed"]["first"] for line in sealer.stdout]
    sealer.stdout.close()
    assert result == list(range(0, 40, 4))
    assert sealer.process.wait() == 0


def test_requests_are_carried_out_even_if_the_answers_are_not_read(folder: JournalFolder) -> None:
    logs = [logged(folder, first) for first in range(0, 40, 4)]
    sealer = Sealer()
    sealer.stdout.close()
    sealer.tell(*(msgspec.json.encode({"seal": request(folder, log)}) for log in logs))
    sealer.stdin.close()
    assert sealer.process.wait() == 0
    assert folder.logs() == []
