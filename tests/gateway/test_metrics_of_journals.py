"""The state of the journals: metrics, `/health`, and a warning before the disk is full."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mew.gateway.gateway import Gateway
from mew.gateway.metrics import DiskSpaceMonitor
from mew.journal import JournalSettings
from mew.journal.layout import JournalFolder, disk_used
from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import BINARY, Running, frame, running

SHORT_LOGS = JournalSettings(segment_seconds=0.05)
"""Log files that end soon, so that a new one is needed soon."""


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def figures(clients: Clients, gateway: Running) -> dict[str, float]:
    """The metrics of the journal of the space, by name without the common prefix."""
    answer = ask(clients.raw(gateway), "GET", "/metrics")
    families = text_string_to_metric_families(answer.body.decode())
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("mew_journal_")]
    assert {sample.labels.get("space", "lab") for sample in samples} <= {"lab"}
    return {sample.name.removeprefix("mew_journal_"): sample.value for sample in samples}


def health(clients: Clients, gateway: Running) -> tuple[str, dict[str, str]]:
    answer = ask(clients.raw(gateway), "GET", "/health")
    assert answer.status == 200
    return answer.json["status"], answer.json["journal"]


def test_recorded_events_are_counted(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, journal=JournalSettings()) as gateway:
        alice = clients.joined(gateway)
        stream = alice.open_stream()
        for _ in range(50):
            alice.send(frame(BINARY, stream + b"x" * 100))
            alice.echo()
        last = gateway.ask(lambda it: it.first_hub.space.state.position)
        gateway.until(lambda it: it.journals.open_journals["lab"].writer.synced == last)
        shown = figures(clients, gateway)
        assert (shown["position"], shown["synced_position"], shown["records_total"]) == (last, last, last + 1)
        log = sum(path.stat().st_size for path in JournalFolder(tmp_path / ".mew" / "journal", "lab").logs())
        assert shown["bytes_total"] >= log > 50 * 100
        assert shown["syncs_total"] >= 1
        assert shown["sync_seconds_total"] > 0
        assert (shown["available"], shown["failures_total"], shown["unrecorded_total"]) == (1, 0, 0)
        assert shown["pending_requests"] >= 0
        assert 0 < shown["disk_used_ratio"] <= 1
        assert health(clients, gateway) == ("ok", {"lab": "ok"})
        clients.close()


@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_a_journal_that_cannot_be_written_is_reported_by_health_and_metrics(
    tmp_path: Path, clients: Clients, on_error: str
) -> None:
    settings = JournalSettings(segment_seconds=0.05, on_error="stop" if on_error == "stop" else "continue")
    with running(tmp_path, journal=settings) as gateway:
        alice = clients.joined(gateway)
        gateway.until(lambda it: it.journals.open_journals["lab"].writer._file is None)
        folder = JournalFolder(tmp_path / ".mew" / "journal", "lab").log
        away = folder.with_name("elsewhere")
        folder.rename(away)
        alice.say(kind="chat", payload={"text": "is this recorded?"})
        problem = gateway.until(lambda it: it.journals.open_journals["lab"].writer.problem)
        assert health(clients, gateway) == ("degraded", {"lab": problem})
        shown = figures(clients, gateway)
        assert shown["available"] == 0
        assert shown["failures_total"] >= 1
        assert (shown["unrecorded_total"] > 0) == (on_error == "continue")
        away.rename(folder)
        gateway.until(lambda it: it.journals.open_journals["lab"].writer.problem is None)
        assert health(clients, gateway) == ("ok", {"lab": "ok"})
        assert figures(clients, gateway)["available"] == 1
        clients.close()


def test_a_space_without_a_journal_is_healthy_and_reports_it(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        assert health(clients, gateway) == ("ok", {"lab": "off"})
        assert figures(clients, gateway) == {"pending_requests": 0}


# Disk space


def test_a_disk_that_fills_up_is_reported_once_until_it_has_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {"lab": JournalFolder(tmp_path / "journal", "lab")}
    used = disk_used(folders["lab"])
    room = DiskSpaceMonitor(full=used / 2)
    room.check(folders)
    room.check(folders)
    assert caplog.text.count("fills up") == 1
    assert str(tmp_path) in caplog.text
    room.full = 1.1
    room.check(folders)
    room.full = used / 2
    room.check(folders)
    assert caplog.text.count("fills up") == 2


def test_a_gateway_checks_the_disk_when_it_starts(
    tmp_path: Path, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, journal=SHORT_LOGS) as gateway:
        gateway.ask(lambda it: setattr(it.journals.disk_space, "full", 0.0))
        gateway.ask(lambda it: it.journals.start())
        assert "fills up" in caplog.text


def test_maintenance_that_failed_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with running(tmp_path, journal=JournalSettings()) as gateway:

        def maintain(it: Gateway) -> bool:
            before = it.journals._next_maintenance
            with monkeypatch.context() as patch:
                patch.setattr(JournalFolder, "hours", fail)
                patch.setattr(DiskSpaceMonitor, "check", fail)
                it.journals._maintain()
            return it.journals._next_maintenance is not before

        assert gateway.ask(maintain)
