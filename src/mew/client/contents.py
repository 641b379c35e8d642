"""Open proposals with everything that was proposed, read from the gateway over HTTP.

A welcome lists open proposals without their payloads (protocol §2). One request, one connection, one answer; nothing is
sent but the token, and nothing is decided.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from mew.client.connecting import Target
from mew.client.connection import LOCAL_SECONDS
from mew.client.errors import ConnectionLost, MewError, refused_as
from mew.protocol import jsontext, kinds
from mew.protocol.envelope import Envelope
from mew.unix_sockets import UntrustedSocket, connect
from mew.view import ProposalView

SECONDS: Final = 10.0
LARGEST: Final = 4 * 2**20
"""Of an answer; a proposal has 1 MiB."""


async def read_proposal(target: Target, space_id: str, proposal: ProposalView) -> Envelope:
    """The `mcp/proposal` that this entry is about; `ProposalClosed` or `NotFound` where it is not open any more."""
    path = f"{target.address.path.partition('?')[0].rstrip('/')}/spaces/{quote(space_id, safe='')}/proposals"
    status, body = await _get(target, f"{path}/{proposal.position}")
    if status != HTTPStatus.OK:
        raise _refusal(status, body)
    fields = jsontext.split(body)
    if jsontext.decode(fields["digest"]) != proposal.digest:
        raise ConnectionLost(f"the gateway has another proposal at position {proposal.position}")
    return _envelope(proposal, fields["payload"])


def _envelope(proposal: ProposalView, payload: bytes) -> Envelope:
    """As it was relayed, as far as it matters who decides."""
    entry = proposal.entry
    stamp = {name: entry[name] for name in ("position", "digest", "expires_at")}
    fields = {
        "id": jsontext.encode(entry["id"]),
        "kind": jsontext.encode(kinds.MCP_PROPOSAL),
        "from": jsontext.encode(entry["from"]),
        "to": jsontext.encode(entry["to"]),
        "payload": payload,
        kinds.PROPOSAL_FIELD: jsontext.encode(stamp),
    }
    return Envelope(
        id=entry["id"],
        ts="",
        sender=entry["from"],
        kind=kinds.MCP_PROPOSAL,
        to=tuple(entry["to"]),
        payload=jsontext.decode(payload),
        fields=fields,
    )


async def _get(target: Target, path: str) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await _open(target)
            try:
                writer.write(_head(target, path))
                return await _answer(reader)
            finally:
                writer.transport.abort()
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionLost(f"{target.address.name} does not tell what was proposed: {error}") from error


async def _open(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = target.address
    if address.file is None:
        return await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        return await asyncio.open_unix_connection(sock=connect(address.file, LOCAL_SECONDS))
    except UntrustedSocket as error:
        raise ConnectionLost(str(error)) from error


def _head(target: Target, path: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.address.authority}", "Connection: close"]
    if target.token is not None:
        lines.append(f"Authorization: Bearer {target.token}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = int(headers["content-length"]) if "content-length" in headers else LARGEST + 1
    if length > LARGEST:
        raise ValueError("its answer is larger than any proposal, or does not say how large it is")
    return status, await reader.readexactly(length)


def _refusal(status: int, body: bytes) -> MewError:
    try:
        return refused_as(msgspec.json.decode(body, type=dict[str, Any]))
    except msgspec.MsgspecError:
        return ConnectionLost(f"the gateway answered {status}")
