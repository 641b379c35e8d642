"""The Python SDK: join a space as a participant.

    async with mew.connect("ws://localhost:8080", space="lab", token=token) as space:
        await space.chat("hello")
        async for chat in space.envelopes("chat"):
            print(chat.sender, chat.payload["text"])

It requires msgspec, jsonschema-rs and picows. Everything runs on the caller's event loop; the SDK starts no threads.
"""

import os
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from mew._internal import SPACE_FOLDER
from mew._internal.unix_sockets import SOCKET_VARIABLE, address_of, gateway_socket
from mew.client import errors, mcp
from mew.client.approvals import IncomingProposal, Proposals
from mew.client.connection import Connection, GatewayUrl
from mew.client.control import ControlHandler, ControlRequest, Status
from mew.client.errors import (
    ConnectionLost,
    JoinRefused,
    McpError,
    MewError,
    NotPermitted,
    ProposalExpired,
    ProtocolError,
    Rejected,
    RequestTimeout,
    SubscriptionOverflow,
    Withdrawn,
)
from mew.client.events import (
    CapabilitiesChanged,
    Disconnected,
    Event,
    MessageRefused,
    ParticipantJoined,
    ParticipantLeft,
    Reconnected,
    StreamDiscovered,
    StreamEnded,
    StreamStarted,
)
from mew.client.frames import Format, Frame, Gap, StreamGap
from mew.client.mcp.calls import McpAnswer, ToolResult
from mew.client.mcp.participant import Participant
from mew.client.mcp.server import McpHandler, current_request, notify, serve
from mew.client.proposals import Proposal
from mew.client.reasoning import Reasoning
from mew.client.session import ConnectOptions, ConnectSettings, ConnectTarget
from mew.client.space import Space
from mew.client.streams import Stream
from mew.client.subscriptions import Subscription

__all__ = [
    "CapabilitiesChanged",
    "ConnectContext",
    "ConnectOptions",
    "Connection",
    "ConnectionLost",
    "ControlHandler",
    "ControlRequest",
    "Disconnected",
    "Event",
    "Format",
    "Frame",
    "Gap",
    "IncomingProposal",
    "JoinRefused",
    "McpAnswer",
    "McpError",
    "McpHandler",
    "MessageRefused",
    "MewError",
    "NotPermitted",
    "Participant",
    "ParticipantJoined",
    "ParticipantLeft",
    "Proposal",
    "ProposalExpired",
    "Proposals",
    "ProtocolError",
    "Reasoning",
    "Reconnected",
    "Rejected",
    "RequestTimeout",
    "Space",
    "Status",
    "Stream",
    "StreamDiscovered",
    "StreamEnded",
    "StreamGap",
    "StreamStarted",
    "Subscription",
    "SubscriptionOverflow",
    "ToolResult",
    "Withdrawn",
    "connect",
    "current_request",
    "errors",
    "mcp",
    "notify",
    "serve",
]


class ConnectContext:
    """A pending connection: use it with `async with`, or `await` it and close the returned `Space`."""

    def __init__(self, target: ConnectTarget, settings: ConnectSettings) -> None:
        """Store the target and the settings; nothing connects yet."""
        self._target = target
        self._settings = settings
        self._space: Space | None = None

    async def _open(self) -> Space:
        space = Space(self._target, self._settings)
        await space.session.open()
        return space

    def __await__(self) -> Generator[Any, Any, Space]:
        return self._open().__await__()

    async def __aenter__(self) -> Space:
        self._space = await self._open()
        return self._space

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._space is not None:
            await self._space.close()


def connect(
    url: str | None = None,
    *,
    space: str | None = None,
    token: str | None = None,
    participant: str | None = None,
    **options: Unpack[ConnectOptions],
) -> ConnectContext:
    """Join a space of the gateway at `url`: `async with mew.connect(url, space=…, token=…) as space`.

    The token identifies the participant. Pass `participant` only without a token, in a space that admits participants
    without one. The default `space` is the gateway's first space.

    Without `url`, the address is `MEW_SOCKET`, else `MEW_GATEWAY` (a gateway sets both for the programs it starts),
    else the space in the current directory, through a socket that only its owner can use. `space` and `token` then
    default to `MEW_SPACE` and `MEW_TOKEN`. Raises `ValueError` if there is no address or the address is not valid.

    Create your subscriptions before the first `await`: then they receive every message since the welcome.
    """
    if url is None:
        url = _address()
        space = space or os.environ.get("MEW_SPACE")
        token = token or os.environ.get("MEW_TOKEN")
    settings = ConnectSettings(**options)
    if settings.queue < 1:
        raise ValueError(f"a queue of {settings.queue} holds nothing")
    return ConnectContext(ConnectTarget(GatewayUrl.parse(url, settings.tls), space, token, participant), settings)


def _address() -> str:
    """Return the address from the environment, else of this directory's socket.

    It never guesses a port: any other program could be listening there.
    """
    if file := os.environ.get(SOCKET_VARIABLE):
        return address_of(Path(file))
    if url := os.environ.get("MEW_GATEWAY"):
        return url
    if (Path.cwd() / SPACE_FOLDER).is_dir():
        return address_of(gateway_socket(Path.cwd()))
    raise ValueError(
        "no address: give one, set MEW_GATEWAY to the gateway's, such as ws://localhost:8080,"
        " or run this in the directory of a space"
    )
