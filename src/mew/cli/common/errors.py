"""Errors of commands that end with another code than a wrong use does.

Imports nothing else, so that the command can name them at once.
"""

from typing import ClassVar

from mew.errors import MewError


class Failed(MewError):
    """It was asked for rightly and could not be done."""

    exit_code: ClassVar = 1


class Unreachable(MewError):
    """No gateway answers."""

    exit_code: ClassVar = 3


class Refused(MewError):
    """The gateway answered, and said no."""

    exit_code: ClassVar = 4
