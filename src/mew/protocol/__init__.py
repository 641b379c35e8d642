"""The MEW protocol as a pure library: commands in, effects out.

No sockets, no clock, no randomness, no files: time, ids and tokens are arguments. `Space.handle` executes commands,
`Space.route` checks frames, and `fold` rebuilds the state of a space from its records.
"""

from mew.errors import MewError
from mew.protocol.authentication import Identity, JoinRequest, Lobby, Session, Tokens, turn_away
from mew.protocol.capabilities import Capability, CapabilitySet, Decision, read_capabilities, read_capability
from mew.protocol.commands import (
    Administer,
    Attach,
    Checkpoint,
    Command,
    Join,
    Leave,
    Lose,
    Poll,
    Post,
    Receive,
    RefuseConnection,
    Start,
    Tick,
)
from mew.protocol.effects import (
    EVERYONE,
    Admit,
    AllBut,
    Answer,
    Audience,
    Checked,
    Close,
    Deliver,
    DeliverFrame,
    Effect,
    Everyone,
    Only,
    To,
)
from mew.protocol.envelope import Envelope, parse
from mew.protocol.errors import ERROR_CODES, Refusal
from mew.protocol.explain import Actions, Explanation
from mew.protocol.fold import fold
from mew.protocol.frames import Route
from mew.protocol.kinds import GATEWAY, KINDS, PROTOCOL
from mew.protocol.records import Record
from mew.protocol.settings import Limits, Settings, StreamSettings
from mew.protocol.space import Space
from mew.protocol.state import FOLD_VERSION, OtherFold, SpaceState, restore, snapshot
from mew.protocol.streams import Stream
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
    "Admit",
    "AllBut",
    "Answer",
    "Attach",
    "Audience",
    "Capability",
    "CapabilitySet",
    "Checked",
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
    "Identity",
    "Join",
    "JoinRequest",
    "Leave",
    "Limits",
    "Lobby",
    "Lose",
    "MewError",
    "Only",
    "OtherFold",
    "Poll",
    "Post",
    "Receive",
    "Record",
    "Refusal",
    "RefuseConnection",
    "Route",
    "Session",
    "Settings",
    "Space",
    "SpaceState",
    "Start",
    "Stream",
    "StreamSettings",
    "Tick",
    "To",
    "Tokens",
    "fold",
    "observer_welcome_at",
    "parse",
    "read_capabilities",
    "read_capability",
    "restore",
    "snapshot",
    "turn_away",
    "welcome_at",
]
