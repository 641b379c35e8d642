"""`mew connect`: the interactive terminal of a space."""

import asyncio
import signal
import sys
from pathlib import Path

from mew.cli.common.errors import CommandFailed
from mew.cli.common.target import DIRECTORY, GatewayTarget, Participant, TargetOptions, Token, participant_target

HISTORY = "history.jsonl"


def connect_terminal_command(
    options: TargetOptions = DIRECTORY, *, participant: Participant = None, token: Token = None
) -> int:
    """Take part in a running space from this terminal: messages, participants, streams and proposals.

    Examples:

      mew space connect                          the space of this directory
      mew space connect --participant alice
      MEW_TOKEN=… mew space connect -g ws://host:8080 -s lab

    Parameters
    ----------
    participant
        The participant to use; by default space.default_participant, else the only person.
    token
        The token. Prefer MEW_TOKEN: all users of this machine can read the arguments of a process.
    """
    return _take_part(participant_target(options, participant, token=token), options.space_dir or Path.cwd())


def open_terminal(url: str, space: str, participant: str, token: str, directory: Path | None = None) -> int:
    """Same as `connect_terminal_command`, for callers that already know gateway, space and participant."""
    chosen = GatewayTarget(url=url, space=space, participant=participant, token=token)
    return _take_part(chosen, directory or Path.cwd())


def _take_part(chosen: GatewayTarget, directory: Path) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed("this command needs a terminal: use `mew client connect` for JSON lines")
    return asyncio.run(_run(chosen, directory))


async def _run(chosen: GatewayTarget, directory: Path) -> int:
    import mew
    from mew.cli.terminal.app import Terminal
    from mew.cli.terminal.prompt import InputHistory

    folder = directory / ".mew"
    memory = InputHistory(folder / HISTORY if folder.is_dir() else None)
    connecting = mew.connect(chosen.url, space=chosen.space, token=chosen.token, participant=chosen.participant)
    async with connecting as space:
        terminal = Terminal(space, memory)
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, terminal.action_leave)
        await terminal.run_async()
    return terminal.return_value or 0
