"""A watch in a process of its own: `python -m tests.pipeline.jobs.watcher <journal> <lake> [<url>]`.

With an address it publishes too, with the token in `MEW_TOKEN`.
"""

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from mew.cli.pipeline.watch import Signals, _complain, _print_event, _publish
from mew.pipeline.jobs.watching import Watch, WatchOptions
from mew.pipeline.lake import Lake
from mew.pipeline.publishing import Publisher
from tests.pipeline.sessions import ENGINE

HABITS = WatchOptions(every=0.2, tidies_after=4, small_files=3)


def main(journal: Path, lake: Lake, url: str | None) -> int:
    publisher = None if url is None else Publisher(url, "lab", os.environ["MEW_TOKEN"])
    watch = Watch(journal, lake, ENGINE, Signals(), HABITS)
    if publisher is not None:
        watch.made = partial(_publish, publisher)
    with nullcontext() if publisher is None else publisher:
        for told in watch.run():
            _print_event(told, json=True)
            if publisher is not None:
                _complain(publisher, json=True)
    return 1 if watch.troubles else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Lake(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
