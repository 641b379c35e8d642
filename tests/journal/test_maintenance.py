"""Maintenance: a separate process handles requests in order, or reports an error."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.layout import JournalFolder
from mew.journal.maintenance import MaintenanceClient, MaintenanceMessage
from tests.journal.journal_fixture import JournalFixture
from tests.support.polling import until

SEALER = """\
import json, os, sys, time
from pathlib import Path
here = Path({folder!r})
with (here / "processes").open("a") as file:
    print(os.getpid(), file=file)
for line in sys.stdin:
    request = json.loads(line)
    with (here / "asked").open("a") as file:
        file.write(line)
    {behaviour}
    print(json.dumps({{"done": request}}), flush=True)
"""
"""Stands for the real one; it says who it is and what it was asked for."""


class Sealer:
    """A worker that behaves as configured, and the client that started it."""

    def __init__(self, folder: Path, behaviour: str) -> None:
        self.folder = folder
        self.journal = JournalFolder(folder / "journal", "lab")
        script = folder / "sealer.py"
        script.write_text(SEALER.format(folder=str(folder), behaviour=behaviour), encoding="utf-8")
        self.answers: list[MaintenanceMessage] = []
        self.keeper = MaintenanceClient(self.answers.append, (sys.executable, str(script)), restart_seconds=0.01)

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.keeper.seal(self.journal, self.journal.log_file(number))

    def requested(self) -> list[int]:
        """What the sealer was asked for, in order, as often as it was."""
        if not (self.folder / "asked").exists():
            return []
        lines = (self.folder / "asked").read_text(encoding="utf-8").splitlines()
        return [int(Path(msgspec.json.decode(line)["seal"]["log"]).stem) for line in lines]

    def processes(self) -> list[int]:
        path = self.folder / "processes"
        return [int(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def done(self) -> list[int]:
        """What was done, by the answers."""
        return [int(Path(answer["done"]["seal"]["log"]).stem) for answer in self.answers if "done" in answer]


@pytest.fixture
def sealer(tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def started(behaviour: str = "pass") -> Iterator[Sealer]:
        started = Sealer(tmp_path, behaviour)
        try:
            yield started
        finally:
            started.keeper.close(0)

    return started


def test_what_is_asked_for_is_done_in_order_by_one_process(sealer: Callable[..., Any]) -> None:
    with sealer() as worker:
        worker.ask(3, 1, 2)
        assert worker.keeper.close(20)
        assert worker.done() == worker.requested() == [3, 1, 2]
        assert len(worker.processes()) == 1
        assert worker.keeper.pending == 0


def test_where_nothing_is_asked_for_there_is_no_process(sealer: Callable[..., Any]) -> None:
    with sealer() as worker:
        assert worker.keeper.close(20)
        assert worker.processes() == []


def test_a_process_that_dies_is_started_again_and_asked_again(sealer: Callable[..., Any]) -> None:
    with sealer("if len((here / 'asked').read_text().splitlines()) == 2: os._exit(1)") as worker:
        worker.ask(1, 2, 3)
        assert worker.keeper.close(20)
        assert worker.requested() == [1, 2, 2, 3]
        assert worker.done() == [1, 2, 3]
        assert len(worker.processes()) == 2


def test_a_process_that_was_killed_between_two_requests_is_started_again(sealer: Callable[..., Any]) -> None:
    with sealer() as worker:
        worker.ask(1)
        until(lambda: worker.done() == [1])
        os.kill(worker.processes()[0], signal.SIGKILL)
        worker.ask(2)
        assert worker.keeper.close(20)
        assert worker.done() == [1, 2]


def test_a_process_that_always_dies_is_reported_and_the_next_request_is_tried(sealer: Callable[..., Any]) -> None:
    with sealer("if request['seal']['log'].endswith('1.log'): os._exit(1)") as worker:
        worker.ask(1, 2)
        assert worker.keeper.close(20)
        assert worker.requested() == [1, 1, 1, 2]
        (failed,) = [answer["failed"] for answer in worker.answers if "failed" in answer]
        assert failed["problem"]
        assert failed["request"]["seal"]["log"].endswith("1.log")
        assert worker.done() == [2]


@pytest.mark.parametrize("answer", ["nonsense", "[1]", ""])
def test_an_answer_that_is_none_is_reported_and_the_next_request_is_tried(
    sealer: Callable[..., Any], answer: str
) -> None:
    reply = f"print({answer!r}, flush=True)"
    with sealer(f"if request['seal']['log'].endswith('1.log'): {reply}; continue") as worker:
        worker.ask(1, 2)
        assert worker.keeper.close(20)
        assert ["failed" in answer for answer in worker.answers] == [True, False]
        assert worker.done() == [2]


def test_a_sealer_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    answers: list[MaintenanceMessage] = []
    keeper = MaintenanceClient(answers.append, (str(tmp_path / "nothing"),), restart_seconds=0.01)
    folder = JournalFolder(tmp_path, "lab")
    keeper.seal(folder, folder.log_file(0))
    assert keeper.close(20)
    (answer,) = answers
    assert answer["failed"]["request"]["seal"]["space"] == "lab"
    assert f"{tmp_path}/nothing: No such file or directory" in answer["failed"]["problem"]


def test_closing_waits_for_all_that_was_asked_for(sealer: Callable[..., Any]) -> None:
    with sealer("time.sleep(0.2)") as worker:
        worker.ask(1, 2, 3)
        assert worker.keeper.close(20)
        assert worker.done() == [1, 2, 3]


def test_closing_does_not_wait_for_ever(sealer: Callable[..., Any]) -> None:
    with sealer("time.sleep(3600)") as worker:
        worker.ask(1, 2)
        until(worker.requested)
        assert not worker.keeper.close(0.05)
        assert worker.requested() == [1]
        with pytest.raises(ProcessLookupError):
            os.kill(worker.processes()[0], 0)


def test_compaction_is_asked_for_and_retention_only_where_it_is_wanted(sealer: Callable[..., Any]) -> None:
    with sealer() as worker:
        worker.keeper.clean_up(worker.journal, now=17, retention_seconds=None)
        worker.keeper.clean_up(worker.journal, now=18, retention_seconds=3.5)
        assert worker.keeper.close(20)
    target = {"root": str(worker.journal.root), "space": "lab"}
    assert [answer["done"] for answer in worker.answers] == [
        {"compact": {**target, "before": 17}},
        {"retain": {**target, "now": 18, "keep_seconds": 3.5}},
        {"compact": {**target, "before": 18}},
    ]


def test_the_real_sealer_seals_and_says_what_it_could_not_do(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    log, records = fixture.end(), len(fixture.records)
    damaged = JournalFixture(tmp_path / "other").append(3)
    broken = damaged.end()
    broken.write_bytes(broken.read_bytes()[:-1])
    answers: list[MaintenanceMessage] = []
    keeper = MaintenanceClient(answers.append)
    keeper.seal(damaged.folder, broken)
    keeper.seal(fixture.folder, log)
    assert keeper.close(30)
    failed, sealed = answers
    assert failed["failed"]["problem"].startswith(f"{broken}: ")
    assert (sealed["sealed"]["first"], sealed["sealed"]["records"]) == (0, records)
    assert (log.exists(), broken.exists()) == (False, True)
