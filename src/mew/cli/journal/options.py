"""What the commands about a journal are told: which journal, and which records of it.

Must not read any record.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from mew.errors import MewError
from mew.journal.export import Wanted
from mew.journal.layout import SECOND, Folder, spaces

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


class NoJournal(MewError):
    """There is no journal where somebody looks for one."""


class BadTime(MewError):
    """A time that cannot be understood."""


@Parameter(name="*")
@dataclass(frozen=True)
class Place:
    """Which journal.

    Parameters
    ----------
    journal
        The folder of a journal, instead of .mew/journal of the space of this directory.
    space
        The space, by its id; needed where a folder has the journals of several.
    """

    journal: Path | None = None
    space: str | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Filters:
    """Which records.

    Parameters
    ----------
    first
        The first position.
    last
        The last position.
    since
        Records of this time and later: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    until
        Records before this time.
    control
        Neither frames nor stream data.
    stream
        Only of this stream; give it again for more.
    participant
        Only of this participant's doing; give it again for more.
    event
        Only of this event: envelope, frame, join, rejected, …; give it again for more.
    """

    first: Annotated[int, Parameter(name="--from")] = 0
    last: Annotated[int | None, Parameter(name="--through")] = None
    since: str | None = None
    until: str | None = None
    control: Annotated[bool, Parameter(negative="")] = False
    stream: _Names = ()
    participant: _Names = ()
    event: _Names = ()

    def wanted(self) -> Wanted:
        """The same for the journal."""
        return Wanted(
            first=self.first,
            last=self.last,
            since=instant("--since", self.since),
            until=instant("--until", self.until),
            control=self.control,
            streams=frozenset(self.stream),
            participants=frozenset(self.participant),
            events=frozenset(self.event),
        )


def folder_of(place: Place) -> Folder:
    """Where the journal is that somebody means; `NoJournal` where there is none."""
    root, space = place.journal, place.space
    if root is None:
        # Only who asks for the space of this directory needs what reads its configuration.
        from mew.config.loader import find_config, load
        from mew.gateway.journaling import journal_root

        configured = load([find_config(Path.cwd())], environ=os.environ).spaces[0]
        root, space = journal_root(configured), space or configured.settings.space_id
    known = list(spaces(root))
    if not known:
        raise NoJournal(f"no journal at {root}")
    if space is None:
        if len(known) > 1:
            raise NoJournal(f"{root} has the journals of {_listed(known)}: say which with --space")
        space = known[0]
    if space not in known:
        raise NoJournal(f"{root} has no journal of the space {space!r}, only of {_listed(known)}")
    return Folder(root, space)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def instant(option: str, text: str | None) -> int | None:
    """A time as somebody gives it with an option, in microseconds since 1970."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return (int(time.time()) - int(ago[1]) * _SECONDS[ago[2]]) * SECOND
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadTime(
            f"{option}: expected a time such as 2026-03-01T10:00:00Z, or 15m for so long ago, not {text!r}"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * SECOND)
