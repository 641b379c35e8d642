"""The join message, the identity of a token, and the session of a connection.

Pure (protocol §2). Tokens are secrets, so this code reaches them only through the `Tokens` interface.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from mew.protocol import kinds
from mew.protocol.envelope import given_id
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.interface import Transport, http_connection, log_connection


class Identity(msgspec.Struct, frozen=True):
    """The participant or observer that a token belongs to, and its space."""

    space_id: str
    participant: str
    observer: bool = False


class Tokens(Protocol):
    """Maps tokens to identities. It is not part of a space's state, because tokens are secrets."""

    def identify(self, token: str) -> Identity | None:
        """Return the identity that this token belongs to, or None if the token is unknown."""
        ...

    def issue(self, space_id: str, participant: str) -> str:
        """Return the participant's token. Creates one if there is none."""
        ...


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A connection, and the participant or observer that uses it."""

    connection: str
    participant: str
    transport: Transport
    observer: bool = False
    anonymous: bool = False

    @property
    def allowance(self) -> str:
        """Key of the rate that a message counts against.

        An observer's key begins with `#`, because the observer may have the same name as a participant.
        """
        return f"#{self.connection}" if self.observer else self.participant

    @property
    def payer(self) -> str:
        """Key of the work and byte budgets that a message counts against. All connections of an observer share one."""
        return observer_payer(self.participant) if self.observer else self.participant


def http_session(participant: str) -> Session:
    """Return the session of a participant that is present through the HTTP API."""
    return Session(connection=http_connection(participant), participant=participant, transport="http")


def log_session(participant: str) -> Session:
    """Return the session of a participant that is present through its `output_log`."""
    return Session(connection=log_connection(participant), participant=participant, transport="virtual")


def observer_payer(name: str) -> str:
    """Return an observer's budget key. It begins with `#`, because an observer may have a participant's name."""
    return f"#{name}"


class JoinRequest(msgspec.Struct, frozen=True):
    """The claimed participant, the requested space and the token of a join; from header, query or message."""

    space: str | None = None
    participant: str | None = None
    token: str | None = None
    cause: tuple[str, ...] = ()
    """The id of the message, if it had one."""

    def or_else(self, other: "JoinRequest") -> "JoinRequest":
        """Return this request, with missing fields taken from the other."""
        return JoinRequest(
            self.space or other.space,
            self.participant or other.participant,
            self.token or other.token,
            self.cause or other.cause,
        )


_PARTICIPANT = ("participantId", "participant_id", "participant")


def is_join(values: Mapping[str, Any]) -> bool:
    """Return whether a message is a join, in either of its two forms."""
    return values.get("kind") == kinds.JOIN or (values.get("type") == "join" and "kind" not in values)


def read_join(values: Mapping[str, Any]) -> JoinRequest:
    """Return the request in a join message. Its fields are at the top level or in `payload`."""
    payload = values.get("payload")
    places = [values, payload if isinstance(payload, dict) else {}]

    def find(*names: str) -> str | None:
        values = [place[name] for place in places for name in names if place.get(name) is not None]
        if values and not isinstance(values[0], str):
            raise InvalidEnvelope(f"`{names[0]}` of a join must be a string")
        return values[0] if values else None

    return JoinRequest(find("space"), find(*_PARTICIPANT), find("token"), given_id(values))
