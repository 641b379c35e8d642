"""`mew journal ship`: ships the journal to Kafka until it is stopped.

This module parses options and prints progress. `mew.journal.kafka` sends the blocks and stores the position.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from mew.cli.common.errors import FAILED, UsageError, exit_code_of
from mew.cli.common.io import bar
from mew.cli.journal.options import JournalLocation, journal_folder
from mew.errors import MewError
from mew.journal.layout import JournalFolder, spaces_in

if TYPE_CHECKING:
    from mew.journal.kafka.shipper import Shipping, ShippingNotice


_here = JournalLocation()
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_POLL_SECONDS: Final = 0.2


@Parameter(name="*")
@dataclass(frozen=True)
class ShipOptions:
    """What to ship, and when to stop.

    Parameters
    ----------
    once
        Ship the existing records and stop. Exit code 1 if no broker answers.
    from_start
        Ship all records again, including those that were shipped before.
    forget
        Ship nothing, and forget this topic: retention no longer waits for it.
    supervised
        Also stop at the end of standard input.
    """

    once: _Flag = False
    from_start: _Flag = False
    forget: _Flag = False
    supervised: Annotated[bool, Parameter(show=False, negative="")] = False


_usual = ShipOptions()


def ship_command(*, to: str, place: JournalLocation = _here, options: ShipOptions = _usual, json: _Flag = False) -> int:
    """Ship the journal to a Kafka topic as it is written, until interrupted.

    Resumes after the last shipped record. Only records that are durable on disk are shipped, and retention keeps them
    until they are shipped. If no broker answers, the command reports it and waits. Without --space, it ships all spaces
    of the journal.

    Parameters
    ----------
    to
        The destination: kafka://host:port[,host:port]/topic. The topic is created if it does not exist.
    json
        Print lines of JSON.
    """
    from mew.journal.kafka import parse_topic_url
    from mew.journal.kafka.shipper import Shipping, forget_shipper

    address, folders = parse_topic_url(to), _folders(place)
    if options.forget:
        for folder in folders:
            forget_shipper(folder, address)
        return 0
    stop = threading.Event()
    tell = partial(_print_event, json=json)
    ships = {folder.space: Shipping(folder, address, stop, tell, once=options.once) for folder in folders}
    for shipping in ships.values():
        shipping.begin(from_start=options.from_start)
    started = time.monotonic()
    crew = _Crew(ships, stop, supervised=options.supervised)
    crew.work()
    _sum_up(ships, time.monotonic() - started, json=json)
    for problem in crew.problems:
        print(f"mew: {problem}", file=sys.stderr)
    return crew.exit_code


def _folders(place: JournalLocation) -> list[JournalFolder]:
    if place.journal is None or place.space is not None:
        return [journal_folder(place)]
    folders = [JournalFolder(place.journal, space) for space in spaces_in(place.journal)]
    if not folders:
        raise UsageError(f"no journal at {place.journal}")
    return folders


class _Crew:
    """One thread per space, so that a space that waits or fails does not block the others."""

    def __init__(self, ships: "dict[str, Shipping]", stop: threading.Event, *, supervised: bool) -> None:
        self._ships = ships
        self._stop = stop
        self._supervised = supervised
        self.problems: list[str] = []
        self.exit_code = 0

    def work(self) -> None:
        """Ship until all threads have ended, or a signal arrives."""
        from mew.cli.pipeline.watch import Signals

        signals = Signals()
        threads = [
            threading.Thread(target=self._run, args=(ship,), name=f"ship {space}", daemon=True)
            for space, ship in self._ships.items()
        ]
        for thread in threads:
            thread.start()
        if self._supervised:
            threading.Thread(target=self._until_end_of_input, name="input", daemon=True).start()
        expected = sum(ship.backlog for ship in self._ships.values())
        with bar("shipping") as progress:
            while any(thread.is_alive() for thread in threads):
                if signals.wait(_POLL_SECONDS):
                    break
                done = sum(ship.stats.records for ship in self._ships.values())
                progress(done, max(done, expected))
        self._stop.set()
        for thread in threads:
            thread.join()

    def _run(self, ship: "Shipping") -> None:
        try:
            ship.run()
        except MewError as problem:
            self._end(str(problem), exit_code_of(problem))
        except OSError as problem:
            self._end(str(problem), FAILED)
        except Exception as problem:  # the thread ends here: report any error to the main thread
            self._end(f"{type(problem).__name__}: {problem}", FAILED)

    def _end(self, problem: str, code: int) -> None:
        self.problems.append(problem)
        self.exit_code = max(self.exit_code, code)

    def _until_end_of_input(self) -> None:
        while os.read(0, 1024):
            pass
        self._stop.set()


def _print_event(event: "ShippingNotice", *, json: bool) -> None:
    from mew.journal.kafka.shipper import ShippingError

    if json:
        print(msgspec.json.encode({event.event: event}).decode(), flush=True)
        return
    text = event.problem if isinstance(event, ShippingError) else "the broker answers again, shipping resumes"
    print(f"mew: {event.space}: {text}", file=sys.stderr, flush=True)


def _sum_up(ships: "dict[str, Shipping]", seconds: float, *, json: bool) -> None:
    if json:
        figures = {space: ship.stats for space, ship in ships.items()}
        print(msgspec.json.encode({"shipped": {"seconds": round(seconds, 3), "spaces": figures}}).decode(), flush=True)
        return
    for line in _lines(ships, seconds):
        print(line, flush=True)


def _lines(ships: "dict[str, Shipping]", seconds: float) -> Sequence[str]:
    return [
        f"{space}: {figures.records:,} records in {figures.messages:,} messages, {figures.bytes / 10**6:,.1f} MB, "
        f"in {seconds:.1f} s; next position {figures.position:,}"
        for space, figures in ((space, ship.stats) for space, ship in ships.items())
    ]
