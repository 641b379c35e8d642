"""The control socket of a running gateway, `.mew/admin.sock`, which only the owner of the space can open.

Each request and each response is one line of JSON. No response contains a token: tokens are in files, and a request
makes the gateway reload them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew._internal.logging import log
from mew._internal.unix_sockets import (
    _CONTROL_SOCKET,
    connect_to_socket,
    control_socket,
    is_of_owner,
    listen_on_socket,
    peer_uid,
)
from mew.errors import MewError
from mew.gateway.configuration_changes import save_known_state
from mew.protocol import Administer, Identity

if TYPE_CHECKING:
    from mew.config.models import SpaceConfig
    from mew.config.tokens import TokenStore
    from mew.gateway.gateway import Gateway


REQUEST_SECONDS: Final = 5.0
"""Timeout for reading a request, and for sending its response."""
REQUEST_BYTES: Final = 64 * 1024
"""Maximum size of a request in bytes."""
REVOKED: Final = 4401
"""Close code of a connection whose token was revoked."""


class ControlUnavailable(MewError):
    """The gateway of the space does not respond on its control socket."""


class ControlServer:
    """The control socket of one space."""

    def __init__(
        self,
        gateway: "Gateway",
        tokens: "TokenStore",
        space: "SpaceConfig",
        renew: Callable[[str], Awaitable[None]],
    ) -> None:
        """Start closed. `renew` is called with each participant whose token has changed."""
        self._gateway = gateway
        self._tokens = tokens
        self._space = space
        self._renew = renew
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start to accept connections of the owner."""
        listener = listen_on_socket(control_socket(self._space.directory))
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=REQUEST_BYTES)

    async def close(self) -> None:
        """Close all connections, stop listening and remove the socket."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            self._server = None
            control_socket(self._space.directory).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = writer.get_extra_info("socket")
            if not is_of_owner(peer):
                log.warning("connection of another user rejected", socket=_CONTROL_SOCKET)
                return
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await reader.readline()
            uid = peer_uid(peer)
            writer.write(msgspec.json.encode(self._answer(line, uid)) + b"\n")
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # disconnected, or not a mew client
        finally:
            writer.close()

    def _answer(self, line: bytes, uid: int | None) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            if request.get("do") == "reload":
                return self._reload(uid)
            if request.get("do") == "tokens":
                return {"ok": True, "tokens": self._token_holders()}
            if request.get("do") == "present":
                hub = self._gateway.hubs[self._space.settings.space_id]
                return {"ok": True, "present": list(hub.space.connections)}
        except msgspec.MsgspecError:
            return {"ok": False, "problem": "expected a JSON object"}
        except MewError as error:
            return {"ok": False, "problem": str(error)}
        return {"ok": False, "problem": "unknown request: `do` must be reload, tokens or present"}

    def _reload(self, uid: int | None) -> dict[str, Any]:
        """Reload the tokens and close connections whose token is no longer valid."""
        invalid = self._tokens.reload()
        for identity, action in self._tokens.changes.items():
            record_token(self._gateway, identity, action, uid)
        for space in self._gateway.config.spaces:
            save_known_state(self._gateway.config, space, self._tokens)
        closed = 0
        for connection in list(self._gateway.sockets):
            if connection.token in self._tokens.lost:
                connection.close(REVOKED, "the token is no longer valid")
                closed += 1
        for identity in invalid:
            if not identity.observer and identity.space_id == self._space.settings.space_id:
                task = asyncio.create_task(self._renew_one(identity.participant), name=f"renew {identity.participant}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        names = sorted(identity.participant for identity in invalid)
        return {"ok": True, "lost": names, "closed": closed, "warnings": list(self._tokens.warnings)}

    async def _renew_one(self, participant: str) -> None:
        await self._renew(participant)

    def _token_holders(self) -> list[dict[str, Any]]:
        space_id = self._space.settings.space_id
        return [
            {"participant": identity.participant, "observer": identity.observer, "sources": list(sources)}
            for identity, sources in self._tokens.sources.items()
            if identity.space_id == space_id
        ]


def record_token(gateway: "Gateway", identity: Identity, action: str, uid: int | None = None) -> None:
    """Record a change of a participant's token, and the user of this machine who made it."""
    gateway.hubs[identity.space_id].run(
        Administer(action=action, participant=identity.participant, observer=identity.observer, uid=uid)
    )


def ask_gateway(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the gateway of a space and return the response.

    Raises `ControlUnavailable` if the gateway does not respond, and `MewError` if it reports a problem.
    """
    try:
        with connect_to_socket(control_socket(directory), REQUEST_SECONDS) as peer:
            peer.sendall(msgspec.json.encode(request) + b"\n")
            with peer.makefile("rb") as lines:
                response = msgspec.json.decode(lines.readline(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no answer"
        raise ControlUnavailable(f"{control_socket(directory)}: the gateway does not answer: {reason}") from None
    if not response.get("ok"):
        raise MewError(str(response.get("problem")))
    return response


def reload_tokens(directory: Path) -> dict[str, Any]:
    """Make a running gateway reload its tokens; return its response."""
    return ask_gateway(directory, {"do": "reload"})
