"""Code that the examples share: the role of a process, its token, and its exit code.

It does not use a gateway. Each program connects itself, with `mew.connect()`, as yours will.
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
"""A participant of space.yaml, and the function that plays its role."""
FOLDERS = (Path.cwd(), Path(__file__).parent)
"""Folders that may contain the tokens: a gateway creates them below the folder in which it is started."""


class Arguments(argparse.ArgumentParser):
    """The arguments of an example: a role, and its options."""

    def __init__(self, roles: Mapping[str, Role], description: str | None, patience: float = 120.0) -> None:
        """Accept one of these roles; an example adds its own options."""
        super().__init__(description=(description or "").partition("\n")[0], allow_abbrev=False)
        self.roles = roles
        self.add_argument("role", choices=roles, help="the role that this process plays")
        self.add_argument("--patience", type=float, default=patience, help="timeout in seconds")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: {message.partition(' (choose')[0]}; the roles are {', '.join(self.roles)}\n")

    def play(self) -> NoReturn:
        """Play the role that the command line names, until it ends."""
        options = self.parse_args()
        participant, role = self.roles[options.role]
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe receives each line immediately
        os.environ.setdefault("MEW_GATEWAY", "ws://localhost:8080")
        if "MEW_TOKEN" not in os.environ:
            files = [folder / ".mew" / "tokens" / f"{participant}.token" for folder in FOLDERS]
            token_file = next((file for file in files if file.is_file()), None)
            if token_file is None:
                self.exit(2, f"no token for {participant}: set MEW_TOKEN, or start a gateway in {FOLDERS[-1]}\n")
            os.environ["MEW_TOKEN"] = token_file.read_text().strip()
        try:
            asyncio.run(_limited(role(options), options.patience))
        except KeyboardInterrupt:
            sys.exit(130)
        except RoleTimeout:
            self.exit(1, f"{options.role} did not end within {options.patience:g} s: do the other roles run?\n")
        except (MewError, OSError) as error:
            self.exit(_exit_code(error), f"{options.role}: {error}\n")
        sys.exit(0)


class RoleTimeout(Exception):
    """The role did not end in time."""


async def _limited(role: Awaitable[None], seconds: float) -> None:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await role
    except TimeoutError:
        if limit.expired():
            raise RoleTimeout from None
        raise


def _exit_code(error: Exception) -> int:
    """Return the exit code that `mew` uses: 3 if no gateway answers, 4 if it rejects the request, 1 otherwise."""
    if isinstance(error, ConnectionLost):
        return 3
    return 4 if isinstance(error, JoinRefused | ProtocolError) else 1
