"""A run in a process of its own, to be killed: `python -m tests.pipeline.jobs.driver <journal> <lake>`."""

import sys
from pathlib import Path

from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import ENGINE

if __name__ == "__main__":
    ENGINE.start()
    print("ready", flush=True)
    run_all(Path(sys.argv[1]), Path(sys.argv[2]))
