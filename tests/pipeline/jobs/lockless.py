"""A driver with its Spark that takes no lock: `python -m tests.pipeline.jobs.lockless <journal> <lake>`."""

import sys
from pathlib import Path

from mew.pipeline.lake import BatchOutOfOrder
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from tests.pipeline.jobs.drivers import run_on

MOST = 5_000


def main(journal: Path, lake: Path) -> None:
    session = open_session(PipelineSettings(master="local[2]", driver_memory="512m"), lake=lake)
    while True:
        try:
            run_on(session, journal, lake, most=MOST)
        except BatchOutOfOrder:
            continue  # Another has finished the batch that this one was about to plan.
        break
    close_session(session)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
