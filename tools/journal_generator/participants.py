"""Who takes part in a generated story, what each may do, and which streams they know how to make.

Plain tables and the settings made of them.
"""

from typing import Any, Final

import msgspec

from mew.journal.generator import material
from mew.journal.generator.material import Matter
from mew.protocol import Identity, Limits, SpaceSettings, StreamSettings, read_capabilities

SPACES: Final = ("harbour", "orchard", "foundry", "observatory", "quarry", "atelier", "lighthouse", "archive")
GRACE_SECONDS: Final = 5.0
HTTP_SECONDS: Final = 4.0
BURST: Final = 150
"""Envelopes that a participant may send at once."""
HOST: Final = "host"
"""May do everything and never goes away but with the gateway."""
SOURCES: Final = ("rover-1", "rover-2", "rover-3", "crane-1", "crane-2", "camera-1", "camera-2", "mast-1")
PILOTS: Final = ("ada", "ben", "cleo", "dina")
PLANNERS: Final = ("planner", "reviewer")
"""May propose and not request."""
TOOLS: Final = ("calculator", "archive-search")
COURIERS: Final = ("courier-1", "courier-2")
"""Have no socket: they post."""
SCRIBE: Final = "scribe"
"""Is a file."""
GUESTS: Final = tuple(f"guest-{number}" for number in range(1, 9))
"""Are invited."""
TROLL: Final = "troll"
"""Is invited, kicked, and never comes back."""
VISITORS: Final = ("walk-in-1", "walk-in-2", "walk-in-3")
"""Nobody knows them."""
ONLOOKERS: Final = ("wall-screen", "auditor")
REGULARS: Final = (HOST, *SOURCES, *PILOTS, *PLANNERS, *TOOLS)
"""Who comes by a socket and comes again."""

_PILOT: Final = ("chat", "chat/*", "mcp/*", "reasoning/*", "stream/*", "participant/status", "participant/compact-done")
_KINDS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    (HOST,): ("*",),
    SOURCES: ("chat", "stream/*", "participant/status", "capability/grant-ack"),
    PILOTS: _PILOT,
    PLANNERS: ("chat", "mcp/proposal", "mcp/withdraw", "reasoning/*", "participant/*"),
    TOOLS: ("chat", "chat/*"),
    COURIERS: ("chat", "mcp/request"),
}
_GUEST: Final = ("chat", "stream/request")


class Sort(msgspec.Struct, frozen=True, kw_only=True):
    """A sort of stream that participants open."""

    name: str
    way: str
    request: dict[str, Any] = {}
    """What is asked for besides formats and targets."""
    hertz: float = 0.0
    """Frames a second of each writer."""
    data_hertz: float = 0.0
    """Likewise `stream/data`."""
    matter: Matter | None = None
    """None: movement, which changes."""
    targeted: bool = False

    @property
    def policy(self) -> str:
        """What becomes of it when its owner goes."""
        return str(self.request.get("on_owner_disconnect", "transfer"))

    @property
    def validates(self) -> bool:
        """Whether data that does not fit is refused."""
        return bool(self.request.get("validate", False))


MOVES: Final = Sort(
    name="moves", way="announce", hertz=30, data_hertz=0.5, request={"desired_id": "moves", "intent": "movement"}
)
READINGS: Final = Sort(
    name="readings",
    way="announce",
    data_hertz=4,
    matter=material.READING,
    request={"desired_id": "readings", "validate": True, "on_owner_disconnect": "keep"},
)
WHISPER: Final = Sort(
    name="whisper",
    way="request",
    hertz=8,
    data_hertz=0.5,
    matter=material.POSITIONS,
    request={"description": "for your eyes only", "on_owner_disconnect": "close"},
    targeted=True,
)
POSITIONS: Final = Sort(
    name="positions",
    way="request",
    hertz=60,
    matter=material.POSITIONS,
    request={"description": "positions", "content_type": "application/json", "metadata": {"hz": 60}},
)
SORTS: Final = (
    POSITIONS,
    MOVES,
    Sort(
        name="bare vectors",
        way="request",
        hertz=40,
        matter=material.BARE_VECTORS,
        request={"description": "cursor", "format": "binary-vector3", "on_owner_disconnect": "close"},
    ),
    Sort(
        name="vectors",
        way="announce",
        hertz=50,
        matter=material.VECTORS,
        request={"desired_id": "vectors", "scope": [HOST], "on_owner_disconnect": "keep"},
    ),
    Sort(name="console", way="announce", hertz=5, matter=material.CONSOLE, request={"desired_id": "console"}),
    Sort(name="telemetry", way="announce", hertz=20, data_hertz=2, matter=material.TELEMETRY),
    READINGS,
    Sort(
        name="sound",
        way="request",
        hertz=100,
        matter=material.SOUND,
        request={"description": "microphone", "encoding": "binary", "expected_size_bytes": 10**6},
    ),
    WHISPER,
)


class Secrets:
    """Tokens of a story; no byte of a journal may hold one."""

    MARK: Final = "secret-token-"
    """What each of them begins with."""

    def __init__(self) -> None:
        """Nobody has one yet."""
        self._holders: dict[str, Identity] = {}

    def identify(self, token: str) -> Identity | None:
        """Whose token this is."""
        return self._holders.get(token)

    def issue(self, space_id: str, participant: str) -> str:
        """The participant's token."""
        token = f"{self.MARK}{space_id}-{participant}"
        self._holders[token] = Identity(space_id, participant)
        return token


def space_name(index: int) -> str:
    """What the space of this number is called."""
    return SPACES[index] if index < len(SPACES) else f"space-{index + 1}"


def capabilities(name: str) -> list[dict[str, Any]]:
    """What a participant is configured or invited with."""
    kinds = next((kinds for names, kinds in _KINDS.items() if name in names), _GUEST)
    return [{"kind": kind} for kind in kinds]


def settings(space_id: str) -> SpaceSettings:
    """How each space of a story is configured."""
    participants = {name: read_capabilities(capabilities(name), name) for names in _KINDS for name in names}
    return SpaceSettings(
        space_id=space_id,
        participants={**participants, SCRIBE: None},
        output_logs=frozenset({SCRIBE}),
        allow_anonymous=True,
        http_presence_seconds=HTTP_SECONDS,
        streams=StreamSettings(owner_grace_seconds=GRACE_SECONDS),
        limits=Limits(envelopes_per_second=100, envelope_burst=BURST),
    )
