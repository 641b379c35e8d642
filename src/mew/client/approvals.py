"""Proposals of other participants: which are open, what each asks for, and how to accept or reject one.

The view knows which proposals are open, from the welcome and from later envelopes (protocol §3, Proposals). Only
envelopes with the gateway's stamp close one. The welcome lists proposals without payloads; the payload of one that
was opened before the join is read from the gateway over HTTP when the iterator reaches it.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from mew._internal.unix_sockets import UntrustedSocket, connect_to_socket
from mew.client import mcp
from mew.client.connection import LOCAL_SECONDS
from mew.client.errors import (
    ConnectionLost,
    MewError,
    NotFound,
    ProposalClosed,
    ProposalExpired,
    ProtocolError,
    Withdrawn,
)
from mew.client.mcp.calls import ANSWER_TIMEOUT, McpAnswer, send_request
from mew.client.mcp.server import context_of
from mew.client.proposals import REJECT, WITHDRAW, stamp_of
from mew.client.sender import Names, OutgoingEnvelope
from mew.client.session import ConnectTarget
from mew.client.subscriptions import EnvelopeFilter, EnvelopeQueue, OnOverflow, QueueLimits, Subscription
from mew.protocol import kinds, raw_json
from mew.protocol.envelope import ID_LENGTH, Envelope
from mew.view import ProposalView, SpaceView

if TYPE_CHECKING:
    from mew.client.space import Space


READ_SECONDS: Final = 10.0
MAX_RESPONSE_BYTES: Final = 4 * 2**20
"""Maximum size of an HTTP response in bytes; a proposal has at most 1 MiB."""


async def read_proposal(target: ConnectTarget, space_id: str, proposal: ProposalView) -> Envelope:
    """Read the `mcp/proposal` of this entry. Raises `ProposalClosed` or `NotFound` if it is no longer open."""
    path = f"{target.address.path.partition('?')[0].rstrip('/')}/spaces/{quote(space_id, safe='')}/proposals"
    status, body = await _get(target, f"{path}/{proposal.position}")
    if status != HTTPStatus.OK:
        raise _error(status, body)
    fields = raw_json.split_json(body)
    if raw_json.decode_json(fields["digest"]) != proposal.digest:
        raise ConnectionLost(f"the gateway has another proposal at position {proposal.position}")
    return _envelope(proposal, fields["payload"])


def _envelope(proposal: ProposalView, payload: bytes) -> Envelope:
    """Rebuild the relayed envelope, with the fields that are needed to decide on it."""
    entry = proposal.entry
    stamp = {name: entry[name] for name in ("position", "digest", "expires_at")}
    fields = {
        "id": raw_json.encode_json(entry["id"]),
        "kind": raw_json.encode_json(kinds.MCP_PROPOSAL),
        "from": raw_json.encode_json(entry["from"]),
        "to": raw_json.encode_json(entry["to"]),
        "payload": payload,
        kinds.PROPOSAL_FIELD: raw_json.encode_json(stamp),
    }
    return Envelope(
        id=entry["id"],
        ts="",
        sender=entry["from"],
        kind=kinds.MCP_PROPOSAL,
        to=tuple(entry["to"]),
        payload=raw_json.decode_json(payload),
        fields=fields,
    )


async def _get(target: ConnectTarget, path: str) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(READ_SECONDS):
            reader, writer = await _open(target)
            try:
                writer.write(_request_head(target, path))
                return await _read_response(reader)
            finally:
                writer.transport.abort()
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionLost(f"{target.address.name} does not tell what was proposed: {error}") from error


async def _open(target: ConnectTarget) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = target.address
    if address.file is None:
        return await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        return await asyncio.open_unix_connection(sock=connect_to_socket(address.file, LOCAL_SECONDS))
    except UntrustedSocket as error:
        raise ConnectionLost(str(error)) from error


def _request_head(target: ConnectTarget, path: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.address.authority}", "Connection: close"]
    if target.token is not None:
        lines.append(f"Authorization: Bearer {target.token}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = int(headers["content-length"]) if "content-length" in headers else MAX_RESPONSE_BYTES + 1
    if length > MAX_RESPONSE_BYTES:
        raise ValueError("its answer is larger than any proposal, or does not say how large it is")
    return status, await reader.readexactly(length)


def _error(status: int, body: bytes) -> MewError:
    try:
        return ProtocolError.from_payload(msgspec.json.decode(body, type=dict[str, Any]))
    except msgspec.MsgspecError:
        return ConnectionLost(f"the gateway answered {status}")


GRANT_SECONDS: Final = 3_600.0
"""Default lifetime of a capability granted with "approve and grant", in seconds."""
PATTERN: Final = frozenset("*!")
"""Characters that have a pattern meaning in a capability and cannot be escaped (protocol §3)."""
JSONRPC: Final = "2.0"
_RETRY_SECONDS: Final = 1.0
ProposalState = Literal["open", "fulfilled", "rejected", "withdrawn", "expired", "closed"]
_STATES: Final[dict[str, ProposalState]] = {
    kinds.MCP_REQUEST: "fulfilled",
    kinds.MCP_RESPONSE: "fulfilled",
    REJECT: "rejected",
    WITHDRAW: "withdrawn",
    kinds.PROPOSAL_CLOSED: "expired",
}
_CLOSED_STATES: Final = frozenset({"withdrawn", "expired", "closed"})


class IncomingProposal:
    """A proposal of another participant: `approve` it, `fulfil` it, or `reject` it."""

    def __init__(self, space: "Space", envelope: Envelope) -> None:
        """Wrap the received proposal; its state is `open`."""
        self._space = space
        self.envelope = envelope
        """The `mcp/proposal` itself."""
        self.state: ProposalState = "open"
        """The current state, updated while the iterator that returned it is read.

        `closed` means that it ended while the client was disconnected.
        """

    def __repr__(self) -> str:
        return f"<IncomingProposal {self.method!r} by {self.by!r}, {self.state}>"

    @property
    def id(self) -> str:
        """The id of its envelope."""
        return self.envelope.id

    @property
    def position(self) -> int | None:
        """The position that identifies it for the lifetime of the space; None if the gateway does not track it."""
        stamp = stamp_of(self.envelope)
        return None if stamp is None else int(stamp["position"])

    @property
    def expires_at(self) -> str | None:
        """The time at which the gateway closes it at the latest; None if the gateway does not track it."""
        stamp = stamp_of(self.envelope)
        return None if stamp is None else str(stamp["expires_at"])

    @property
    def by(self) -> str:
        """The id of the proposer."""
        return self.envelope.sender

    @property
    def to(self) -> tuple[str, ...]:
        """The ids of the participants that are to answer the request."""
        return self.envelope.to

    @property
    def method(self) -> str:
        """The MCP method."""
        return str(self.envelope.payload.get("method", ""))

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the method."""
        params = self.envelope.payload.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def tool(self) -> str | None:
        """The name of the tool to call, if the method is `tools/call`; otherwise None."""
        return str(self.params.get("name")) if self.method == mcp.TOOLS_CALL else None

    @property
    def request(self) -> dict[str, Any]:
        """The payload that `approve` sends in your name.

        It has the `method` and `params`, which the digest covers and readers display. It also has the JSON-RPC fields
        `jsonrpc` and `id`, if the proposal has valid ones.
        """
        payload = self.envelope.payload
        sent: dict[str, Any] = {name: payload[name] for name in ("method", "params") if name in payload}
        number = payload.get("id")
        if payload.get("jsonrpc") == JSONRPC:
            sent["jsonrpc"] = JSONRPC
        if type(number) is int or (isinstance(number, str) and len(number) <= ID_LENGTH):
            sent["id"] = number
        return sent

    async def approve(self, to: Names = ()) -> Envelope:
        """Send the proposed request as your own `mcp/request`, correlated to the proposal; do not wait for the answer.

        The request goes to the recipients that the proposal names. If it names none, pass them in `to`. Raises
        `ValueError` if neither names a recipient, or if `to` differs from the proposal. Raises `Withdrawn` or
        `ProposalExpired` if the proposal has ended in that way.
        """
        return await self._space.post(self._request(to))

    async def fulfil(self, to: Names = (), timeout: float | None = ANSWER_TIMEOUT) -> McpAnswer:
        """Approve it and wait for the answer. The proposer receives the answer too."""
        return await send_request(self._space, self._request(to), timeout)

    def _request(self, to: Names) -> OutgoingEnvelope:
        if self.state == "withdrawn":
            raise Withdrawn
        if self.state == "expired":
            raise ProposalExpired
        return OutgoingEnvelope(
            kind=kinds.MCP_REQUEST,
            payload=self.request,
            to=self._recipients(to),
            correlation_id=self.id,
            context=context_of(self.envelope),
            proposal=self._claim(),
        )

    def _recipients(self, to: Names) -> Sequence[str]:
        """Return the recipients of the request; the gateway rejects recipients that the proposal does not name."""
        recipients = [to] if isinstance(to, str) else to
        if not (recipients or self.to):
            raise ValueError(f"the proposal {self.id!r} names no recipient: pass `to`")
        if recipients and self.to and set(recipients) != set(self.to):
            names = ", ".join(map(repr, self.to))
            raise ValueError(f"the proposal {self.id!r} already names its recipients, {names}: leave out `to`")
        return recipients or self.to

    def _claim(self) -> dict[str, Any] | None:
        """Return the position and digest of the proposal as seen here; None if the gateway does not track it."""
        stamp = stamp_of(self.envelope)
        return None if stamp is None else {"position": stamp["position"], "digest": stamp["digest"]}

    def capability(self, to: Names = ()) -> dict[str, Any]:
        """Return the smallest capability for this request: this tool or method, to these recipients.

        With it the proposer could have sent the request itself. Raises `ValueError` if a name is missing or has
        characters that would be read as a pattern.
        """
        names = list(self._recipients(to))
        payload: dict[str, Any] = {"method": self.method}
        if self.method == mcp.TOOLS_CALL:
            tool = self.params.get("name")
            if not isinstance(tool, str):
                raise ValueError("the proposal names no tool, and cannot be granted")
            payload["params"] = {"name": tool}
        for name in (self.method, self.tool or "", *names):
            if not PATTERN.isdisjoint(name):
                raise ValueError(f"{name!r} holds a character that a capability reads as a pattern: it is not granted")
        return {"kind": kinds.MCP_REQUEST, "to": names, "payload": payload}

    async def grant(self, to: Names = (), seconds: float | None = GRANT_SECONDS) -> Envelope:
        """Grant the proposer the `capability` to send such requests itself, with any arguments.

        The grant ends after `seconds`; with None, when it is revoked.
        """
        end = {} if seconds is None else {"timeout_seconds": seconds}
        payload = {"recipient": self.by, "capabilities": [self.capability(to)], **end}
        return await self._space.send(kinds.CAPABILITY_GRANT, payload, to=self.by)

    async def vote(self) -> Envelope:
        """Vote for it, if a rule of the space requires several votes; the last approver calls `approve` instead."""
        draft = OutgoingEnvelope(kind=kinds.MCP_APPROVE, payload={}, correlation_id=self.id, proposal=self._claim())
        return await self._space.post(draft)

    async def reject(self, reason: str | None = None) -> Envelope:
        """Reject the proposal (`mcp/reject`)."""
        payload = {} if reason is None else {"reason": reason}
        return await self._space.send(REJECT, payload, to=self.by, correlation_id=self.id)


