"""A watch that runs for days: it does not grow, and what was thinned out is not missed."""

import gc
import time
import tracemalloc
from pathlib import Path

from mew.pipeline.jobs.watching import BatchFinished, Watch, WatchOptions
from mew.pipeline.lake import Lake
from mew.pipeline.lake.tidying import DAY
from mew.pipeline.lookup.moments import moment
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import generate

BATCHES = 15
KILOBYTE = 1024


class Never:
    """Never stops."""

    is_set = False

    def wait(self, _seconds: float) -> bool:
        return False


def test_every_moment_is_told_as_before_when_state_files_were_thinned_out(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    truth = generate(journal, records=5_000, spaces=1, seed=4)
    run_all(journal, tmp_path / "lake", most=300)
    lake, last = Lake(tmp_path / "lake"), truth.spaces["harbour"].last
    moments = [last, last // 2, last // 3, 350, 7]
    before = [moment(lake, journal, "harbour", at) for at in moments]
    assert len(lake.states()) > 10
    lake.tidy(time.time() + DAY)
    assert len(lake.states()) <= 3
    assert [moment(lake, journal, "harbour", at) for at in moments] == before


def test_the_memory_of_a_watch_does_not_grow_with_its_batches(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=8_000, spaces=1, seed=5)
    habits = WatchOptions(every=0, most=300)
    watch = Watch(tmp_path / "journal", Lake(tmp_path / "lake"), ENGINE, Never(), habits)
    watch.made = lambda _made: None
    sizes = []
    tracemalloc.start()
    try:
        for told in watch.run():
            if isinstance(told, BatchFinished):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
                if len(sizes) == BATCHES:
                    break
    finally:
        tracemalloc.stop()
    middle, end = min(sizes[BATCHES // 3 : BATCHES // 2]), min(sizes[-4:])
    assert end - middle < 300 * KILOBYTE, sizes
