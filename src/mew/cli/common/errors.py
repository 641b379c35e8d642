"""Errors of commands, each with its exit code. A usage error has exit code 2 and is not listed here.

This module imports almost nothing, so that the command starts fast.
"""

from typing import ClassVar

from mew.errors import MewError


class CommandFailed(MewError):
    """The command was valid, and it failed."""

    exit_code: ClassVar = 1


class Unreachable(MewError):
    """No gateway answers at the address."""

    exit_code: ClassVar = 3


class RequestRefused(MewError):
    """The gateway answered and rejected the request."""

    exit_code: ClassVar = 4
