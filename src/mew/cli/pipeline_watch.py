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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from mew.cli import FAILED
from mew.cli.pipeline import Place, _here, _places, _session
from mew.errors import MewError

if TYPE_CHECKING:
    from mew.pipeline.jobs.watching import Told
    from mew.pipeline.lake import Lake
    from mew.pipeline.publishing import Publisher

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
TOKEN: Final = "MEW_TOKEN"
URL: Final = "ws://localhost:8080"


class BadWatch(MewError):
    """What was asked for cannot be watched like that."""


@Parameter(name="*")
@dataclass(frozen=True)
class Publishing:
    """Telling the space itself.

    Parameters
    ----------
    publish
        Join the space, and publish what became final and what is wrong as a stream.
    url
        The address of its gateway.
    space
        Which space, by its id; needed where the journal has several.
    token_env
        The environment variable that has the token to join with.
    """

    publish: _Flag = False
    url: str = URL
    space: str | None = None
    token_env: str = TOKEN


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
    place: Place = _here,
    publishing: Publishing = Publishing(),  # noqa: B008 - frozen
    every: str = "1s",
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
    from mew.pipeline.jobs.planning import spaces_of
    from mew.pipeline.jobs.watching import Habits, Watch
    from mew.pipeline.lake import Lake

    journal, folder = _places(place)
    habits = Habits(every=_seconds(every))
    publisher = _publisher(publishing, spaces_of(journal))  # before anything is made: there is a journal
    folder.mkdir(parents=True, exist_ok=True)
    lake, stop = Lake(folder), Signals()
    with ExitStack() as stack:
        stack.enter_context(lake.locked("mew pipeline watch"))
        if publisher is not None:
            stack.enter_context(publisher)
        watching = Watch(journal, lake, _Spark(stack, folder, master), stop, habits)
        for told in watching.run():
            _say(told, json=json)
            if publisher is not None:
                _publish(publisher, lake, told, json=json)
    return FAILED if watching.troubles or (publisher is not None and publisher.problem) else 0


def _seconds(every: str) -> float:
    found = _DURATION.fullmatch(every)
    if found is None:
        raise BadWatch(f"--every: expected a time such as 500ms, 1s or 2m, got {every!r}")
    return float(found[1]) * _SECONDS[found[2]]


# Publishing


def _publisher(wanted: Publishing, spaces: list[str]) -> "Publisher | None":
    if not wanted.publish:
        return None
    space = wanted.space or (spaces[0] if len(spaces) == 1 else None)
    if space is None:
        raise BadWatch(f"the journal has the spaces {', '.join(spaces)}: say which with --space")
    token = os.environ.get(wanted.token_env)
    if not token:
        raise BadWatch(f"--publish needs a token: put it into the environment as {wanted.token_env}")
    from mew.pipeline.publishing import Publisher

    return Publisher(wanted.url, space, token)


def _publish(publisher: "Publisher", lake: "Lake", told: "Told", *, json: bool) -> None:
    """Hand on what a batch made final; where it cannot be any more, say so once."""
    from mew.pipeline.jobs.watching import Finished, Trouble
    from mew.pipeline.publishing import figures

    if publisher.problem is not None:
        if not publisher.was_told:
            publisher.was_told = True
            _say(Trouble(None, f"nothing is published any more: {publisher.problem}"), json=json)
    elif isinstance(told, Finished):
        publisher.publish(figures(lake, told.progress, publisher.space, publisher.me))


class _Spark:
    """Spark, once there is something to do, and again where its JVM has died."""

    def __init__(self, stack: ExitStack, lake: Path, master: str | None) -> None:
        self._stack = stack
        self._lake = lake
        self._master = master
        self._session: Any = None

    def __call__(self, work: Any, items: Any) -> list[bytes]:
        from mew.pipeline.session import close_session
        from mew.pipeline.spread import spread

        session = _session(self._lake, self._master, ui=False)
        if session is not self._session:
            self._session = session
            self._stack.callback(close_session, session)
        return spread(session, work, items)


# Saying


def _say(told: "Told", *, json: bool) -> None:
    from mew.cli.pipeline_text import watched
    from mew.pipeline.jobs.watching import Notice, Trouble

    if json:
        print(msgspec.json.encode({type(told).__name__.lower(): told}).decode(), flush=True)
    elif isinstance(told, Notice | Trouble):
        print(f"mew: {watched(told)}", file=sys.stderr, flush=True)
    else:
        print(watched(told), flush=True)
