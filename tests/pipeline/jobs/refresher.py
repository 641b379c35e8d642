"""A refresh in a process of its own, to be killed: `python -m tests.pipeline.jobs.refresher <journal> <lake>`."""

import sys
from pathlib import Path

from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from tests.pipeline.sessions import ENGINE

if __name__ == "__main__":
    ENGINE.start()
    print("ready", flush=True)
    run_batch(Path(sys.argv[1]), Lake(Path(sys.argv[2])), ENGINE, refresh=True)
