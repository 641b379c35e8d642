"""The join message, the identity of a token, and the sessions of a space.

Pure (protocol §2). Tokens are secrets, so this code reaches them only through the `Tokens` interface.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.commands import Join, Transport
from mew.protocol.effects import Close, Deliver, Effect, OneConnection
from mew.protocol.envelope import Stamp, compose, given_id
from mew.protocol.errors import InvalidEnvelope, Kicked, MissingToken, ProtocolError, SpaceNotFound, Unauthenticated
from mew.protocol.frames import is_frame
from mew.protocol.ids import is_participant_id, is_reserved_id

if TYPE_CHECKING:
    from mew.protocol.space import SpaceCore


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


def observer_payer(name: str) -> str:
    """Return an observer's budget key. It begins with `#`, because an observer may have a participant's name."""
    return f"#{name}"


JOIN_SLOW_UNITS: Final = 500
"""Most work units that reading the numbers of a join message may cost. A join needs no numbers."""


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
        found = [place[name] for place in places for name in names if place.get(name) is not None]
        if found and not isinstance(found[0], str):
            raise InvalidEnvelope(f"`{names[0]}` of a join must be a string")
        return found[0] if found else None

    return JoinRequest(find("space"), find(*_PARTICIPANT), find("token"), given_id(values))


class Admission:
    """The spaces of one gateway, and the authentication of requests to them."""

    def __init__(self, spaces: Mapping[str, "SpaceCore"], tokens: Tokens) -> None:
        """Use the first space for requests that do not name one."""
        self.spaces = spaces
        self.tokens = tokens

    def first_message(self, message: bytes) -> JoinRequest:
        """Return the join request in a connection's first message. Anything but a join is rejected (protocol §2)."""
        if not is_frame(message):
            values = None
            with suppress(raw_json.NotJSON):
                # The sender is not known yet, so this work cannot be charged to any budget.
                if raw_json.count_slow_numbers(message) <= JOIN_SLOW_UNITS:
                    values = raw_json.decode(message)
            if isinstance(values, dict) and is_join(values):
                return read_join(values)
        raise Unauthenticated("join first: the first message must be a `system/join` with a token")

    def admit(self, connection: str, request: JoinRequest) -> tuple["SpaceCore", Join]:
        """Return the space and a `Join` command for it. Raises a refusal that closes the connection."""
        space = self.find(request.space)
        identity = None if request.token is None else self._identify(space, request.token)
        if identity is None:
            return space, self._anonymous(connection, space, request)
        if request.participant not in {None, identity.participant}:
            raise Unauthenticated(f"the token is {identity.participant!r}'s, not {request.participant!r}'s")
        return space, Join(
            connection=connection, participant=identity.participant, observer=identity.observer, cause=request.cause
        )

    def find(self, name: str | None) -> "SpaceCore":
        """Return the named space. No name or `default` means the first space (protocol §2)."""
        if name in {None, "default"} and name not in self.spaces:
            return next(iter(self.spaces.values()))
        space = self.spaces.get(str(name))
        if space is None:
            raise SpaceNotFound(f"no space {name!r} here", space=name)
        return space

    def authenticate(self, participant: str, request: JoinRequest) -> "SpaceCore":
        """Return the space of an HTTP request by this participant, which must own the token (protocol §5)."""
        space, identity = self._bearer(request)
        if identity.observer or identity.participant != participant:
            raise Unauthenticated(f"the token is {identity.participant!r}'s, not {participant!r}'s")
        return space

    def look_in(self, request: JoinRequest) -> "SpaceCore":
        """Return the space that an HTTP request is about (protocol §5). Accepts any token of it, even an observer's."""
        space, identity = self._bearer(request)
        if identity.participant in space.state.kicked and not identity.observer:
            raise Kicked(f"{identity.participant!r} was removed from {space.settings.space_id!r}")
        return space

    def payer(self, request: JoinRequest) -> str:
        """Return the key of the budgets that an HTTP request is charged to: those of the token's holder."""
        _, identity = self._bearer(request)
        return observer_payer(identity.participant) if identity.observer else identity.participant

    def _bearer(self, request: JoinRequest) -> tuple["SpaceCore", Identity]:
        space = self.find(request.space)
        if request.token is None:
            raise MissingToken("send a token: `Authorization: Bearer …`")
        identity = self._identify(space, request.token)
        if identity is None:
            raise Unauthenticated("the token is not known here")
        return space, identity

    def _identify(self, space: "SpaceCore", token: str) -> Identity | None:
        """Return the token's identity if it is valid in this space, else None.

        The name must be a valid participant id. The holder must be an observer, or known to the space.
        """
        identity = self.tokens.identify(token)
        if identity is None or identity.space_id != space.settings.space_id or not _may_bear(identity.participant):
            return None
        return identity if identity.observer or space.state.knows(identity.participant) else None

    def _anonymous(self, connection: str, space: "SpaceCore", request: JoinRequest) -> Join:
        """Return the join of a caller without a valid token, if the space allows anonymous joins and the id is free."""
        if not space.settings.allow_anonymous:
            if request.token is None:
                raise MissingToken("a token is needed to join")
            raise Unauthenticated("the token is not known here")
        name = request.participant
        if name is None or not _may_bear(name):
            raise Unauthenticated("to join without a token, claim a `participantId` that is well formed")
        if space.state.knows(name):
            raise Unauthenticated(f"{name!r} is the id of another participant")
        if (other := space.ids_in_use.other_than(name)) is not None:
            raise Unauthenticated(f"{name!r} differs from {other!r} in case alone: claim another id")
        return Join(connection=connection, participant=name, anonymous=True, cause=request.cause)


def _may_bear(name: str) -> bool:
    return is_participant_id(name) and not is_reserved_id(name)


def reject_connection(
    connection: str, refusal: ProtocolError, stamp: Stamp, cause: tuple[str, ...] = ()
) -> list[Effect]:
    """Return the effects that report a refusal to a connection before its join, and close it.

    `cause` is the id of the join message.
    """
    new_id = stamp.new_id
    message = compose(kinds.ERROR, raw_json.encode(refusal.payload()), stamp, correlation_id=cause)
    return [
        Deliver(OneConnection(connection), kinds.ERROR, new_id, message),
        Close(connection, refusal.close_code or 4401, refusal.code),
    ]
