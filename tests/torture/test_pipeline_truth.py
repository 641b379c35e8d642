"""A million records on Spark: every table that has a truth is true, and the busy formats have tables of their own."""

from pathlib import Path

import pytest

from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.pipeline.lookup import query
from mew.pipeline.lookup.typed import format_view
from mew.pipeline.schemas import TABLES
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from mew.pipeline.spread import SparkEngine
from tests.pipeline.jobs.truths import is_true
from tools.journal_generator import generate

RECORDS = 1_000_000


@pytest.mark.timeout(1800)
def test_a_large_journal_is_what_its_story_knows(tmp_path: Path) -> None:
    truth = generate(tmp_path / "journal", records=RECORDS, spaces=2, seed=99)
    lake = Lake(tmp_path / "lake")
    session = open_session(PipelineSettings(master="local[2]", driver_memory="1g"), lake=lake.path)
    try:
        run = run_batch(tmp_path / "journal", lake, SparkEngine(lambda: session))
    finally:
        close_session(session)
    assert run is not None
    print({stage: round(seconds, 1) for stage, seconds in run.seconds.items()})
    is_true(lake.path, truth)
    typed = run.tables.keys() - TABLES.keys()
    assert typed
    for name in typed:
        rows = f"select count(*) from frames where valid and format = '{name[-16:]}'"
        counts = []
        for sql in (f"select count(*) from {name}", rows):
            with query(lake, sql, views=format_view) as answer:
                counts += list(answer)
        assert counts[0] == counts[1] > (90_000,)
