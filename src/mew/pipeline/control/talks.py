"""Conversations: envelopes that answer one another, from a proposal, a request, a chat or a thought to its outcome.

Pure. Time is the journal's: a conversation without an outcome ends when no message belongs to it for ten
minutes, and an open proposal not before it expires; one with an outcome is over a minute after its last word. Of a
proposal that the gateway keeps, only what carries its stamp decides, and the gateway's own word (protocol §3).
What it is made of is bounded, so the state is.

What is stamped belongs to the conversation of the proposal at that position; another envelope to that of the first id
that its `correlation_id` names, one of `reasoning/*` to that of its `context`. The first outcome counts, but a refusal
can still be replaced by a fulfilment of another participant.
"""

from collections import OrderedDict
from typing import Any, Final

import msgspec

from mew.pipeline.control.rows import ConversationRow
from mew.pipeline.control.said import EnvelopeRow
from mew.protocol import kinds
from mew.protocol.records import ENVELOPE, Record
from mew.protocol.timestamps import SECOND, parse_rfc3339

PATIENCE: Final = 600 * SECOND
"""How long an outcome is waited for."""
LINGER: Final = 60 * SECOND
"""How long late words still belong to what has an outcome."""
MOST: Final = 10_000
"""The maximum number of open conversations; beyond it, the one that is idle for longest ends."""
LONGEST: Final = 1_000
"""Envelopes of one."""
OPEN: Final = "open"
FULFILLED: Final = "fulfilled"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"
CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"
PROPOSAL: Final = "mcp/proposal"
REJECT: Final = "mcp/reject"
START: Final = "reasoning/start"
_REASONING: Final = "reasoning/"
_ROOTS: Final = frozenset({PROPOSAL, kinds.MCP_REQUEST, kinds.CHAT, START})
_OUTCOMES: Final = {
    kinds.MCP_RESPONSE: FULFILLED,
    REJECT: REJECTED,
    "mcp/withdraw": WITHDRAWN,
    kinds.CHAT: FULFILLED,
    kinds.CHAT_CANCEL: CANCELLED,
    "reasoning/conclusion": FULFILLED,
    kinds.REASONING_CANCEL: CANCELLED,
}
_OF_ITS_OWN: Final = {
    kinds.CHAT: frozenset({kinds.CHAT}),
    kinds.CHAT_CANCEL: frozenset({kinds.CHAT}),
    "reasoning/conclusion": frozenset({START}),
    kinds.REASONING_CANCEL: frozenset({START}),
}
"""Kinds that are an outcome only of what began so: a chat about a proposal does not decide it."""
_NEVER: Final = 2**63


class _Asked(msgspec.Struct):
    method: Any = ""
    error: Any = None
    outcome: Any = None
    position: Any = None


class _Stamp(msgspec.Struct):
    position: int
    expires_at: str | None = None


_payload = msgspec.json.Decoder(_Asked)
_text = msgspec.json.Decoder(str)
_stamp = msgspec.json.Decoder(_Stamp)


