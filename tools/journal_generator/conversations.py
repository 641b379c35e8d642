"""Scenarios of conversations: chat, MCP requests and responses, proposals, reasoning, HTTP and observers.

A scenario is a generator. It performs actions, yields the seconds until it continues, and then checks again which
participants are present.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from mew.protocol.timestamps import SECOND
from tools.journal_generator import actions
from tools.journal_generator.ground_truth import Conversation
from tools.journal_generator.participants import COURIERS, HOST, OBSERVERS, PILOTS, PLANNERS, SOURCES, TOOLS
from tools.journal_generator.simulation import SentEnvelope, Simulation

Scenario: TypeAlias = Iterator[float]
_CHAT_TEXTS: Final = (
    "the crane is clear of the quay", "can you take the next leg?", "battery at a third, coming home",
    "who has the map of yesterday?", "danke, das passt", "waiting for the tide", "two boxes left, then a break",
    "the camera sees fog again", "please slow down near the gate", "done: the log is in the archive",
)  # fmt: skip
_METHODS: Final = ("tools/call", "tools/call", "tools/list", "resources/read")


def pick_active(simulation: Simulation, names: Sequence[str]) -> str | None:
    """Return a random participant of `names` that is present and may send, or None."""
    active = [name for name in names if simulation.may_send(name)]
    return simulation.rng.choice(active) if active else None


def jitter(simulation: Simulation, seconds: float) -> float:
    """Return a random duration around `seconds`."""
    return seconds * simulation.rng.uniform(0.5, 1.5)


def chat_payload(simulation: Simulation) -> dict[str, Any]:
    """Return the payload of a chat message."""
    return {"text": f"{simulation.rng.choice(_CHAT_TEXTS)} ({simulation.rng.randrange(10**4)})", "format": "plain"}


class OngoingConversation:
    """A conversation that has not ended; its envelopes are added to the ground truth."""

    def __init__(self, simulation: Simulation, sent: SentEnvelope, kind: str) -> None:
        """Start with this envelope."""
        self.root = sent.id
        self.last = sent.id
        self._truth = Conversation(sent.id, [sent.position], [kind], [sent.time])
        simulation.observer.add_conversation(self._truth)

    def add(self, sent: SentEnvelope, kind: str, outcome: str | None = None) -> None:
        """Add an envelope, and the outcome if it ends the conversation."""
        self.last = sent.id
        self._truth.positions.append(sent.position)
        self._truth.kinds.append(kind)
        self._truth.times.append(sent.time)
        self._truth.outcome = outcome or self._truth.outcome


def chat(simulation: Simulation) -> Scenario:
    """Send a chat message, which usually is acknowledged."""
    speaker = pick_active(simulation, (*PILOTS, *SOURCES, *PLANNERS))
    if speaker is None:
        return
    conversation = OngoingConversation(
        simulation, actions.send(simulation, speaker, "chat", chat_payload(simulation)), "chat"
    )
    yield jitter(simulation, 0.8)
    listener = pick_active(simulation, PILOTS)
    if listener is None:
        return
    if simulation.rng.random() < 0.2:
        sent = actions.send(
            simulation, listener, "chat/cancel", {"reason": "never mind"}, correlation_id=[conversation.root]
        )
        conversation.add(sent, "chat/cancel", "cancelled")
        return
    sent = actions.send(
        simulation, listener, "chat/acknowledge", {"status": "seen"}, correlation_id=[conversation.root]
    )
    conversation.add(sent, "chat/acknowledge")
    yield jitter(simulation, 1)
    if simulation.may_send(listener):
        conversation.add(
            actions.send(simulation, listener, "chat", chat_payload(simulation), correlation_id=[conversation.root]),
            "chat",
            "fulfilled",
        )


def _tool_call(simulation: Simulation) -> dict[str, Any]:
    rng = simulation.rng
    call = {"name": rng.choice(("add", "distance", "search")), "arguments": {"a": rng.randrange(99), "b": rng.random()}}
    return {"jsonrpc": "2.0", "id": rng.randrange(10**6), "method": rng.choice(_METHODS), "params": call}


def _respond(simulation: Simulation, conversation: OngoingConversation, tool: str, requester: str) -> None:
    result: dict[str, Any] = {"result": {"content": [{"type": "text", "text": f"{simulation.rng.random():.6f}"}]}}
    if simulation.rng.random() < 0.1:
        result = {"error": {"code": -32602, "message": "no such tool"}}
    sent = actions.send(simulation, tool, "mcp/response", result, to=[requester], correlation_id=[conversation.last])
    conversation.add(sent, "mcp/response", "rejected" if "error" in result else "fulfilled")


def request(simulation: Simulation, luck: float | None = None) -> Scenario:
    """Send a request to a tool; with bad luck no response follows."""
    requester, tool = pick_active(simulation, PILOTS), pick_active(simulation, TOOLS)
    if requester is None or tool is None:
        return
    conversation = OngoingConversation(
        simulation, actions.send(simulation, requester, "mcp/request", _tool_call(simulation), to=[tool]), "mcp/request"
    )
    yield jitter(simulation, 0.3)
    if simulation.may_send(tool) and (simulation.rng.random() if luck is None else luck) > 0.03:
        _respond(simulation, conversation, tool, requester)


def proposal(simulation: Simulation, luck: float | None = None) -> Scenario:
    """Propose a request; luck decides whether the proposal is withdrawn, rejected, fulfilled or left open."""
    planner, pilot, tool = (
        pick_active(simulation, PLANNERS),
        pick_active(simulation, PILOTS),
        pick_active(simulation, TOOLS),
    )
    if planner is None or pilot is None or tool is None:
        return
    call = _tool_call(simulation)
    conversation = OngoingConversation(
        simulation, actions.send(simulation, planner, "mcp/proposal", call), "mcp/proposal"
    )
    yield jitter(simulation, 1)
    open_proposal = simulation.state.proposals.get(conversation.root)
    if open_proposal is None or open_proposal.expires <= simulation.now + SECOND:
        return
    outcome_luck, origin = simulation.rng.random() if luck is None else luck, {"correlation_id": [conversation.root]}
    if outcome_luck < 0.15:
        if simulation.may_send(planner):
            sent = actions.send(simulation, planner, "mcp/withdraw", {"reason": "no longer needed"}, **origin)
            conversation.add(sent, "mcp/withdraw", "withdrawn")
    elif not simulation.may_send(pilot):
        return
    elif outcome_luck < 0.3:
        conversation.add(
            actions.send(simulation, pilot, "mcp/reject", {"reason": "unsafe"}, **origin), "mcp/reject", "rejected"
        )
    else:
        # A proposal is fulfilled only by a request with the same method and params; the id differs.
        request = {**call, "id": _tool_call(simulation)["id"]}
        conversation.add(actions.send(simulation, pilot, "mcp/request", request, to=[tool], **origin), "mcp/request")
        yield jitter(simulation, 0.4)
        if simulation.may_send(tool):
            _respond(simulation, conversation, tool, pilot)


def reasoning(simulation: Simulation) -> Scenario:
    """Reason step by step, in a context of its own."""
    planner = pick_active(simulation, PLANNERS)
    if planner is None:
        return
    conversation = OngoingConversation(
        simulation,
        actions.send(simulation, planner, "reasoning/start", {"message": "how to get there"}),
        "reasoning/start",
    )
    for number in range(simulation.rng.randrange(2, 6)):
        yield jitter(simulation, 0.4)
        if not simulation.may_send(planner):
            return
        sent = actions.send(
            simulation, planner, "reasoning/thought", {"message": f"step {number}"}, context=conversation.root
        )
        conversation.add(sent, "reasoning/thought")
    yield jitter(simulation, 0.4)
    if simulation.may_send(planner):
        cancelled = simulation.rng.random() < 0.2
        kind = "reasoning/cancel" if cancelled else "reasoning/conclusion"
        sent = actions.send(simulation, planner, kind, {"message": "by the north gate"}, context=conversation.root)
        conversation.add(sent, kind, "cancelled" if cancelled else "fulfilled")


def housekeeping(simulation: Simulation) -> Scenario:
    """Request the status of a participant, and let it compact and clear its memory."""
    pilot = pick_active(simulation, PILOTS)
    if pilot is None:
        return
    request = actions.send(simulation, HOST, "participant/request-status", {"fields": ["tokens"]}, to=[pilot])
    yield jitter(simulation, 0.3)
    if simulation.may_send(pilot):
        status = {"tokens": simulation.rng.randrange(10**5), "status": "working"}
        actions.send(simulation, pilot, "participant/status", status, correlation_id=[request.id])
    request = actions.send(simulation, HOST, "participant/compact", {"reason": "context is full"}, to=[pilot])
    yield jitter(simulation, 0.5)
    if simulation.may_send(pilot):
        actions.send(
            simulation, pilot, "participant/compact-done", {"status": "compacted"}, correlation_id=[request.id]
        )
    actions.send(simulation, HOST, "participant/forget", {"direction": "oldest", "entries": 10}, to=[pilot])
    actions.send(simulation, HOST, "participant/clear", {"reason": "new shift"}, to=[pilot])
    actions.send(simulation, HOST, "participant/restart", {"mode": "soft"}, to=[pilot])


def custom_kind(simulation: Simulation) -> Scenario:
    """Send a kind that the gateway does not know, and a heartbeat."""
    actions.send(simulation, HOST, "game/move", {"piece": "rook", "to": f"e{simulation.rng.randrange(1, 9)}"})
    yield jitter(simulation, 0.2)
    alive = pick_active(simulation, SOURCES)
    if alive is not None:
        actions.send_heartbeat(simulation, alive)


def http_posting(simulation: Simulation) -> Scenario:
    """Join over HTTP by sending an envelope; the presence times out later."""
    courier = simulation.rng.choice(COURIERS)
    actions.send_over_http(simulation, courier, "chat", chat_payload(simulation))
    yield jitter(simulation, 1)
    tool = pick_active(simulation, TOOLS)
    if tool is None:
        return
    conversation = OngoingConversation(
        simulation,
        actions.send_over_http(simulation, courier, "mcp/request", _tool_call(simulation), to=[tool]),
        "mcp/request",
    )
    yield jitter(simulation, 0.5)
    if simulation.may_send(tool):
        _respond(simulation, conversation, tool, courier)


def observing(simulation: Simulation) -> Scenario:
    """Join as an observer, try to send, and leave."""
    name = simulation.rng.choice(OBSERVERS)
    connection = actions.observe(simulation, name)
    yield jitter(simulation, 2)
    actions.send_as_observer(simulation, name, connection)
    yield jitter(simulation, 2)
    actions.stop_observing(simulation, connection)
