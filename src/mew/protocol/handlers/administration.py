"""Administrative records: connections with their address, refusals, tokens and configuration changes.

Pure. These records change no state, and no participant sees them. No field contains a token or text that may be one.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, TypeVar

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Session
from mew.protocol.interface import Administer, RefuseConnection
from mew.protocol.settings import SpaceSettings
from mew.protocol.state import SpaceState
from mew.protocol.timestamps import SECOND
from mew.protocol.transition import Transition

K = TypeVar("K")
NONE: Final = frozenset[object]()

_CONNECTION_JOINED: Final = "connection_joined"
_CONNECTION_REFUSED: Final = "connection_refused"
CONFIGURATION_CHANGED: Final = "configuration_changed"
TOKEN_CREATED: Final = "token_created"
TOKEN_ROTATED: Final = "token_rotated"
TOKEN_REVOKED: Final = "token_revoked"
TOKEN_ISSUED: Final = "token_issued"
"""An inviter received the token of the participant that it invited."""

REPEATED_SECONDS: Final = 10
"""Refusals of one address with one code are recorded together for this long, except the first."""
MAX_ADDRESSES: Final = 1_024
"""Maximum number of address and code pairs with a separate count. All others share one count per code."""
OTHERS: Final = "others"


def record_admin(transition: Transition, action: str, actor: str, **details: Any) -> None:
    """Write one administrative record. Details that are None are left out."""
    fields = {name: value for name, value in details.items() if value is not None}
    text = raw_json.encode_json({"action": action, **fields})
    transition.record(records.ADMIN, actor, reason=action, size=len(text), payload=text)


def record_joined(transition: Transition, session: Session, peer: str | None) -> None:
    """Record that a connection has joined from this address. Without an address, nothing is recorded."""
    if peer is not None:
        record_admin(
            transition,
            _CONNECTION_JOINED,
            session.participant,
            peer=peer,
            transport=session.transport,
            observer=session.observer or None,
            anonymous=session.anonymous or None,
        )


def record_action(transition: Transition, command: Administer) -> None:
    """Record what was done to a token and by which user, or what changed in the configuration of the process."""
    record_admin(
        transition,
        command.action,
        kinds.GATEWAY,
        participant=command.participant,
        observer=command.observer or None,
        uid=command.uid,
        changes=list(command.changes) or None,
    )


def token_changes(before: Mapping[K, Set[object]], after: Mapping[K, Set[object]]) -> dict[K, str]:
    """Return for each holder whether its tokens were created, rotated or revoked.

    The sets contain values that identify the holder's tokens before and after the change.
    """
    gainers = [holder for holder, tokens in after.items() if tokens - before.get(holder, NONE)]
    losers = [holder for holder, tokens in before.items() if tokens - after.get(holder, NONE)]
    return {
        **dict.fromkeys(gainers, TOKEN_CREATED),
        **dict.fromkeys(losers, TOKEN_REVOKED),
        **{holder: TOKEN_ROTATED for holder in losers if holder in gainers},
    }


# Refused connections


class RefusedConnections:
    """Limits the records of refused connections, because strangers can cause any number of refusals.

    The first refusal of each address and code is recorded. Later ones are counted exactly.
    """

    def __init__(self, most: int = MAX_ADDRESSES) -> None:
        """Start with an empty table; `most` limits the number of addresses and codes with a separate count."""
        self._most = most
        self._counted: dict[tuple[str, str], list[int]] = {}
        """By address and code: the time of the last record, and the number of refusals not yet in the journal."""

    def __len__(self) -> int:
        """Number of entries in the table."""
        return len(self._counted)

    def admit(self, source: str, error: str, now: int) -> bool:
        """Return True if this refusal gets its own record. Otherwise count it."""
        key = (source, error)
        if key not in self._counted and len(self._counted) >= self._most:
            key = (OTHERS, error)
        counted = self._counted.get(key)
        if counted is None and key[0] != OTHERS:
            self._counted[key] = [now, 0]
            return True
        self._counted.setdefault(key, [now, 0])[1] += 1
        return False

    def due(self, now: int, *, early: bool = False) -> Iterator[tuple[str, str, int]]:
        """Yield address, code and count of all counted refusals that are due; with `early`, of all counted refusals.

        Entries without recent refusals are removed.
        """
        for (source, error), counted in list(self._counted.items()):
            since, count = counted
            is_due = now - since >= REPEATED_SECONDS * SECOND
            if count and (is_due or early):
                counted[:] = [now, 0]
                yield source, error, count
            elif is_due:
                del self._counted[source, error]


def record_refused_connection(transition: Transition, command: RefuseConnection) -> None:
    """Record a refusal, or count it if the same address was recently refused for the same reason."""
    # A client address from a proxy has no port. Splitting it at the last colon would truncate an IPv6 address.
    source = command.source or command.peer.rpartition(":")[0] or command.peer
    if not transition.space.refused_connections.admit(source, command.error, transition.now):
        return
    is_known = command.participant is not None and transition.space.state.knows(command.participant)
    record_admin(
        transition,
        _CONNECTION_REFUSED,
        kinds.GATEWAY,
        error=command.error,
        peer=command.peer,
        transport=command.transport,
        participant=command.participant if is_known else None,
        count=1,
    )


def record_counted_refusals(transition: Transition, *, early: bool = False) -> None:
    """Record counted refusals that are due. With `early`, record all of them, because the space may end here."""
    for source, error, count in transition.space.refused_connections.due(transition.now, early=early):
        record_admin(transition, _CONNECTION_REFUSED, kinds.GATEWAY, error=error, peer=source, count=count)


# The configuration


def record_configuration_changes(transition: Transition, before: Mapping[str, Any]) -> None:
    """Record the differences from the configuration of the previous start, if there are any."""
    after = raw_json.decode_json(raw_json.encode_json(transition.space.settings.effective()))
    changes = [
        {"key": key, "before": old, "after": new}
        for key, old, new in configuration_differences({key: after[key] for key in after if key in before}, before)
    ]
    if changes:
        record_admin(transition, CONFIGURATION_CHANGED, kinds.GATEWAY, changes=changes)


def last_configuration(state: SpaceState) -> dict[str, Any]:
    """Return the effective configuration of the last start as far as the state has it; empty before the first start."""
    if not state.epoch:
        return {}
    rest = raw_json.decode_json(state.configuration) if state.configuration else {}
    configuration = SpaceSettings(
        space_id=state.space_id, participants=state.configured, defaults=state.defaults
    ).effective()
    from_state = raw_json.decode_json(
        raw_json.encode_json({key: configuration[key] for key in ("participants", "defaults")})
    )
    return {**from_state, **rest}


def configuration_differences(
    after: Mapping[str, Any], before: Mapping[str, Any], at: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, old and new value of every difference, including nested ones. None stands for a missing value."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from configuration_differences(new, old, f"{at}{key}.")
        elif old != new or (key in before) != (key in after):
            yield f"{at}{key}", old, new