class _ProposalQueue(EnvelopeQueue):
    """Queue of other participants' proposals. One that is withdrawn before it is read is removed."""

    def __init__(self, space: "Space", limits: QueueLimits, on_overflow: OnOverflow | None) -> None:
        super().__init__(EnvelopeFilter(), limits, on_overflow)
        self._space = space
        self._queued: dict[str, ProposalState] = {}
        """The state of each queued proposal, by id."""
        self._handed_out: WeakValueDictionary[str, IncomingProposal] = WeakValueDictionary()
        self._latest = -1
        """The position of the last received proposal. In a welcome, proposals at later positions are new."""
        self.unread: dict[str, ProposalView] = {}
        """Queued proposals that are known only from a welcome, so their payload is not known yet."""

    def offer(self, envelope: Envelope) -> None:
        """Queue a proposal of another participant, or record the state change of one."""
        if envelope.kind == kinds.MCP_PROPOSAL:
            stamp = stamp_of(envelope)
            if stamp is not None:
                self._latest = max(self._latest, stamp["position"])
            if envelope.sender != self._space.participant_id:
                self.put(envelope)
        elif envelope.kind == kinds.WELCOME and envelope.sender == kinds.GATEWAY:
            self.update(self._space.view)
        elif envelope.kind in _STATES and _ends(envelope):
            for cause in envelope.correlation_id:
                self._set_state(cause, envelope)

    def update(self, view: SpaceView) -> None:
        """Queue open proposals of the view that are new; close returned ones that are no longer open."""
        if view.proposals is None:
            return
        for proposed in self._handed_out.values():
            if proposed.state == "open" and proposed.position not in {None, *view.proposals}:
                proposed.state = "closed"
        for position, proposal in view.proposals.items():
            if position > self._latest:
                self._latest = position
                if proposal.proposer != self._space.participant_id:
                    self.unread[proposal.proposal_id] = proposal
                    self.put(_announced(proposal))

    def put(self, item: Envelope) -> None:
        """Queue a proposal. If the queue is full, no state is recorded for it."""
        super().put(item)
        if self._items[-1] is item:
            self._queued[item.id] = "open"
        else:
            self.unread.pop(item.id, None)

    def hand_out(self, space: "Space", envelope: Envelope) -> IncomingProposal:
        """Return the `IncomingProposal` for a queued envelope, with the state that it reached while queued."""
        proposed = IncomingProposal(space, envelope)
        proposed.state = self._queued.pop(envelope.id, "open")
        self._handed_out[envelope.id] = proposed
        return proposed

    def forget(self, envelope: Envelope) -> None:
        """Drop the records of a proposal that ended before it was read."""
        self._queued.pop(envelope.id, None)
        self.unread.pop(envelope.id, None)

    def _set_state(self, cause: str, envelope: Envelope) -> None:
        state, proposed = _STATES[envelope.kind], self._handed_out.get(cause)
        if proposed is not None and (state != "withdrawn" or proposed.by == envelope.sender):
            proposed.state = state
        elif cause in self._queued:
            if state in _CLOSED_STATES:
                self._withdraw(cause, envelope.sender)
            else:
                self._queued[cause] = state

    def _withdraw(self, cause: str, sender: str) -> None:
        queued = [envelope for envelope in self._items if isinstance(envelope, Envelope)]
        for envelope in queued:
            if envelope.id == cause and sender in {envelope.sender, kinds.GATEWAY}:
                self._items.remove(envelope)
                self.forget(envelope)


