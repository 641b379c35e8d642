"""The join message, the identity behind a token, and the sessions of a space.

Pure (protocol §2). Tokens are secrets, so the core reaches them through the interface `Tokens` alone.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.commands import Join, Transport
from mew.protocol.effects import Close, Deliver, Effect, To
from mew.protocol.envelope import Stamp, compose, given_id
from mew.protocol.errors import InvalidEnvelope, Kicked, MissingToken, Refusal, SpaceNotFound, Unauthenticated
from mew.protocol.frames import is_frame
from mew.protocol.ids import is_participant_id, is_reserved_id

if TYPE_CHECKING:
    from mew.protocol.space import Space


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


JOIN_SLOW_UNITS: Final = 500
"""What reading the numbers of a join message may take, in units of work; a join needs none."""


class JoinRequest(msgspec.Struct, frozen=True):
    """Who somebody says it is, where it wants to go, and with what proof; from header, query or message."""

    space: str | None = None
    participant: str | None = None
    token: str | None = None
    cause: tuple[str, ...] = ()
    """The id of the message, where it had one."""

    def or_else(self, other: "JoinRequest") -> "JoinRequest":
        """This request, and from the other what it lacks."""
        return JoinRequest(
            self.space or other.space,
            self.participant or other.participant,
            self.token or other.token,
            self.cause or other.cause,
        )


_PARTICIPANT = ("participantId", "participant_id", "participant")


def is_join(values: Mapping[str, Any]) -> bool:
    """Whether a message is a join, in either of its shapes."""
    return values.get("kind") == kinds.JOIN or (values.get("type") == "join" and "kind" not in values)


def read_join(values: Mapping[str, Any]) -> JoinRequest:
    """The request in a join message of any shape: its fields at top level or in `payload`."""
    payload = values.get("payload")
    places = [values, payload if isinstance(payload, dict) else {}]

    def find(*names: str) -> str | None:
        found = [place[name] for place in places for name in names if place.get(name) is not None]
        if found and not isinstance(found[0], str):
            raise InvalidEnvelope(f"`{names[0]}` of a join must be a string")
        return found[0] if found else None

    return JoinRequest(find("space"), find(*_PARTICIPANT), find("token"), given_id(values))


class Lobby:
    """The spaces of one gateway, and the way into them."""

    def __init__(self, spaces: Mapping[str, "Space"], tokens: Tokens) -> None:
        """The first space is the one that is meant where none is named."""
        self.spaces = spaces
        self.tokens = tokens

    def first_message(self, message: bytes) -> JoinRequest:
        """What a connection's first message asks for; anything but a join is refused (protocol §2)."""
        if not is_frame(message):
            values = None
            with suppress(raw_json.NotJSON):
                # Nobody pays for it yet.
                if raw_json.count_slow_numbers(message) <= JOIN_SLOW_UNITS:
                    values = raw_json.decode(message)
            if isinstance(values, dict) and is_join(values):
                return read_join(values)
        raise Unauthenticated("join first: the first message must be a `system/join` with a token")

    def admit(self, connection: str, request: JoinRequest) -> tuple["Space", Join]:
        """The space and the `Join` for it, else a refusal that closes the connection."""
        space = self.find(request.space)
        identity = None if request.token is None else self._identify(space, request.token)
        if identity is None:
            return space, self._anonymous(connection, space, request)
        if request.participant not in {None, identity.participant}:
            raise Unauthenticated(f"the token is {identity.participant!r}'s, not {request.participant!r}'s")
        return space, Join(
            connection=connection, participant=identity.participant, observer=identity.observer, cause=request.cause
        )

    def find(self, name: str | None) -> "Space":
        """The named space; none or `default` is the first (protocol §2)."""
        if name in {None, "default"} and name not in self.spaces:
            return next(iter(self.spaces.values()))
        space = self.spaces.get(str(name))
        if space is None:
            raise SpaceNotFound(f"no space {name!r} here", space=name)
        return space

    def authenticate(self, participant: str, request: JoinRequest) -> "Space":
        """The space that an HTTP request of this participant is for (protocol §5)."""
        space, identity = self._bearer(request)
        if identity.observer or identity.participant != participant:
            raise Unauthenticated(f"the token is {identity.participant!r}'s, not {participant!r}'s")
        return space

    def look_in(self, request: JoinRequest) -> "Space":
        """The space that an HTTP request asks about: for any token of it, an observer's too (protocol §5)."""
        space, identity = self._bearer(request)
        if identity.participant in space.state.kicked and not identity.observer:
            raise Kicked(f"{identity.participant!r} was removed from {space.settings.space_id!r}")
        return space

    def payer(self, request: JoinRequest) -> str:
        """Whose budgets an HTTP request is charged to: whoever's the token is."""
        _, identity = self._bearer(request)
        return observer_payer(identity.participant) if identity.observer else identity.participant

    def _bearer(self, request: JoinRequest) -> tuple["Space", Identity]:
        space = self.find(request.space)
        if request.token is None:
            raise MissingToken("send a token: `Authorization: Bearer …`")
        identity = self._identify(space, request.token)
        if identity is None:
            raise Unauthenticated("the token is not known here")
        return space, identity

    def _identify(self, space: "Space", token: str) -> Identity | None:
        """Who the token admits: somebody the space knows, under a name that a participant may bear, or an observer."""
        identity = self.tokens.identify(token)
        if identity is None or identity.space_id != space.settings.space_id or not _may_bear(identity.participant):
            return None
        return identity if identity.observer or space.state.knows(identity.participant) else None

    def _anonymous(self, connection: str, space: "Space", request: JoinRequest) -> Join:
        """Somebody without a valid token, where the space lets such in under a free id."""
        if not space.settings.allow_anonymous:
            if request.token is None:
                raise MissingToken("a token is needed to join")
            raise Unauthenticated("the token is not known here")
        name = request.participant
        if name is None or not _may_bear(name):
            raise Unauthenticated("to join without a token, claim a `participantId` that is well formed")
        if space.state.knows(name):
            raise Unauthenticated(f"{name!r} is somebody else's id")
        if (other := space.ids_in_use.other_than(name)) is not None:
            raise Unauthenticated(f"{name!r} differs from {other!r} in case alone: claim another id")
        return Join(connection=connection, participant=name, anonymous=True, cause=request.cause)


def _may_bear(name: str) -> bool:
    return is_participant_id(name) and not is_reserved_id(name)


def turn_away(connection: str, refusal: Refusal, stamp: Stamp, cause: tuple[str, ...] = ()) -> list[Effect]:
    """Tell a connection that never came in why, and close it; `cause` is the id of its join message."""
    new_id = stamp.new_id
    message = compose(kinds.ERROR, raw_json.encode(refusal.payload()), stamp, correlation_id=cause)
    return [
        Deliver(To(connection), kinds.ERROR, new_id, message),
        Close(connection, refusal.close_code or 4401, refusal.code),
    ]
