"""`mew pipeline watch`: runs batches until it is stopped, and prints a line for each.

This module does not depend on how a batch is processed or what is published.
"""

import os
import re
import select
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from cyclopts import Parameter

from mew._internal.unix_sockets import GATEWAY_SOCKET, address_of, gateway_socket
from mew.cli.common.errors import FAILED, UsageError
from mew.cli.pipeline.commands import SourceOptions, _from_here, _places, _session

if TYPE_CHECKING:
    from mew.pipeline.jobs.results import BatchPreview
    from mew.pipeline.jobs.watching import Told, Watch, WatchOptions
    from mew.pipeline.lake import Lake
    from mew.pipeline.landing.watching import LandingWatch
    from mew.pipeline.measuring import WatchMetrics
    from mew.pipeline.publishing import Publisher


_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_TOKEN_VARIABLE: Final = "MEW_TOKEN"


@Parameter(name="*")
@dataclass(frozen=True)
class Publishing:
    """Where to publish results: the space itself, and Prometheus.

    Parameters
    ----------
    publish
        Join the space and publish final results and problems as a stream.
    url
        The address of the gateway, such as ws://localhost:8080; by default the socket of the space.
    space
        The id of the space; required if the journal contains several.
    token_env
        The environment variable that contains the token for joining.
    metrics_port
        Serve Prometheus metrics on this local port, at /metrics; 0 uses a free port.
    """

    publish: _Flag = False
    url: str | None = None
    space: str | None = None
    token_env: str = _TOKEN_VARIABLE
    metrics_port: int | None = None


class Signals:
    """Detects SIGINT and SIGTERM. A second signal ends the process immediately."""

    def __init__(self) -> None:
        """Install handlers for both signals."""
        self.is_set = False
        self._read, self._write = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        # The second signal uses the system's default action: Python would handle it only between two of its
        # instructions. No cleanup is needed: the next run resumes a planned batch.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.write(self._write, b"!")
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\nmew: stopping after this stage; a second Ctrl-C stops immediately\n")

    def wait(self, seconds: float) -> bool:
        """Wait for this time or until a signal arrives. Returns whether one has arrived."""
        select.select([self._read], [], [], max(seconds, 0))
        return self.is_set


def watch(
    *,
    place: SourceOptions = _from_here,
    publishing: Publishing = Publishing(),  # noqa: B008 - frozen
    every: str = "250ms",
    master: str | None = None,
    json: _Flag = False,
) -> int:
    """Keep the tables up to date with the journal, until interrupted.

    Damaged segments are reported once and skipped. Exit code 1 if any segment is still damaged at the end.

    Parameters
    ----------
    every
        The minimum time between batches, such as 500ms, 1s or 2m.
    master
        The Spark master: local[*] (the default), spark://host:7077, …
    json
        Print one JSON object per line.
    """
    from mew.cli.pipeline.source import settings_here, unfinished_batch, writing
    from mew.pipeline.jobs.planning import spaces_of
    from mew.pipeline.jobs.watching import WatchOptions

    journal, folder = _places(place)
    if place.source is not None:
        journal.mkdir(parents=True, exist_ok=True)
    habits = WatchOptions(every=_seconds(every), typed=settings_here().typed)
    socket = gateway_socket(Path.cwd()) if place.source is not None else journal.absolute().with_name(GATEWAY_SOCKET)
    publisher = _publisher(publishing, spaces_of(journal), socket)  # raises if there is no journal
    with ExitStack() as stack:
        stack.enter_context(writing(folder))
        folder.mkdir(parents=True, exist_ok=True)
        request = _WatchRequest(journal, folder, habits, place.source, publishing.metrics_port)
        failed = _watched(stack, request, publisher, master, json=json)
    unfinished = unfinished_batch(folder)
    if unfinished is not None:
        print(f"mew: stopped: {unfinished}", file=sys.stderr, flush=True)
    return FAILED if failed else 0


class _WatchRequest(NamedTuple):
    """The options of a watch."""

    journal: Path
    lake: Path
    habits: "WatchOptions"
    source: str | None
    metrics_port: int | None


