"""Who is behind a connection, and how a token says so.

Pure values, and the interface of the one thing the core leaves outside because it holds secrets.
"""

from typing import Protocol

import msgspec

from mew.protocol.commands import Transport


class Identity(msgspec.Struct, frozen=True):
    """What a token says about its holder."""

    space_id: str
    participant: str
    observer: bool = False


class Tokens(Protocol):
    """Who holds which token; kept outside, because tokens are secrets and a space's state is not."""

    def identify(self, token: str) -> Identity | None:
        """Whose token this is."""
        ...

    def issue(self, space_id: str, participant: str) -> str:
        """The participant's token, made where it has none."""
        ...


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A connection and who is behind it."""

    connection: str
    participant: str
    transport: Transport
    observer: bool = False
    anonymous: bool = False

    @property
    def allowance(self) -> str:
        """Whose rate a message counts against; an observer may be named like a participant, so its is nobody's name."""
        return f"#{self.connection}" if self.observer else self.participant

    @property
    def payer(self) -> str:
        """Whose work and bytes a message counts against; all connections of an observer share."""
        return observer_payer(self.participant) if self.observer else self.participant


def observer_payer(name: str) -> str:
    """Who pays for an observer: nobody's name, because an observer may be named like a participant."""
    return f"#{name}"
