"""The keeper of journals: what it is asked for is done by a process of its own, one after the other, or reported."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal import maintenance
from mew.journal.layout import JournalFolder
from mew.journal.maintenance import MaintenanceClient, MaintenanceMessage
from tests.journal.journal_fixture import Kept
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
    """A sealer that behaves as it is told, and a keeper that has it."""

    def __init__(self, folder: Path, behaviour: str) -> None:
        self.folder = folder
        self.journal = JournalFolder(folder / "journal", "lab")
        script = folder / "sealer.py"
        script.write_text(SEALER.format(folder=str(folder), behaviour=behaviour), encoding="utf-8")
        self.answers: list[MaintenanceMessage] = []
        self.keeper = MaintenanceClient(self.answers.append, (sys.executable, str(script)))

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.keeper.seal(self.journal, self.journal.log_file(number))

    def asked(self) -> list[int]:
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
def sealer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(maintenance, "PAUSE_SECONDS", 0.01)

    @contextmanager
    def made(behaviour: str = "pass") -> Iterator[Sealer]:
        made = Sealer(tmp_path, behaviour)
        try:
            yield made
        finally:
            made.keeper.close(0)

    return made


def test_what_is_asked_for_is_done_in_order_by_one_process(sealer: Callable[..., Any]) -> None:
    with sealer() as kept:
        kept.ask(3, 1, 2)
        assert kept.keeper.close(20)
        assert kept.done() == kept.asked() == [3, 1, 2]
        assert len(kept.processes()) == 1
        assert kept.keeper.pending == 0


def test_where_nothing_is_asked_for_there_is_no_process(sealer: Callable[..., Any]) -> None:
    with sealer() as kept:
        assert kept.keeper.close(20)
        assert kept.processes() == []


def test_a_process_that_dies_is_started_again_and_asked_again(sealer: Callable[..., Any]) -> None:
    with sealer("if len((here / 'asked').read_text().splitlines()) == 2: os._exit(1)") as kept:
        kept.ask(1, 2, 3)
        assert kept.keeper.close(20)
        assert kept.asked() == [1, 2, 2, 3]
        assert kept.done() == [1, 2, 3]
        assert len(kept.processes()) == 2


def test_a_process_that_was_killed_between_two_requests_is_started_again(sealer: Callable[..., Any]) -> None:
    with sealer() as kept:
        kept.ask(1)
        until(lambda: kept.done() == [1])
        os.kill(kept.processes()[0], signal.SIGKILL)
        kept.ask(2)
        assert kept.keeper.close(20)
        assert kept.done() == [1, 2]


def test_a_process_that_always_dies_is_reported_and_the_next_request_is_tried(sealer: Callable[..., Any]) -> None:
    with sealer("if request['seal']['log'].endswith('1.log'): os._exit(1)") as kept:
        kept.ask(1, 2)
        assert kept.keeper.close(20)
        assert kept.asked() == [1, 1, 1, 2]
        (failed,) = [answer["failed"] for answer in kept.answers if "failed" in answer]
        assert failed["problem"] == "the sealer ends before it answers"
        assert failed["request"]["seal"]["log"].endswith("1.log")
        assert kept.done() == [2]


@pytest.mark.parametrize("answer", ["nonsense", "[1]", ""])
def test_an_answer_that_is_none_is_reported_and_the_next_request_is_tried(
    sealer: Callable[..., Any], answer: str
) -> None:
    said = f"print({answer!r}, flush=True)"
    with sealer(f"if request['seal']['log'].endswith('1.log'): {said}; continue") as kept:
        kept.ask(1, 2)
        assert kept.keeper.close(20)
        assert ["failed" in each for each in kept.answers] == [True, False]
        assert kept.done() == [2]


def test_a_sealer_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PAUSE_SECONDS", 0.01)
    answers: list[MaintenanceMessage] = []
    keeper = MaintenanceClient(answers.append, (str(tmp_path / "nothing"),))
    folder = JournalFolder(tmp_path, "lab")
    keeper.seal(folder, folder.log_file(0))
    assert keeper.close(20)
    (answer,) = answers
    assert answer["failed"]["request"]["seal"]["space"] == "lab"
    assert answer["failed"]["problem"] == f"the sealer cannot be asked: {tmp_path}/nothing: No such file or directory"


def test_closing_waits_for_all_that_was_asked_for(sealer: Callable[..., Any]) -> None:
    with sealer("time.sleep(0.2)") as kept:
        kept.ask(1, 2, 3)
        assert kept.keeper.close(20)
        assert kept.done() == [1, 2, 3]


def test_closing_does_not_wait_for_ever(sealer: Callable[..., Any]) -> None:
    with sealer("time.sleep(3600)") as kept:
        kept.ask(1, 2)
        until(kept.asked)
        assert not kept.keeper.close(0.05)
        assert kept.asked() == [1]
        with pytest.raises(ProcessLookupError):
            os.kill(kept.processes()[0], 0)


def test_compaction_is_asked_for_and_retention_only_where_it_is_wanted(sealer: Callable[..., Any]) -> None:
    with sealer() as kept:
        kept.keeper.clean_up(kept.journal, now=17, retention_seconds=None)
        kept.keeper.clean_up(kept.journal, now=18, retention_seconds=3.5)
        assert kept.keeper.close(20)
    named = {"root": str(kept.journal.root), "space": "lab"}
    assert [answer["done"] for answer in kept.answers] == [
        {"compact": {**named, "before": 17}},
        {"retain": {**named, "now": 18, "keep_seconds": 3.5}},
        {"compact": {**named, "before": 18}},
    ]


def test_the_real_sealer_seals_and_says_what_it_could_not_do(tmp_path: Path) -> None:
    kept = Kept(tmp_path).append(3)
    log, records = kept.end(), len(kept.records)
    damaged = Kept(tmp_path / "other").append(3)
    broken = damaged.end()
    broken.write_bytes(broken.read_bytes()[:-1])
    answers: list[MaintenanceMessage] = []
    keeper = MaintenanceClient(answers.append)
    keeper.seal(damaged.folder, broken)
    keeper.seal(kept.folder, log)
    assert keeper.close(30)
    failed, sealed = answers
    assert failed["failed"]["problem"].startswith(f"{broken}: damaged at byte ")
    assert (sealed["sealed"]["first"], sealed["sealed"]["records"]) == (0, records)
    assert (log.exists(), broken.exists()) == (False, True)
