"""The MEW protocol as a pure library: commands in, effects out.

No sockets, no clock, no randomness, no files: time, ids and tokens are arguments. `SpaceCore.handle` executes commands,
`SpaceCore.route` checks frames, and `fold` rebuilds the state of a space from its records.
"""

from mew.errors import MewError
from mew.protocol.admission import Admission, reject_connection
from mew.protocol.authentication import Identity, JoinRequest, Session, Tokens
from mew.protocol.capabilities import Capability, CapabilitySet, Decision, read_capabilities, read_capability
from mew.protocol.envelope import Envelope, parse
from mew.protocol.errors import ERROR_CODES, ProtocolError
from mew.protocol.explain import Actions, Explanation
from mew.protocol.fold import fold
from mew.protocol.frames import Route
from mew.protocol.interface import (
    EVERYONE,
    Administer,
    Admit,
    AllExcept,
    AttachOutputLog,
    Audience,
    CapabilityChecked,
    Checkpoint,
    Close,
    Command,
    Deliver,
    DeliverFrame,
    Effect,
    Everyone,
    HttpAnswer,
    Join,
    Leave,
    OneConnection,
    Poll,
    Post,
    Receive,
    Recipients,
    RefuseConnection,
    ReportLoss,
    Start,
    Tick,
)
from mew.protocol.kinds import GATEWAY, KINDS, PROTOCOL
from mew.protocol.records import Record
from mew.protocol.settings import Limits, SpaceSettings, StreamSettings
from mew.protocol.space import SpaceCore
from mew.protocol.state import FOLD_VERSION, SnapshotVersionError, SpaceState, restore, snapshot
from mew.protocol.streams import StreamEntry
from mew.protocol.welcome import observer_welcome_at, welcome_at

__all__ = [
    "ERROR_CODES",
    "EVERYONE",
    "FOLD_VERSION",
    "GATEWAY",
    "KINDS",
    "PROTOCOL",
    "Actions",
    "Administer",
    "Admission",
    "Admit",
    "AllExcept",
    "AttachOutputLog",
    "Audience",
    "Capability",
    "CapabilityChecked",
    "CapabilitySet",
    "Checkpoint",
    "Close",
    "Command",
    "Decision",
    "Deliver",
    "DeliverFrame",
    "Effect",
    "Envelope",
    "Everyone",
    "Explanation",
    "HttpAnswer",
    "Identity",
    "Join",
    "JoinRequest",
    "Leave",
    "Limits",
    "MewError",
    "OneConnection",
    "Poll",
    "Post",
    "ProtocolError",
    "Receive",
    "Recipients",
    "Record",
    "RefuseConnection",
    "ReportLoss",
    "Route",
    "Session",
    "SnapshotVersionError",
    "SpaceCore",
    "SpaceSettings",
    "SpaceState",
    "Start",
    "StreamEntry",
    "StreamSettings",
    "Tick",
    "Tokens",
    "fold",
    "observer_welcome_at",
    "parse",
    "read_capabilities",
    "read_capability",
    "reject_connection",
    "restore",
    "snapshot",
    "welcome_at",
]
