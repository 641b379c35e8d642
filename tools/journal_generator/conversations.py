"""Scenes in which participants talk: chats, requests and answers, proposals, thoughts, housekeeping.

A scene does something, yields how many seconds pass before it goes on, and looks again who is still there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from mew.journal.generator import acts
from mew.journal.generator.cast import COURIERS, HOST, ONLOOKERS, PILOTS, PLANNERS, SOURCES, TOOLS
from mew.journal.generator.play import Play, Sent
from mew.journal.generator.truth import Conversation

Scene: TypeAlias = Iterator[float]
_WORDS: Final = (
    "the crane is clear of the quay", "can you take the next leg?", "battery at a third, coming home",
    "who has the map of yesterday?", "danke, das passt", "waiting for the tide", "two boxes left, then a break",
    "the camera sees fog again", "please slow down near the gate", "done: the log is in the archive",
)  # fmt: skip
_METHODS: Final = ("tools/call", "tools/call", "tools/list", "resources/read")


def pick(play: Play, names: Sequence[str]) -> str | None:
    """One of them that is here and may speak."""
    found = [name for name in names if play.world.may_speak(name)]
    return play.rng.choice(found) if found else None


def about(play: Play, seconds: float) -> float:
    """About so long."""
    return seconds * play.rng.uniform(0.5, 1.5)


def talk(play: Play) -> dict[str, Any]:
    """What people say."""
    return {"text": f"{play.rng.choice(_WORDS)} ({play.rng.randrange(10**4)})", "format": "plain"}


class Thread:
    """A conversation as it grows."""

    def __init__(self, play: Play, sent: Sent, kind: str) -> None:
        """It begins with this envelope."""
        self.root = sent.id
        self.last = sent.id
        self._world = play.world
        self._truth = Conversation(sent.id, [sent.position], [kind], [sent.time])
        play.truth.conversations.append(self._truth)

    def propose(self) -> None:
        """Open the proposal that begins the conversation: it expires unless it is settled."""
        self._world.propose(self._truth)

    def settle(self) -> None:
        """Close the proposal, which a participant is about to end."""
        del self._world.proposals[self.root]

    def add(self, sent: Sent, kind: str, outcome: str | None = None) -> None:
        """Somebody answers; that may be the end."""
        self.last = sent.id
        self._truth.positions.append(sent.position)
        self._truth.kinds.append(kind)
        self._truth.times.append(sent.time)
        self._truth.outcome = outcome or self._truth.outcome


def chat(play: Play) -> Scene:
    """Somebody says something; mostly somebody nods."""
    speaker = pick(play, (*PILOTS, *SOURCES, *PLANNERS))
    if speaker is None:
        return
    thread = Thread(play, acts.say(play, speaker, "chat", talk(play)), "chat")
    yield about(play, 0.8)
    listener = pick(play, PILOTS)
    if listener is None:
        return
    if play.rng.random() < 0.2:
        sent = acts.say(play, listener, "chat/cancel", {"reason": "never mind"}, correlation_id=[thread.root])
        thread.add(sent, "chat/cancel", "cancelled")
        return
    sent = acts.say(play, listener, "chat/acknowledge", {"status": "seen"}, correlation_id=[thread.root])
    thread.add(sent, "chat/acknowledge")
    yield about(play, 1)
    if play.world.may_speak(listener):
        thread.add(acts.say(play, listener, "chat", talk(play), correlation_id=[thread.root]), "chat", "fulfilled")


def _call(play: Play) -> dict[str, Any]:
    rng = play.rng
    call = {"name": rng.choice(("add", "distance", "search")), "arguments": {"a": rng.randrange(99), "b": rng.random()}}
    return {"jsonrpc": "2.0", "id": rng.randrange(10**6), "method": rng.choice(_METHODS), "params": call}


def _answer(play: Play, thread: Thread, tool: str, asker: str) -> None:
    result: dict[str, Any] = {"result": {"content": [{"type": "text", "text": f"{play.rng.random():.6f}"}]}}
    if play.rng.random() < 0.1:
        result = {"error": {"code": -32602, "message": "no such tool"}}
    sent = acts.say(play, tool, "mcp/response", result, to=[asker], correlation_id=[thread.last])
    thread.add(sent, "mcp/response", "rejected" if "error" in result else "fulfilled")


def request(play: Play, luck: float | None = None) -> Scene:
    """A pilot asks a tool, which answers, but for bad luck."""
    asker, tool = pick(play, PILOTS), pick(play, TOOLS)
    if asker is None or tool is None:
        return
    thread = Thread(play, acts.say(play, asker, "mcp/request", _call(play), to=[tool]), "mcp/request")
    yield about(play, 0.3)
    if play.world.may_speak(tool) and (play.rng.random() if luck is None else luck) > 0.03:
        _answer(play, thread, tool, asker)


def proposal(play: Play, luck: float | None = None) -> Scene:
    """A planner proposes what it may not request; by luck a pilot does it, refuses, or is too late."""
    planner, pilot, tool = pick(play, PLANNERS), pick(play, PILOTS), pick(play, TOOLS)
    if planner is None or pilot is None or tool is None:
        return
    call = _call(play)
    thread = Thread(play, acts.say(play, planner, "mcp/proposal", call), "mcp/proposal")
    thread.propose()
    yield about(play, 1)
    if not play.world.is_open(thread.root, play.now):
        return
    way, origin = play.rng.random() if luck is None else luck, {"correlation_id": [thread.root]}
    if way < 0.15:
        if play.world.may_speak(planner):
            thread.settle()
            sent = acts.say(play, planner, "mcp/withdraw", {"reason": "no longer needed"}, **origin)
            thread.add(sent, "mcp/withdraw", "withdrawn")
    elif not play.world.may_speak(pilot):
        return
    elif way < 0.3:
        thread.settle()
        thread.add(acts.say(play, pilot, "mcp/reject", {"reason": "unsafe"}, **origin), "mcp/reject", "rejected")
    else:
        thread.settle()
        # The same method and params, with a number of the pilot's own: nothing else fulfils a proposal.
        request = {**call, "id": _call(play)["id"]}
        thread.add(acts.say(play, pilot, "mcp/request", request, to=[tool], **origin), "mcp/request")
        yield about(play, 0.4)
        if play.world.may_speak(tool):
            _answer(play, thread, tool, pilot)


def reasoning(play: Play) -> Scene:
    """A planner thinks aloud, in a context of its own."""
    planner = pick(play, PLANNERS)
    if planner is None:
        return
    thread = Thread(
        play, acts.say(play, planner, "reasoning/start", {"message": "how to get there"}), "reasoning/start"
    )
    for number in range(play.rng.randrange(2, 6)):
        yield about(play, 0.4)
        if not play.world.may_speak(planner):
            return
        sent = acts.say(play, planner, "reasoning/thought", {"message": f"step {number}"}, context=thread.root)
        thread.add(sent, "reasoning/thought")
    yield about(play, 0.4)
    if play.world.may_speak(planner):
        cancelled = play.rng.random() < 0.2
        kind = "reasoning/cancel" if cancelled else "reasoning/conclusion"
        sent = acts.say(play, planner, kind, {"message": "by the north gate"}, context=thread.root)
        thread.add(sent, kind, "cancelled" if cancelled else "fulfilled")


def housekeeping(play: Play) -> Scene:
    """The host asks how somebody is, and tidies its memory."""
    pilot = pick(play, PILOTS)
    if pilot is None:
        return
    request = acts.say(play, HOST, "participant/request-status", {"fields": ["tokens"]}, to=[pilot])
    yield about(play, 0.3)
    if play.world.may_speak(pilot):
        status = {"tokens": play.rng.randrange(10**5), "status": "working"}
        acts.say(play, pilot, "participant/status", status, correlation_id=[request.id])
    request = acts.say(play, HOST, "participant/compact", {"reason": "context is full"}, to=[pilot])
    yield about(play, 0.5)
    if play.world.may_speak(pilot):
        acts.say(play, pilot, "participant/compact-done", {"status": "compacted"}, correlation_id=[request.id])
    acts.say(play, HOST, "participant/forget", {"direction": "oldest", "entries": 10}, to=[pilot])
    acts.say(play, HOST, "participant/clear", {"reason": "new shift"}, to=[pilot])
    acts.say(play, HOST, "participant/restart", {"mode": "soft"}, to=[pilot])


def game(play: Play) -> Scene:
    """A kind that the gateway does not know, and a sign of life."""
    acts.say(play, HOST, "game/move", {"piece": "rook", "to": f"e{play.rng.randrange(1, 9)}"})
    yield about(play, 0.2)
    alive = pick(play, SOURCES)
    if alive is not None:
        acts.beat(play, alive)


def posting(play: Play) -> Scene:
    """Somebody without a socket comes by, says something, and is gone a while later."""
    courier = play.rng.choice(COURIERS)
    acts.post(play, courier, "chat", talk(play))
    yield about(play, 1)
    tool = pick(play, TOOLS)
    if tool is None:
        return
    thread = Thread(play, acts.post(play, courier, "mcp/request", _call(play), to=[tool]), "mcp/request")
    yield about(play, 0.5)
    if play.world.may_speak(tool):
        _answer(play, thread, tool, courier)


def onlooking(play: Play) -> Scene:
    """Somebody only looks, tries to speak all the same, and goes."""
    name = play.rng.choice(ONLOOKERS)
    connection = acts.observe(play, name)
    yield about(play, 2)
    acts.speak_unasked(play, name, connection)
    yield about(play, 2)
    acts.stop_observing(play, connection)
