"""The figures of a watch for Prometheus: how far it is behind, what it has done, and what is wrong.

Answers `GET /metrics` on this machine, from a thread of its own; how far behind it is, is looked up when it is asked
for, so that a watch that hangs is seen to fall behind. Changes nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mew.errors import MewError
from mew.pipeline.jobs.lagging import lags
from mew.pipeline.jobs.watching import BatchFinished, CompactionDone, Told, Watch

if TYPE_CHECKING:
    from mew.pipeline.lake.values import Progress


HERE: Final = "127.0.0.1"
PATH: Final = "/metrics"
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS: Final = 5
_HELP: Final = {
    "mew_pipeline_lag_positions": ("gauge", "records of the journal that no table has"),
    "mew_pipeline_lag_seconds": ("gauge", "seconds since the last record that the tables have, 0 where they have all"),
    "mew_pipeline_position": ("gauge", "last record that the tables have"),
    "mew_pipeline_batches_total": ("counter", "batches that are in the tables"),
    "mew_pipeline_records_total": ("counter", "records of these"),
    "mew_pipeline_stage_seconds_total": ("counter", "seconds spent in each stage"),
    "mew_pipeline_compactions_total": ("counter", "times that small files were compacted"),
    "mew_pipeline_troubles": ("gauge", "things that are wrong just now"),
    "mew_pipeline_published_total": ("counter", "figures and alarms published to the space"),
    "mew_pipeline_dropped_total": ("counter", "figures and alarms that could not be published"),
}


class CannotMeasure(MewError):
    """The port cannot be listened at."""


class WatchMetrics:
    """Counts what a watch tells."""

    def __init__(self, journal: Path, watch: Watch, published: Callable[[], tuple[int, int]] | None = None) -> None:
        """`published` says how much was, and how much was dropped; None where nothing is published."""
        self._journal = journal
        self._watch = watch
        self._published = published
        self._progress: Progress | None = None
        self._batches = self._records = self._compactions = 0
        self._stages: dict[str, float] = {}

    def note(self, told: Told) -> None:
        """One more message was published."""
        if isinstance(told, CompactionDone):
            self._compactions += 1
        if isinstance(told, BatchFinished):
            self._batches += 1
            self._records += told.records
            spent = told.progress.seconds
            self._stages = {
                name: self._stages.get(name, 0.0) + spent.get(name, 0.0) for name in {**self._stages, **spent}
            }
            self._progress = told.progress

    def text(self) -> str:
        """All figures, as Prometheus reads them."""
        lines = []
        for name, figures in self._figures().items():
            kind, what = _HELP[name]
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value}" for labels, value in figures]
        return "\n".join([*lines, ""])

    def _figures(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        progress = self._progress or self._watch.last
        behind = lags(self._journal, progress)
        positions = {} if progress is None else progress.positions
        counted = {
            "mew_pipeline_batches_total": self._batches,
            "mew_pipeline_records_total": self._records,
            "mew_pipeline_compactions_total": self._compactions,
            "mew_pipeline_troubles": len(self._watch.troubles),
        }
        if self._published is not None:
            names = ("mew_pipeline_published_total", "mew_pipeline_dropped_total")
            counted |= dict(zip(names, self._published(), strict=True))
        return {
            "mew_pipeline_lag_positions": [({"space": space}, lag.positions) for space, lag in behind.items()],
            "mew_pipeline_lag_seconds": [({"space": space}, lag.seconds) for space, lag in behind.items()],
            "mew_pipeline_position": [({"space": space}, at) for space, at in sorted(positions.items())],
            "mew_pipeline_stage_seconds_total": [
                ({"stage": name}, round(spent, 3)) for name, spent in sorted(self._stages.items())
            ],
            **{name: [({}, value)] for name, value in counted.items()},
        }


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


@contextmanager
def served(port: int, text: Callable[[], str]) -> Iterator[int]:
    """Answer with a text as long as it lasts; the port, which with 0 is a free one."""

    class Handler(BaseHTTPRequestHandler):
        """One who asks."""

        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            """The figures, at their one address."""
            if self.path.partition("?")[0] != PATH:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = text().encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    try:
        server = ThreadingHTTPServer((HERE, port), Handler)
    except (OSError, OverflowError) as problem:
        raise CannotMeasure(f"--metrics-port {port}: {problem}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="mew-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(REQUEST_SECONDS)
