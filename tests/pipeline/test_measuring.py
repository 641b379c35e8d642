"""The figures of a watch: what Prometheus receives, from before the first batch to the end."""

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from mew.pipeline.jobs.lagging import Lag, lags
from mew.pipeline.jobs.watching import BatchFinished, CompactionDone, Watch
from mew.pipeline.lake import Lake
from mew.pipeline.measuring import CannotMeasure, WatchMetrics, served
from mew.protocol.timestamps import SECOND
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import generate

SECONDS = 10


class Never:
    """Never stops."""

    is_set = False

    def wait(self, _seconds: float) -> bool:
        return False


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(mew_\S+) (\S+)$", text, re.MULTILINE)}


def test_how_far_a_watch_is_behind_is_told_before_and_after_each_batch(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "journal"
    truth = generate(whole, records=6_000, spaces=2, seed=3, segment_bytes=100_000)
    journal = Growing(whole, tmp_path / "journal")
    journal.grow(1)
    watch = Watch(journal.path, Lake(tmp_path / "lake"), ENGINE, Never())
    meter = WatchMetrics(journal.path, watch, lambda: (7, 2))
    before = figures(meter.text())
    assert before['mew_pipeline_lag_positions{space="harbour"}'] > 0
    assert before["mew_pipeline_batches_total"] == 0
    told = next(watch.run())
    assert isinstance(told, BatchFinished)
    meter.note(told)
    meter.note(CompactionDone(("frames",)))
    after = figures(meter.text())
    for space in truth.spaces:
        assert after[f'mew_pipeline_lag_positions{{space="{space}"}}'] == 0
        assert after[f'mew_pipeline_position{{space="{space}"}}'] == told.progress.positions[space]
    assert after["mew_pipeline_records_total"] == told.records
    assert after['mew_pipeline_stage_seconds_total{stage="commit"}'] > 0
    assert (after["mew_pipeline_published_total"], after["mew_pipeline_dropped_total"]) == (7, 2)
    assert (after["mew_pipeline_compactions_total"], after["mew_pipeline_troubles"]) == (1, 0)
    journal.grow(1)
    grown = figures(meter.text())
    assert grown['mew_pipeline_lag_positions{space="harbour"}'] > 0
    assert grown['mew_pipeline_lag_seconds{space="harbour"}'] > 0
    time = told.progress.times["harbour"] / SECOND
    assert lags(journal.path, told.progress, now=time + 90)["harbour"].seconds == 90


def test_a_space_that_no_table_has_is_wholly_behind(tmp_path: Path) -> None:
    truth = generate(tmp_path / "journal", records=1_500, spaces=1, seed=3)
    assert lags(tmp_path / "journal", None) == {"harbour": Lag(truth.spaces["harbour"].last + 1, 0.0)}


def test_only_the_one_address_is_answered() -> None:
    with served(0, lambda: "mew_x 1\n") as port:
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{url}/metrics", timeout=SECONDS) as answer:
            assert answer.read() == b"mew_x 1\n"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/", timeout=SECONDS)
        with pytest.raises(CannotMeasure, match=f"--metrics-port {port}: "), served(port, str):
            pass
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/metrics", timeout=SECONDS)


def test_a_port_that_is_none_is_refused_in_a_sentence() -> None:
    with pytest.raises(CannotMeasure, match="--metrics-port 70000"), served(70_000, str):
        pass
