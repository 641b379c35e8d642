"""Own proposals: MCP requests that this participant may not send, proposed for others to send.

Another participant fulfils an `mcp/proposal` with an `mcp/request`, or rejects it with `mcp/reject`. The proposer can
take it back with `mcp/withdraw`. The `mcp/response` to the request is the result (protocol, Proposals). Each envelope
has the id of the one it answers in `correlation_id`. An envelope that ends a proposal carries the gateway's stamp,
`proposal: {position, digest}`. An envelope without the stamp does not end it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from mew.client.errors import ConnectionLost, MewError, ProposalExpired, Rejected, RequestTimeout, Withdrawn
from mew.client.mcp.calls import UNAWAITED, McpAnswer, answer_in
from mew.client.sender import CLEANUP_SECONDS, Names, OutgoingEnvelope
from mew.client.subscriptions import EnvelopeFilter, EnvelopeQueue, QueueLimits, Subscription
from mew.protocol import kinds, raw_json
from mew.protocol.envelope import Envelope

if TYPE_CHECKING:
    from mew.client.space import Space


REJECT: Final = "mcp/reject"
WITHDRAW: Final = "mcp/withdraw"
_CHAIN: Final = frozenset({kinds.MCP_REQUEST, kinds.MCP_RESPONSE, REJECT, WITHDRAW, kinds.PROPOSAL_CLOSED})


class _Chain(EnvelopeQueue):
    """Queue of the envelopes that follow a proposal: requests, their responses, rejections, and its withdrawal."""

    def __init__(self, limits: QueueLimits) -> None:
        super().__init__(EnvelopeFilter(), limits)
        self._ids: set[str] = set()

    def begin(self, proposal_id: str) -> None:
        """Set the id of the proposal, and filter the envelopes that were queued before the id was known."""
        early, self._items = self._items, type(self._items)()
        self._ids.add(proposal_id)
        for envelope in early:
            if isinstance(envelope, Envelope):
                self.offer(envelope)

    def offer(self, envelope: Envelope) -> None:
        """Queue an envelope of the chain, or a welcome: after a reconnect, envelopes may have been missed."""
        if envelope.kind == kinds.WELCOME and envelope.sender == kinds.GATEWAY:
            self.put(envelope)
        elif envelope.kind in _CHAIN and (not self._ids or not self._ids.isdisjoint(envelope.correlation_id)):
            if self._ids and envelope.kind == kinds.MCP_REQUEST:
                self._ids.add(envelope.id)
            self.put(envelope)


class Proposal:
    """An own proposal, created by `space.propose`: wait for its `result`, or `withdraw` it."""

    def __init__(self, space: "Space", envelope: Envelope, chain: Subscription[Envelope]) -> None:
        """Follow a proposal that the gateway has accepted."""
        self._space = space
        self._tracked = stamp_of(envelope) is not None
        self._chain = chain
        self._connection = space.connection
        self._fulfilled: dict[str, Envelope] = {}
        self._end: McpAnswer | MewError | None = None
        self.envelope = envelope
        """The `mcp/proposal` itself."""

    @property
    def id(self) -> str:
        """The id of the proposal; envelopes that fulfil or reject it have it in `correlation_id`."""
        return self.envelope.id

    async def withdraw(self, reason: str | None = None) -> Envelope:
        """Withdraw the proposal, so that no one fulfils it any more."""
        payload = {} if reason is None else {"reason": reason}
        return await self._space.send(WITHDRAW, payload, to=self.envelope.to, correlation_id=self.id)

    async def abandon(self, reason: str) -> None:
        """Withdraw the proposal if it has no result yet, ignoring failures, and stop following it."""
        if self._end is None:
            await _withdraw(self._space, self.id, self.envelope.to, reason)
        self.close()

    def close(self) -> None:
        """Stop following the proposal, without withdrawing it."""
        self._chain.close()

    async def result(self, timeout: float | None = None) -> McpAnswer:
        """Wait for the result of the proposal; `by` of the answer names the participant that fulfilled it.

        Raises `Rejected`; `Withdrawn`; `ProposalExpired` if it was not fulfilled before it expired; `McpError` if the
        fulfilling request failed; `ConnectionLost` if the connection broke and the result may have been missed.
        Raises `RequestTimeout` after `timeout` seconds; you can then call this again.
        """
        try:
            async with asyncio.timeout(timeout) as limit:
                while self._end is None:
                    self._end = self._read(await self._next())
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(f"no participant fulfilled {self.id!r} within {timeout:g} s") from None
        self.close()
        if isinstance(self._end, MewError):
            raise self._end.with_traceback(None)
        return self._end

    async def _next(self) -> Envelope:
        async for envelope in self._chain:
            return envelope
        self._space.session.require()  # raises the reason why the space has ended
        raise ConnectionLost("the proposal is no longer followed")

    def _read(self, envelope: Envelope) -> McpAnswer | MewError | None:
        """Return the outcome that an envelope of the chain decides; None if the proposal is still open."""
        kind, reason = envelope.kind, _reason(envelope)
        if kind == kinds.WELCOME:
            away = self._space.connection is not self._connection
            return ConnectionLost(f"the connection was lost; the outcome of {self.id!r} is unknown") if away else None
        if kind == kinds.PROPOSAL_CLOSED:
            return ProposalExpired(str(envelope.payload.get("outcome"))) if envelope.sender == kinds.GATEWAY else None
        if self._tracked and kind != kinds.MCP_RESPONSE and stamp_of(envelope) is None:
            return None  # no effect: the gateway did not count it as ending or fulfilling the proposal
        if kind == WITHDRAW:
            return Withdrawn(reason) if envelope.sender == self.envelope.sender else None
        if kind == REJECT:
            return Rejected(reason, envelope.sender) if not self._fulfilled else None
        if kind == kinds.MCP_REQUEST:
            self._fulfilled[envelope.id] = envelope
            return None
        return self._answer(envelope)

    def _answer(self, response: Envelope) -> McpAnswer | MewError | None:
        """Return the outcome in a response; None if its sender is not a recipient of the request or the proposal."""
        causes = [self._fulfilled.get(cause_id) or self.envelope for cause_id in response.correlation_id]
        cause = next((request for request in causes if not request.to or response.sender in request.to), None)
        if cause is None:
            return None
        if cause is self.envelope and not cause.to and self._tracked and stamp_of(response) is None:
            return None  # no recipient is named: only a participant that may send the request can answer
        try:
            return answer_in(response, response.sender if cause is self.envelope else cause.sender)
        except MewError as failure:
            return failure


# Methods of a space


async def send_proposal(
    space: "Space",
    who: Names,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    expires_in: float | None = None,
) -> Proposal:
    """Propose an MCP request to the participants that may send it (`mcp/proposal`); `who` is to answer the request.

    The gateway closes the proposal after `expires_in` seconds (from 10 to 86,400; the default is five minutes).

    If this call is cancelled before the gateway confirms the proposal, the proposal is withdrawn.
    """
    chain, sent = _Chain(space.queue_limits), list[str]()
    following = space.subscribe(chain)
    payload = {"method": method, "params": {} if params is None else params}
    lifetime = None if expires_in is None else {"expires_in_seconds": expires_in}
    try:
        envelope = await space.post(
            OutgoingEnvelope(kind=kinds.MCP_PROPOSAL, payload=payload, to=who, proposal=lifetime, on_sent=sent.append)
        )
    except BaseException as error:
        following.close()
        if sent and isinstance(error, asyncio.CancelledError):
            await _withdraw(space, sent[0], who, UNAWAITED)
        raise
    chain.begin(envelope.id)
    return Proposal(space, envelope, following)


async def _withdraw(space: "Space", proposal_id: str, to: Names, reason: str) -> None:
    """Withdraw a proposal during cleanup: wait at most `CLEANUP_SECONDS` seconds and ignore failures."""
    with suppress(MewError, TimeoutError):
        async with asyncio.timeout(CLEANUP_SECONDS):
            await space.send(WITHDRAW, {"reason": reason}, to=to, correlation_id=proposal_id)


def stamp_of(envelope: Envelope) -> dict[str, Any] | None:
    """Return the gateway's stamp in `proposal`: `{position, digest}`, for a proposal also `expires_at`; else None."""
    stamp = raw_json.decode_json(envelope.fields.get(kinds.PROPOSAL_FIELD, b"null"))
    return stamp if isinstance(stamp, dict) and {"position", "digest"} <= stamp.keys() else None


def _reason(envelope: Envelope) -> str | None:
    reason = envelope.payload.get("reason")
    return reason if isinstance(reason, str) else None
