"""Admission of a connection or an HTTP request: which space and which participant it gets.

Pure (protocol §2). Tokens are secrets, so this code reaches them only through the `Tokens` interface.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from mew.protocol import kinds, raw_json
from mew.protocol.authentication import Identity, JoinRequest, Tokens, is_join, observer_payer, read_join
from mew.protocol.envelope import Stamp, compose
from mew.protocol.errors import Kicked, MissingToken, ProtocolError, SpaceNotFound, Unauthenticated
from mew.protocol.frames import is_frame
from mew.protocol.ids import is_participant_id, is_reserved_id
from mew.protocol.interface import Close, Deliver, Effect, Join, OneConnection
from mew.protocol.space import SpaceCore

JOIN_SLOW_UNITS: Final = 500
"""Most work units that reading the numbers of a join message may cost. A join needs no numbers."""


class Admission:
    """The spaces of one gateway, and the authentication of requests to them."""

    def __init__(self, spaces: Mapping[str, SpaceCore], tokens: Tokens) -> None:
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
                    values = raw_json.decode_json(message)
            if isinstance(values, dict) and is_join(values):
                return read_join(values)
        raise Unauthenticated("join first: the first message must be a `system/join` with a token")

    def admit(self, connection: str, request: JoinRequest) -> tuple[SpaceCore, Join]:
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

    def find(self, name: str | None) -> SpaceCore:
        """Return the named space. No name or `default` means the first space (protocol §2)."""
        if name in {None, "default"} and name not in self.spaces:
            return next(iter(self.spaces.values()))
        space = self.spaces.get(str(name))
        if space is None:
            raise SpaceNotFound(f"no space {name!r} here", space=name)
        return space

    def authenticate(self, participant: str, request: JoinRequest) -> SpaceCore:
        """Return the space of an HTTP request by this participant, which must own the token (protocol §5)."""
        space, identity = self._bearer(request)
        if identity.observer or identity.participant != participant:
            raise Unauthenticated(f"the token is {identity.participant!r}'s, not {participant!r}'s")
        return space

    def look_in(self, request: JoinRequest) -> SpaceCore:
        """Return the space that an HTTP request is about (protocol §5). Accepts any token of it, even an observer's."""
        space, identity = self._bearer(request)
        if identity.participant in space.state.kicked and not identity.observer:
            raise Kicked(f"{identity.participant!r} was removed from {space.settings.space_id!r}")
        return space

    def payer(self, request: JoinRequest) -> str:
        """Return the key of the budgets that an HTTP request is charged to: those of the token's holder."""
        _, identity = self._bearer(request)
        return observer_payer(identity.participant) if identity.observer else identity.participant

    def _bearer(self, request: JoinRequest) -> tuple[SpaceCore, Identity]:
        space = self.find(request.space)
        if request.token is None:
            raise MissingToken("send a token: `Authorization: Bearer …`")
        identity = self._identify(space, request.token)
        if identity is None:
            raise Unauthenticated("the token is not known here")
        return space, identity

    def _identify(self, space: SpaceCore, token: str) -> Identity | None:
        """Return the token's identity if it is valid in this space, else None.

        The name must be a valid participant id. The holder must be an observer, or known to the space.
        """
        identity = self.tokens.identify(token)
        if identity is None or identity.space_id != space.settings.space_id or not _may_bear(identity.participant):
            return None
        return identity if identity.observer or space.state.knows(identity.participant) else None

    def _anonymous(self, connection: str, space: SpaceCore, request: JoinRequest) -> Join:
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
    message = compose(kinds.ERROR, raw_json.encode_json(refusal.payload()), stamp, correlation_id=cause)
    return [
        Deliver(OneConnection(connection), kinds.ERROR, new_id, message),
        Close(connection, refusal.close_code or 4401, refusal.code),
    ]