class ConversationTracker:
    """The table `conversations`."""

    def __init__(self, talks: list[ConversationRow]) -> None:
        """Start with the open conversations."""
        self.over: list[ConversationRow] = []
        self._waiting: OrderedDict[int, ConversationRow] = OrderedDict()
        """Without an outcome, by the position of their root; whose last word is oldest comes first."""
        self._decided: OrderedDict[int, ConversationRow] = OrderedDict()
        self._queues = ((self._waiting, PATIENCE), (self._decided, LINGER))
        self._proposed: dict[int, ConversationRow] = {}
        """Open proposals that the gateway keeps: as many as it does."""
        self._by_id: dict[str, ConversationRow] = {}
        self._due = _NEVER
        """Before this time none is over."""
        for talk in sorted(talks, key=lambda each: each.last_position):
            self._put(talk)
            self._by_id.update(dict.fromkeys(talk.ids, talk))

    @property
    def going_on(self) -> list[ConversationRow]:
        """Those that are not over, in order."""
        every = (*self._waiting.values(), *self._decided.values(), *self._proposed.values())
        return sorted(every, key=lambda each: each.position)

    def add(self, record: Record, said: EnvelopeRow) -> None:
        """A message was accepted."""
        kind = record.kind
        if kind is None or record.event != ENVELOPE:
            return
        if record.participant == kinds.GATEWAY and kind != kinds.PROPOSAL_CLOSED:
            return
        talk = self._of(kind, said)
        if talk is not None:
            self._go_on(talk, record, said)
        elif kind in _ROOTS:
            self._begin(record, said)

    def pass_time(self, now: int) -> None:
        """End idle conversations."""
        if now < self._due:
            return
        for talks, limit in self._queues:
            while talks and (oldest := next(iter(talks.values()))).last_time + limit <= now:
                self._end(oldest)
        for talk in [each for each in self._proposed.values() if _proposal_due(each) <= now]:
            self._end(talk)
        self._set_due()

    def _of(self, kind: str, said: EnvelopeRow) -> ConversationRow | None:
        if kind == kinds.PROPOSAL_CLOSED:
            return self._kept(_payload.decode(said.payload).position)
        stamp = None if kind == PROPOSAL else _stamped(said)
        kept = None if stamp is None else self._kept(stamp.position)
        if kept is not None:
            return kept
        for envelope_id in said.answers:
            talk = self._by_id.get(envelope_id)
            if talk is not None:
                return talk
        return self._by_id.get(_word(said.context)) if kind.startswith(_REASONING) else None

    def _kept(self, position: Any) -> ConversationRow | None:
        """The conversation of the proposal that the gateway keeps at this position."""
        found = (talks.get(position) for talks in (self._proposed, self._waiting, self._decided))
        return next((talk for talk in found if talk is not None and talk.tracked), None)

    def _begin(self, record: Record, said: EnvelopeRow) -> None:
        kind, envelope_id = str(record.kind), record.envelope_id or ""
        talk = ConversationRow(
            root=envelope_id,
            root_kind=kind,
            position=record.position,
            time=record.time,
            last_position=record.position,
            last_time=record.time,
            method=_method(said) if kind in {PROPOSAL, kinds.MCP_REQUEST} else "",
            participants=[record.participant],
            kinds=[kind],
            positions=[record.position],
            times=[record.time],
            ids=[],
        )
        stamp = _stamped(said) if kind == PROPOSAL else None
        if stamp is not None:
            talk.tracked, talk.expires = True, parse_rfc3339(stamp.expires_at or "") or 0
        self._name(talk, envelope_id)
        self._put(talk)
        if len(self._waiting) + len(self._decided) + len(self._proposed) > MOST:
            fronts = [next(iter(talks.values())) for talks in (self._waiting, self._decided, self._proposed) if talks]
            self._end(min(fronts, key=lambda each: each.last_position))

    def _go_on(self, talk: ConversationRow, record: Record, said: EnvelopeRow) -> None:
        kind = str(record.kind)
        self._take(talk)
        talk.last_position, talk.last_time = record.position, record.time
        talk.kinds.append(kind)
        talk.positions.append(record.position)
        talk.times.append(record.time)
        if record.participant not in talk.participants:
            talk.participants.append(record.participant)
        counts = not talk.tracked or _is_stamped(talk, said)
        if counts and talk.tracked:
            talk.expires, talk.fulfilment = 0, (record.envelope_id or "") if kind == kinds.MCP_REQUEST else ""
        self._name(talk, record.envelope_id or "")
        if talk.root_kind == PROPOSAL and talk.decided_after is None and counts and kind in {kinds.MCP_REQUEST, REJECT}:
            talk.decided_after = record.time - talk.time
        outcome = _outcome(talk, kind, said)
        if outcome is not None and (talk.outcome == OPEN or (talk.outcome, outcome) == (REJECTED, FULFILLED)):
            talk.outcome, talk.answered_after = outcome, record.time - talk.time
        self._put(talk)
        if len(talk.positions) >= LONGEST:
            self._end(talk)

    def _name(self, talk: ConversationRow, envelope_id: str) -> None:
        """Who answers this id answers this conversation, and no older one whose sender used the id too.

        The ids by which a proposal of the gateway's is answered stay its own until it has an outcome.
        """
        known = self._by_id.get(envelope_id)
        if known is not None and _is_held(known, envelope_id) and not _is_held(talk, envelope_id):
            return
        if known is not talk and envelope_id:
            if known is not None:
                known.ids.remove(envelope_id)
            self._by_id[envelope_id] = talk
            talk.ids.append(envelope_id)

    def _put(self, talk: ConversationRow) -> None:
        if talk.outcome == OPEN and talk.expires:
            self._proposed[talk.position] = talk
            self._due = min(self._due, _proposal_due(talk))
            return
        is_waiting = talk.outcome == OPEN
        (self._waiting if is_waiting else self._decided)[talk.position] = talk
        self._due = min(self._due, talk.last_time + (PATIENCE if is_waiting else LINGER))

    def _take(self, talk: ConversationRow) -> None:
        if self._proposed.pop(talk.position, None) is None:
            del (self._waiting if talk.outcome == OPEN else self._decided)[talk.position]

    def _end(self, talk: ConversationRow) -> None:
        self._take(talk)
        for envelope_id in talk.ids:
            del self._by_id[envelope_id]
        if talk.outcome == OPEN:
            talk.outcome = EXPIRED
        self.over.append(talk)

    def _set_due(self) -> None:
        fronts = [(next(iter(talks.values())), limit) for talks, limit in self._queues if talks]
        dues = [talk.last_time + limit for talk, limit in fronts]
        self._due = min([*dues, *map(_proposal_due, self._proposed.values())], default=_NEVER)


