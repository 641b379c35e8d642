"""`mew pipeline watch`: batch after batch until somebody says stop, and a line for each.

Must not know how a batch is made, nor what is published.
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

from mew._internal.unix_sockets import NAME, address_of, gateway_socket
from mew.cli import FAILED
from mew.cli.pipeline.commands import SourceOptions, _from_here, _places, _session
from mew.errors import MewError

if TYPE_CHECKING:
    from mew.pipeline.jobs.made import BatchPreview
    from mew.pipeline.jobs.watching import Told, Watch, WatchOptions
    from mew.pipeline.lake import Lake
    from mew.pipeline.landing.watching import LandingWatch
    from mew.pipeline.measuring import WatchMetrics
    from mew.pipeline.publishing import Publisher


_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
TOKEN: Final = "MEW_TOKEN"


class BadWatch(MewError):
    """What was asked for cannot be watched like that."""


@Parameter(name="*")
@dataclass(frozen=True)
class Publishing:
    """Telling others: the space itself, and Prometheus.

    Parameters
    ----------
    publish
        Join the space, and publish what became final and what is wrong as a stream.
    url
        The address of its gateway, such as ws://localhost:8080, instead of the socket beside the journal.
    space
        Which space, by its id; needed where the journal has several.
    token_env
        The environment variable that has the token to join with.
    metrics_port
        Answer Prometheus at this port of this machine, under /metrics; 0 for a free one.
    """

    publish: _Flag = False
    url: str | None = None
    space: str | None = None
    token_env: str = TOKEN
    metrics_port: int | None = None


class Signals:
    """Told to stop by SIGINT or SIGTERM; told twice, it is over at once."""

    def __init__(self) -> None:
        """Takes both signals for itself."""
        self.is_set = False
        self._read, self._write = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)

    def _told(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        # The second one is the system's to carry out: Python would look at it only between two steps of its
        # own, and nothing has to be put in order (what is planned is done by whoever comes next).
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        os.write(self._write, b"!")

    def wait(self, seconds: float) -> bool:
        """Do nothing for so long, or until told."""
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
    """Keep the tables up to date with what is sealed in the journal, until interrupted.

    What is damaged is told once and passed by; exit code 1 if something still is at the end.

    Parameters
    ----------
    every
        The least time from one batch to the next, such as 500ms, 1s or 2m.
    master
        Where Spark runs, in Spark's words: local[*] (the default), spark://host:7077, …
    json
        One object of JSON a line instead of lines to read.
    """
    from mew.cli.pipeline.source import settings_here
    from mew.pipeline.jobs.planning import spaces_of
    from mew.pipeline.jobs.watching import WatchOptions

    journal, folder = _places(place)
    if place.source is not None:
        journal.mkdir(parents=True, exist_ok=True)
    habits = WatchOptions(every=_seconds(every), typed=settings_here().typed)
    socket = gateway_socket(Path.cwd()) if place.source is not None else journal.absolute().with_name(NAME)
    publisher = _publisher(publishing, spaces_of(journal), socket)  # before anything is made: there is a journal
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        wanted = _Wanted(journal, folder, habits, place.source, publishing.metrics_port)
        return FAILED if _watched(stack, wanted, publisher, master, json=json) else 0


class _Wanted(NamedTuple):
    """What is watched, and how."""

    journal: Path
    lake: Path
    habits: "WatchOptions"
    source: str | None
    metrics_port: int | None


def _watched(
    stack: ExitStack, wanted: _Wanted, publisher: "Publisher | None", master: str | None, *, json: bool
) -> bool:
    """Watch to the end; whether something is still wrong then."""
    from mew.pipeline.jobs.watching import Watch
    from mew.pipeline.lake import Lake

    lake, stop = Lake(wanted.lake), Signals()
    stack.enter_context(lake.locked("mew pipeline watch"))
    if publisher is not None:
        stack.enter_context(publisher)
    spark = _Spark(stack, wanted.lake, master)
    watching = Watch(wanted.journal, lake, spark, stop, wanted.habits)
    landing = None if wanted.source is None else _landing(wanted.source, lake, spark, stop)
    watching.land = landing
    port = wanted.metrics_port
    meter = None if port is None else _meter(stack, port, wanted.journal, watching, publisher)
    _listen(watching, publisher, meter, json=json)
    wrong = watching.troubles or (publisher is not None and publisher.problem)
    return bool(wrong or (landing is not None and landing.trouble))


def _listen(watching: "Watch", publisher: "Publisher | None", meter: "WatchMetrics | None", *, json: bool) -> None:
    """Say what it tells, to everybody who is to know."""
    if publisher is not None:
        watching.made = partial(_publish, publisher)
    for told in watching.run():
        _say(told, json=json)
        if meter is not None:
            meter.note(told)
        if publisher is not None:
            _complain(publisher, json=json)


def _meter(
    stack: ExitStack, port: int, journal: Path, watching: "Watch", publisher: "Publisher | None"
) -> "WatchMetrics":
    from mew.pipeline.measuring import WatchMetrics, served

    published = None if publisher is None else lambda: (publisher.published, publisher.dropped)
    meter = WatchMetrics(journal, watching, published)
    port = stack.enter_context(served(port, meter.text))
    print(f"mew: figures at http://127.0.0.1:{port}/metrics", file=sys.stderr, flush=True)
    return meter


def _landing(source: str, lake: "Lake", spark: "_Spark", stop: Signals) -> "LandingWatch":
    from mew.cli.pipeline.source import landing_of
    from mew.pipeline.landing.watching import LandingWatch

    return LandingWatch(landing_of(source, lake, spark.session), stop)


def _seconds(every: str) -> float:
    found = _DURATION.fullmatch(every)
    if found is None:
        raise BadWatch(f"--every: expected a time such as 500ms, 1s or 2m, got {every!r}")
    return float(found[1]) * _SECONDS[found[2]]


# Publishing


def _publisher(wanted: Publishing, spaces: list[str], socket: Path) -> "Publisher | None":
    if not wanted.publish:
        return None
    space = wanted.space or (spaces[0] if len(spaces) == 1 else None)
    if space is None:
        raise BadWatch(f"the journal has the spaces {', '.join(spaces)}: say which with --space")
    token = os.environ.get(wanted.token_env)
    if not token:
        raise BadWatch(f"--publish needs a token: put it into the environment as {wanted.token_env}")
    from mew.pipeline.publishing import Publisher

    return Publisher(wanted.url or address_of(socket), space, token)


def _publish(publisher: "Publisher", made: "BatchPreview") -> None:
    """Hand on what a batch makes final."""
    from mew.pipeline.publishing import figures

    if publisher.problem is None:
        publisher.publish(figures(made, publisher.space, publisher.me))


def _complain(publisher: "Publisher", *, json: bool) -> None:
    """Say once that it cannot be published any more."""
    from mew.pipeline.jobs.watching import WatchError

    if publisher.problem is not None and not publisher.was_told:
        publisher.was_told = True
        _say(WatchError(None, f"nothing is published any more: {publisher.problem}"), json=json)


class _Spark:
    """Spark, once there is something to do, and again where its JVM has died."""

    def __init__(self, stack: ExitStack, lake: Path, master: str | None) -> None:
        self._stack = stack
        self._lake = lake
        self._master = master
        self._session: Any = None

    def session(self) -> Any:
        """The one there is, or a new one."""
        from mew.pipeline.session import close_session

        session = _session(self._lake, self._master, ui=False)
        if session is not self._session:
            self._session = session
            self._stack.callback(close_session, session)
        return session

    def __call__(self, work: Any, items: Any) -> list[bytes]:
        from mew.pipeline.spread import run_on_spark

        return run_on_spark(self.session(), work, items)


# Saying


def _say(told: "Told", *, json: bool) -> None:
    from mew.cli.pipeline.query import watched
    from mew.pipeline.jobs.watching import Notice, WatchError

    if json:
        print(msgspec.json.encode({type(told).__name__.lower(): told}).decode(), flush=True)
    elif isinstance(told, Notice | WatchError):
        print(f"mew: {watched(told)}", file=sys.stderr, flush=True)
    else:
        print(watched(told), flush=True)
