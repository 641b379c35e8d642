"""Participants of a generated space, their capabilities, the streams they open, and the settings of the space."""

from typing import Any, Final

import msgspec

from mew.protocol import Identity, Limits, SpaceSettings, StreamSettings, read_capabilities
from tools.journal_generator import payloads
from tools.journal_generator.payloads import PayloadType

SPACES: Final = ("harbour", "orchard", "foundry", "observatory", "quarry", "atelier", "lighthouse", "archive")
GRACE_SECONDS: Final = 5.0
HTTP_SECONDS: Final = 4.0
BURST: Final = 150
"""Envelopes that a participant may send in one burst."""
HOST: Final = "host"
"""May send everything; leaves only when the gateway stops."""
SOURCES: Final = ("rover-1", "rover-2", "rover-3", "crane-1", "crane-2", "camera-1", "camera-2", "mast-1")
PILOTS: Final = ("ada", "ben", "cleo", "dina")
PLANNERS: Final = ("planner", "reviewer")
"""May propose MCP requests but not send them."""
TOOLS: Final = ("calculator", "archive-search")
COURIERS: Final = ("courier-1", "courier-2")
"""Have no WebSocket connection: they send over HTTP."""
SCRIBE: Final = "scribe"
"""Has an output log instead of a connection."""
GUESTS: Final = tuple(f"guest-{number}" for number in range(1, 9))
"""Join by invitation."""
TROLL: Final = "troll"
"""Is invited, then kicked, and never returns."""
VISITORS: Final = ("walk-in-1", "walk-in-2", "walk-in-3")
"""Join anonymously: the space does not know them."""
OBSERVERS: Final = ("wall-screen", "auditor")
REGULARS: Final = (HOST, *SOURCES, *PILOTS, *PLANNERS, *TOOLS)
"""Connect over WebSocket and reconnect after a disconnect."""

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


class StreamTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that participants can open."""

    name: str
    way: str
    request: dict[str, Any] = {}
    """Fields of the request, without formats and targets."""
    hertz: float = 0.0
    """Frames per second of each writer."""
    data_hertz: float = 0.0
    """`stream/data` envelopes per second of each writer."""
    payload_type: PayloadType | None = None
    """None: movement, whose schema depends on the space and the version."""
    targeted: bool = False

    @property
    def policy(self) -> str:
        """What happens to the stream when its owner disconnects."""
        return str(self.request.get("on_owner_disconnect", "transfer"))

    @property
    def validates(self) -> bool:
        """Whether the gateway rejects data that does not match the schema."""
        return bool(self.request.get("validate", False))


MOVES: Final = StreamTemplate(
    name="moves", way="announce", hertz=30, data_hertz=0.5, request={"desired_id": "moves", "intent": "movement"}
)
READINGS: Final = StreamTemplate(
    name="readings",
    way="announce",
    data_hertz=4,
    payload_type=payloads.READING,
    request={"desired_id": "readings", "validate": True, "on_owner_disconnect": "keep"},
)
WHISPER: Final = StreamTemplate(
    name="whisper",
    way="request",
    hertz=8,
    data_hertz=0.5,
    payload_type=payloads.POSITIONS,
    request={"description": "for your eyes only", "on_owner_disconnect": "close"},
    targeted=True,
)
POSITIONS: Final = StreamTemplate(
    name="positions",
    way="request",
    hertz=60,
    payload_type=payloads.POSITIONS,
    request={"description": "positions", "content_type": "application/json", "metadata": {"hz": 60}},
)
STREAM_TEMPLATES: Final = (
    POSITIONS,
    MOVES,
    StreamTemplate(
        name="bare vectors",
        way="request",
        hertz=40,
        payload_type=payloads.BARE_VECTORS,
        request={"description": "cursor", "format": "binary-vector3", "on_owner_disconnect": "close"},
    ),
    StreamTemplate(
        name="vectors",
        way="announce",
        hertz=50,
        payload_type=payloads.VECTORS,
        request={"desired_id": "vectors", "scope": [HOST], "on_owner_disconnect": "keep"},
    ),
    StreamTemplate(
        name="console", way="announce", hertz=5, payload_type=payloads.CONSOLE, request={"desired_id": "console"}
    ),
    StreamTemplate(name="telemetry", way="announce", hertz=20, data_hertz=2, payload_type=payloads.TELEMETRY),
    READINGS,
    StreamTemplate(
        name="sound",
        way="request",
        hertz=100,
        payload_type=payloads.SOUND,
        request={"description": "microphone", "encoding": "binary", "expected_size_bytes": 10**6},
    ),
    WHISPER,
)


class TokenTable:
    """Tokens of the participants; a test checks that no journal contains one."""

    MARK: Final = "secret-token-"
    """Prefix of every token."""

    def __init__(self) -> None:
        self._holders: dict[str, Identity] = {}

    def identify(self, token: str) -> Identity | None:
        """Return the identity that a token belongs to."""
        return self._holders.get(token)

    def issue(self, space_id: str, participant: str) -> str:
        """Return the token of a participant."""
        token = f"{self.MARK}{space_id}-{participant}"
        self._holders[token] = Identity(space_id, participant)
        return token


def space_name(index: int) -> str:
    """Return the name of the space with this index."""
    return SPACES[index] if index < len(SPACES) else f"space-{index + 1}"


def capabilities(name: str) -> list[dict[str, Any]]:
    """Return the capabilities that a participant is configured or invited with."""
    kinds = next((kinds for names, kinds in _KINDS.items() if name in names), _GUEST)
    return [{"kind": kind} for kind in kinds]


def settings(space_id: str) -> SpaceSettings:
    """Return the settings of a space."""
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
