"""The errors of the command, and one table that gives the exit code of every error.

The table contains names, because the command starts fast only if it does not import the modules of these classes.
"""

from collections.abc import Mapping
from typing import Final

from mew.errors import MewError

FAILED: Final = 1
USAGE_ERROR: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130


class CommandFailed(MewError):
    """The command was valid and failed."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Store the message. If another process failed, `exit_code` is the exit code of that process."""
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(MewError):
    """Usage error or invalid configuration."""


class Unreachable(MewError):
    """No gateway answers."""


class RequestRefused(MewError):
    """The gateway rejected the request."""


EXIT_CODES: Final[Mapping[str, int]] = {
    "mew.cli.common.errors.UsageError": USAGE_ERROR,
    "mew.config.ConfigError": USAGE_ERROR,
    "mew.agents.runner.BadAgent": USAGE_ERROR,
    "mew.bridge.settings.InvalidSettings": USAGE_ERROR,
    "mew.gateway.journaling.JournalLocked": USAGE_ERROR,
    "mew.gateway.server.PortInUse": USAGE_ERROR,
    "mew.journal.kafka.InvalidTopicUrl": USAGE_ERROR,
    "mew.pipeline.control.moment.NotWelcome": USAGE_ERROR,
    "mew.pipeline.jobs.planning.SourceJournalMissing": USAGE_ERROR,
    "mew.pipeline.lake.values.LakeBusy": USAGE_ERROR,
    "mew.pipeline.lake.values.LakeMissing": USAGE_ERROR,
    "mew.pipeline.lake.values.UnknownTable": USAGE_ERROR,
    "mew.pipeline.lookup.asking.BadQuery": USAGE_ERROR,
    "mew.pipeline.lookup.exporting.BadTarget": USAGE_ERROR,
    "mew.pipeline.lookup.moments.NoSuchMoment": USAGE_ERROR,
    "mew.pipeline.measuring.CannotMeasure": USAGE_ERROR,
    "mew.pipeline.report.scope.BadScope": USAGE_ERROR,
    "mew.pipeline.settings.BadSetting": USAGE_ERROR,
    "mew.supervisor.supervisor.AlreadyRunning": USAGE_ERROR,
    "mew._internal.unix_sockets.UntrustedSocket": UNREACHABLE,
    "mew.cli.common.errors.Unreachable": UNREACHABLE,
    "mew.client.errors.ConnectionLost": UNREACHABLE,
    "mew.supervisor.control_socket.ControlUnavailable": UNREACHABLE,
    "mew.cli.common.errors.RequestRefused": REFUSED,
    "mew.client.errors.JoinRefused": REFUSED,
    "mew.client.errors.NotPermitted": REFUSED,
    "mew.journal.kafka.producer.ProducerFenced": REFUSED,
    "mew.protocol.errors.ProtocolError": REFUSED,
}
"""Exit codes by class. A subclass has the exit code of its nearest listed base; every other error has exit code 1."""


def one_line(text: str) -> str:
    """Return external text on one line, without characters that move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def exit_code_of(error: MewError) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    for base in type(error).__mro__:
        code = EXIT_CODES.get(f"{base.__module__}.{base.__qualname__}")
        if code is not None:
            return code
    return FAILED
