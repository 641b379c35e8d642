"""Options of the journal commands: which journal, and which of its records.

This module must not read records.
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

from mew.cli.common.errors import UsageError
from mew.journal.export import RecordFilter
from mew.journal.layout import JournalFolder, spaces_in
from mew.protocol.timestamps import SECOND

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class JournalLocation:
    """The journal to use.

    Parameters
    ----------
    journal
        The folder of the journal; by default .mew/journal of the space in the current directory.
    space
        The id of the space; required if the folder contains the journals of several spaces.
    """

    journal: Path | None = None
    space: str | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class RecordOptions:
    """The records to use.

    Parameters
    ----------
    first
        Only records from this position on.
    last
        Only records up to this position.
    since
        Only records since this time: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    until
        Only records before this time.
    control
        Exclude frames and stream data.
    stream
        Only records of this stream; repeat for more.
    participant
        Only records of this participant; repeat for more.
    event
        Only records of this event: envelope, frame, join, rejected, …; repeat for more.
    """

    first: Annotated[int, Parameter(name="--from")] = 0
    last: Annotated[int | None, Parameter(name="--through")] = None
    since: str | None = None
    until: str | None = None
    control: Annotated[bool, Parameter(negative="")] = False
    stream: _Names = ()
    participant: _Names = ()
    event: _Names = ()

    def record_filter(self) -> RecordFilter:
        """Return the options as a filter."""
        return RecordFilter(
            first=self.first,
            last=self.last,
            since=parse_time("--since", self.since),
            until=parse_time("--until", self.until),
            control=self.control,
            streams=frozenset(self.stream),
            participants=frozenset(self.participant),
            events=frozenset(self.event),
        )


def journal_folder(place: JournalLocation) -> JournalFolder:
    """Return the folder of the journal. Raises `UsageError` if there is none."""
    root, space = place.journal, place.space
    if root is None:
        # Import the configuration loader only if it is needed: it is slow.
        from mew.config import find_config
        from mew.config.loader import load_config
        from mew.gateway.journaling import journal_root

        configured = load_config([find_config(Path.cwd())], environ=os.environ).spaces[0]
        root, space = journal_root(configured), space or configured.settings.space_id
    known_spaces = list(spaces_in(root))
    if not known_spaces:
        raise UsageError(f"no journal at {root}")
    if space is None:
        if len(known_spaces) > 1:
            raise UsageError(f"{root} contains the journals of {_listed(known_spaces)}: choose one with --space")
        space = known_spaces[0]
    if space not in known_spaces:
        raise UsageError(f"{root} has no journal of space {space!r}, only of {_listed(known_spaces)}")
    return JournalFolder(root, space)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def parse_time(option: str, text: str | None) -> int | None:
    """Return the time in an option, in microseconds since 1970. Raises `UsageError`."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return (int(time.time()) - int(ago[1]) * _SECONDS[ago[2]]) * SECOND
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: expected a time such as 2026-03-01T10:00:00Z, or 15m for 15 minutes ago, not {text!r}"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * SECOND)
