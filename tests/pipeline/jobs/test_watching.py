"""A watch: what a gateway seals is in the tables a moment later, whatever happens to the watch meanwhile."""

import asyncio
import signal
import statistics
from pathlib import Path

import msgspec
import pytest

import mew
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from tests.client.gateway_process import gateway_process
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import CONTENT, contents, run_all
from tests.pipeline.jobs.watched import FAST, WATCH_PROCESS, Watching
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import generate

GOAL_SECONDS = 3.0


class Position(msgspec.Struct):
    x: float
    y: float


async def _play(url: str, frames: int) -> None:
    """A stream with data and frames, of which one is no position."""
    async with mew.connect(url, space="lab", token="token-of-alice") as space:
        stream = await space.announce_stream([Position])
        await stream.start()
        for number in range(frames):
            await stream.send(Position(number, 0.5))
        await stream.send("nowhere")
        await stream.send_data(Position(1, 2))
        await stream.complete()


def _sealed_by(journal: Path, lake: Path) -> list[float]:
    """For each segment, the seconds from its being sealed to its being in the tables."""
    found, history = [], Lake(lake).history()
    for segment in JournalFolder(journal, "lab").segments():
        batch = next(each for each in history if each.positions["lab"] >= segment.last)
        found.append(batch.finished / 1e6 - segment.control.stat().st_mtime)
    return found


@pytest.mark.timeout(120)
def test_what_a_gateway_seals_is_in_the_tables_however_often_the_watch_is_killed(tmp_path: Path) -> None:
    journal, lake = tmp_path / ".mew" / "journal", tmp_path / "lake"
    command = [*WATCH_PROCESS, str(journal), str(lake)]
    with gateway_process(tmp_path, FAST) as gateway:
        asyncio.run(_play(gateway.url, 300))
        watching = Watching(command)
        last = Journal(journal, "lab").last
        assert last is not None
        finished = watching.until_at("lab", last)
        assert finished["records"] > 0
        assert finished["lag"]["lab"]["positions"] >= 0
        killed, _ = watching.end(signal.SIGKILL)
        assert killed == -signal.SIGKILL
        watching = Watching(command)
        for _ in range(4):
            asyncio.run(_play(gateway.url, 200))
            last = Journal(journal, "lab").last
            assert last is not None
            finished = watching.until_at("lab", last)
        gateway.stop()
    last = JournalFolder(journal, "lab").segments()[-1].last
    if finished["progress"]["positions"]["lab"] < last:
        watching.until_at("lab", last)
    assert watching.end(signal.SIGTERM) == (0, "")
    assert any("compacted" in told for told in watching.told)
    run_all(journal, tmp_path / "once")
    expected, found = contents(tmp_path / "once"), contents(lake)
    for name in CONTENT:
        assert found[name] == expected[name], name
    assert len(found["frames"]) == 300 + 4 * 200 + 5 * 2
    took = _sealed_by(journal, lake)[1:]
    print(f"sealed to table: median {statistics.median(took):.2f} s, most {max(took):.2f} s of {len(took)}")
    assert statistics.median(took) < GOAL_SECONDS


def test_a_damaged_space_is_told_once_and_the_others_go_on(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "journal"
    truth = generate(whole, records=8_000, spaces=2, seed=4, segment_bytes=80_000)
    journal = Growing(whole, tmp_path / "journal")
    while journal.grow(100):
        pass
    ill, well = sorted(truth.spaces)
    damaged = JournalFolder(journal.path, ill).segments()[1]
    spoilt = bytearray(damaged.control.read_bytes())
    spoilt[len(spoilt) // 2] ^= 255
    damaged.control.unlink()
    damaged.control.write_bytes(spoilt)
    watching = Watching([*WATCH_PROCESS, str(journal.path), str(tmp_path / "lake")])
    trouble = watching.until(lambda told: "trouble" in told)["trouble"]
    assert trouble["space"] == ill
    assert trouble["problem"] == f"{damaged.control}: its checksum is wrong"
    finished = watching.until_at(well, truth.spaces[well].last)
    assert finished["progress"]["positions"][ill] == damaged.first - 1
    assert finished["lag"][well] == {"positions": 0, "seconds": 0.0}
    assert finished["lag"][ill]["positions"] == truth.spaces[ill].last - damaged.first + 1
    code, _ = watching.end(signal.SIGTERM)
    assert code == 1
    assert sum("trouble" in told for told in watching.told) == 1


@pytest.mark.parametrize("damaged", [True, False])
def test_a_batch_looks_at_nothing_behind_its_end(tmp_path: Path, damaged: bool) -> None:
    journal = tmp_path / "journal"
    generate(journal, records=4_000, spaces=1, seed=5, segment_bytes=60_000)
    first, second, *_ = JournalFolder(journal, "harbour").segments()
    if damaged:
        second.control.write_bytes(b"PAR1")
    else:
        second.control.unlink()
    most = first.last - first.first + 1
    progress = run_batch(journal, Lake(tmp_path / "lake"), ENGINE, most=most)
    assert progress is not None
    assert progress.positions == {"harbour": first.last}


def test_a_hole_is_told_and_gone_on_behind(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "journal"
    truth = generate(whole, records=4_000, spaces=1, seed=5, segment_bytes=60_000)
    (name,) = truth.spaces
    journal = Growing(whole, tmp_path / "journal")
    while journal.grow(100):
        pass
    segments = JournalFolder(journal.path, name).segments()
    segments[1].control.unlink()
    watching = Watching([*WATCH_PROCESS, str(journal.path), str(tmp_path / "lake")])
    watching.until_at(name, segments[0].last)
    notice = watching.until(lambda told: "notice" in told)["notice"]
    assert f"{segments[1].first} to {segments[1].last}" in notice["line"]
    watching.until_at(name, truth.spaces[name].last)
    assert watching.end(signal.SIGINT)[0] == 0


def test_an_interrupted_watch_ends_at_once_when_told_twice(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=3_000, spaces=1, seed=6)
    watching = Watching([*WATCH_PROCESS, str(tmp_path / "journal"), str(tmp_path / "lake")])
    watching.until(lambda told: "finished" in told)
    # Two concurrent signals may be one; the second of two is the system's, and a shell calls that 130.
    assert watching.end(signal.SIGINT, signal.SIGINT)[0] in (0, -signal.SIGINT)
    run_all(tmp_path / "journal", tmp_path / "lake")
    run_all(tmp_path / "journal", tmp_path / "once")
    assert contents(tmp_path / "lake") == contents(tmp_path / "once")