def _proposal_due(talk: ConversationRow) -> int:
    """The gateway closes it when it expires; if it was not running then, no record follows."""
    return max(talk.last_time + PATIENCE, talk.expires + LINGER)


def _stamped(said: EnvelopeRow) -> _Stamp | None:
    """The gateway's stamp, where there is one."""
    try:
        return _stamp.decode(said.proposal) if bytes(said.proposal) else None
    except msgspec.MsgspecError:
        return None


def _is_stamped(talk: ConversationRow, said: EnvelopeRow) -> bool:
    """Whether an envelope has the stamp of the proposal that a conversation began with."""
    stamp = _stamped(said)
    return stamp is not None and stamp.position == talk.position


def _is_held(talk: ConversationRow, envelope_id: str) -> bool:
    return talk.tracked and talk.outcome == OPEN and envelope_id in {talk.root, talk.fulfilment}


def _word(context: msgspec.Raw) -> str:
    try:
        return _text.decode(context)
    except msgspec.MsgspecError:
        return ""


def _method(said: EnvelopeRow) -> str:
    try:
        method = _payload.decode(said.payload).method
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return method if isinstance(method, str) else ""


def _outcome(talk: ConversationRow, kind: str, said: EnvelopeRow) -> str | None:
    if kind == kinds.PROPOSAL_CLOSED:
        return _closed(said)
    outcome = _OUTCOMES.get(kind)
    if talk.tracked and not _is_stamped(talk, said):
        # Without the stamp it is an opinion, unless it answers the request that fulfilled the proposal.
        is_answer = talk.fulfilment in said.answers and talk.root not in said.answers
        outcome = outcome if is_answer else None
    if outcome is None or talk.root_kind not in _OF_ITS_OWN.get(kind, (talk.root_kind,)):
        return None
    if kind == kinds.MCP_RESPONSE and _is_error(said):
        return REJECTED
    return outcome


def _closed(said: EnvelopeRow) -> str:
    """How the gateway closed it; to the participants it has expired in any case."""
    outcome = _payload.decode(said.payload).outcome
    return outcome if isinstance(outcome, str) else EXPIRED


def _is_error(said: EnvelopeRow) -> bool:
    try:
        return _payload.decode(said.payload).error is not None
    except (msgspec.MsgspecError, RecursionError):
        return False