def _watched(
    stack: ExitStack, request: _WatchRequest, publisher: "Publisher | None", master: str | None, *, json: bool
) -> bool:
    """Watch until stopped. Returns whether something is still wrong at the end."""
    from mew.pipeline.jobs.watching import Watch
    from mew.pipeline.lake import Lake
    from mew.pipeline.spread import SparkEngine

    lake, stop = Lake(request.lake), Signals()
    stack.enter_context(lake.locked("mew pipeline watch"))
    if publisher is not None:
        stack.enter_context(publisher)
    spark = _Spark(stack, request.lake, master)
    watching = Watch(request.journal, lake, SparkEngine(spark.session), stop, request.habits)
    landing = None if request.source is None else _landing(request.source, lake, spark, stop)
    watching.land = landing
    port = request.metrics_port
    meter = None if port is None else _meter(stack, port, request.journal, watching, publisher)
    _listen(watching, publisher, meter, json=json)
    wrong = watching.troubles or (publisher is not None and publisher.problem)
    return bool(wrong or (landing is not None and landing.trouble))


def _listen(watching: "Watch", publisher: "Publisher | None", meter: "WatchMetrics | None", *, json: bool) -> None:
    """Pass each event to the output, the publisher and the metrics."""
    if publisher is not None:
        watching.made = partial(_publish, publisher)
    for event in watching.run():
        _print_event(event, json=json)
        if meter is not None:
            meter.note(event)
        if publisher is not None:
            _complain(publisher, json=json)


def _meter(
    stack: ExitStack, port: int, journal: Path, watching: "Watch", publisher: "Publisher | None"
) -> "WatchMetrics":
    from mew.pipeline.measuring import WatchMetrics, served

    published = None if publisher is None else lambda: (publisher.published, publisher.dropped)
    meter = WatchMetrics(journal, watching, published)
    port = stack.enter_context(served(port, meter.text))
    print(f"mew: metrics at http://127.0.0.1:{port}/metrics", file=sys.stderr, flush=True)
    return meter


def _landing(source: str, lake: "Lake", spark: "_Spark", stop: Signals) -> "LandingWatch":
    from mew.cli.pipeline.source import landing_of
    from mew.pipeline.landing.watching import LandingWatch

    return LandingWatch(landing_of(source, lake, spark.session), stop)


def _seconds(every: str) -> float:
    duration = _DURATION.fullmatch(every)
    if duration is None:
        raise UsageError(f"--every: expected a time such as 500ms, 1s or 2m, got {every!r}")
    return float(duration[1]) * _SECONDS[duration[2]]


# Publishing


def _publisher(publishing: Publishing, spaces: list[str], socket: Path) -> "Publisher | None":
    if not publishing.publish:
        return None
    space = publishing.space or (spaces[0] if len(spaces) == 1 else None)
    if space is None:
        raise UsageError(f"the journal contains the spaces {', '.join(spaces)}: choose one with --space")
    token = os.environ.get(publishing.token_env)
    if not token:
        raise UsageError(f"--publish requires a token: set the environment variable {publishing.token_env}")
    from mew.pipeline.publishing import Publisher

    return Publisher(publishing.url or address_of(socket), space, token)


def _publish(publisher: "Publisher", preview: "BatchPreview") -> None:
    """Publish the final results of a batch."""
    from mew.pipeline.publishing import figures

    if publisher.problem is None:
        publisher.publish(figures(preview, publisher.space, publisher.me))


def _complain(publisher: "Publisher", *, json: bool) -> None:
    """Report once that publishing has failed."""
    from mew.pipeline.jobs.watching import WatchError

    if publisher.problem is not None and not publisher.was_told:
        publisher.was_told = True
        _print_event(WatchError(None, f"publishing has stopped: {publisher.problem}"), json=json)


class _Spark:
    """The Spark session, started on first use, and again if its JVM has died."""

    def __init__(self, stack: ExitStack, lake: Path, master: str | None) -> None:
        self._stack = stack
        self._lake = lake
        self._master = master
        self._session: Any = None

    def session(self) -> Any:
        """Return the current session, or a new one."""
        from mew.pipeline.session import close_session

        session = _session(self._lake, self._master, ui=False)
        if session is not self._session:
            self._session = session
            self._stack.callback(close_session, session)
        return session


# Printing


def _print_event(event: "Told", *, json: bool) -> None:
    from mew.cli.pipeline.query import watched
    from mew.pipeline.jobs.watching import Notice, WatchError

    if json:
        print(msgspec.json.encode({event.event: event}).decode(), flush=True)
    elif isinstance(event, Notice | WatchError):
        print(f"mew: {watched(event)}", file=sys.stderr, flush=True)
    else:
        print(watched(event), flush=True)