class Proposals:
    """Iterator over other participants' proposals: `async for proposal in space.proposals()`."""

    def __init__(self, space: "Space", queue: _ProposalQueue, subscription: Subscription[Envelope]) -> None:
        """Iterate over the proposals in the queue and those that follow."""
        self._space = space
        self._queue = queue
        self._subscription = subscription
        self._next: Envelope | None = None
        """Taken from the queue but not returned yet, for example because the reader was cancelled."""

    def __aiter__(self) -> "Proposals":
        return self

    async def __anext__(self) -> IncomingProposal:
        while True:
            if self._next is None:
                self._next = await anext(self._subscription)
            envelope_with_payload = await self._with_payload(self._next)
            envelope, self._next = self._next, None
            if envelope_with_payload is not None:
                return self._queue.hand_out(self._space, envelope_with_payload)
            self._queue.forget(envelope)

    async def _with_payload(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope with its payload; None if the proposal has ended or the gateway refuses to show it."""
        while (entry := self._queue.unread.get(envelope.id)) is not None:
            try:
                proposal = await read_proposal(self._space.session.target, self._space.id, entry)
            except (ProposalClosed, NotFound):
                return None
            except ConnectionLost:
                await self._space.connected()  # raises the reason if the space has ended
                await asyncio.sleep(_RETRY_SECONDS)
            except ProtocolError:
                return None
            else:
                del self._queue.unread[envelope.id]
                return proposal
        return envelope

    def close(self) -> None:
        """Stop reading proposals."""
        self._subscription.close()

    async def __aenter__(self) -> "Proposals":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def proposals(space: "Space", *, on_overflow: OnOverflow | None = None) -> Proposals:
    """Iterate over other participants' open proposals, then over new ones. Your own are left out.

    Proposals opened before you joined are included only if you may send at least one kind of `mcp/request`. A proposal
    that is withdrawn before you read it is left out. If it was fulfilled or rejected before you read it, its `state`
    shows that. If the reader is too slow, proposals are dropped and reported as in `envelopes`.
    """
    queue = _ProposalQueue(space, space.queue_limits, on_overflow)
    subscription = space.subscribe(queue)
    queue.update(space.view)
    return Proposals(space, queue, subscription)


def _announced(proposal: ProposalView) -> Envelope:
    """Return a placeholder envelope for a proposal whose payload is not read yet."""
    return Envelope(
        id=proposal.proposal_id, ts="", sender=proposal.proposer, kind=kinds.MCP_PROPOSAL, fields={"payload": b"{}"}
    )


def _ends(envelope: Envelope) -> bool:
    """Whether this ends the proposals that it names: it is stamped by the gateway, or sent by the gateway itself."""
    if envelope.kind == kinds.PROPOSAL_CLOSED:
        return envelope.sender == kinds.GATEWAY
    return stamp_of(envelope) is not None
