"""What can go wrong for a bridge: one tree, so that `except` says what it means.

Values that are raised. Nothing here starts, waits or logs. What a caller in the space is told is `McpFailure`.

    MewError
    ├── BadSettings       a bridge that can never work
    ├── CannotStart       there is no such program, or it may not be run
    ├── ServerLost        this conversation with the MCP server is over; another may follow
    └── TooManyRestarts   it was over too often: the bridge has given up
"""

from mew.errors import MewError


class BadSettings(MewError):
    """Settings with which no bridge can work."""


class CannotStart(MewError):
    """The program of the MCP server cannot be run; to try again were of no use."""


class ServerLost(MewError):
    """The MCP server ended, fell silent, or was never there."""


class TooManyRestarts(MewError):
    """The MCP server was lost more often than its limit allows."""
