"""What the programs of this folder share: which role a process plays, whose token it takes, and how it ends.

It does not speak to a gateway. Each program does that itself, with `mew.connect()`, as yours will.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn

from mew.client import ConnectionLost, JoinRefused, MewError, ProtocolError

Role = tuple[str, Callable[[argparse.Namespace], Awaitable[None]]]
"""A participant of space.yaml, and the part that it plays."""
PLACES = (Path.cwd(), Path(__file__).parent)
"""Where a gateway may have left the tokens: it makes them below the folder it is started in."""


class Arguments(argparse.ArgumentParser):
    """The arguments of an example: a role, and its options."""

    def __init__(self, roles: Mapping[str, Role], about: str | None, patience: float = 120.0) -> None:
        """Any of these roles; an example adds options of its own."""
        super().__init__(description=(about or "").partition("\n")[0], allow_abbrev=False)
        self.roles = roles
        self.add_argument("role", choices=roles, help="the part that this process plays")
        self.add_argument("--patience", type=float, default=patience, help="seconds after which it gives up")

    def error(self, message: str) -> NoReturn:
        """One line, and 2."""
        self.exit(2, f"{self.prog}: {message.partition(' (choose')[0]}; the roles are {', '.join(self.roles)}\n")

    def play(self) -> NoReturn:
        """Play the role that the command line names, to its end."""
        options = self.parse_args()
        participant, part = self.roles[options.role]
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # whoever reads us reads each line at once
        os.environ.setdefault("MEW_GATEWAY", "ws://localhost:8080")
        if "MEW_TOKEN" not in os.environ:
            tokens = [place / ".mew" / "tokens" / f"{participant}.token" for place in PLACES]
            found = next((file for file in tokens if file.is_file()), None)
            if found is None:
                self.exit(2, f"no token for {participant}: set MEW_TOKEN, or start a gateway in {PLACES[-1]}\n")
            os.environ["MEW_TOKEN"] = found.read_text().strip()
        try:
            asyncio.run(_patiently(part(options), options.patience))
        except KeyboardInterrupt:
            sys.exit(130)
        except GaveUp:
            self.exit(1, f"{options.role} gave up after {options.patience:g} s: do the other roles run?\n")
        except (MewError, OSError) as error:
            self.exit(_code(error), f"{options.role}: {error}\n")
        sys.exit(0)


class GaveUp(Exception):
    """The role took longer than it may."""


async def _patiently(part: Awaitable[None], seconds: float) -> None:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await part
    except TimeoutError:
        if limit.expired():
            raise GaveUp from None
        raise


def _code(error: Exception) -> int:
    """As `mew` itself ends: 3 without a gateway, 4 where it says no, 1 for anything else."""
    if isinstance(error, ConnectionLost):
        return 3
    return 4 if isinstance(error, JoinRefused | ProtocolError) else 1
