"""Random histories of a space: Hypothesis draws steps for a few participants.

Most steps are sensible; many come too late, or from or to the wrong participant, and are rejected.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mew.testing import Client

NAMES: Final = ("alice", "bob", "carol", "guest")
"""Three are configured; the last one is a free id for an anonymous participant."""
CONFIGURATION: Final[dict[str, Any]] = {
    "participants": {"alice": [{"kind": "*"}], "bob": [{"kind": "stream/*"}, {"kind": "chat"}], "carol": None},
    "allow_anonymous": True,
}


class Step(NamedTuple):
    """An action of one participant, on another participant or on one of a few streams."""

    verb: str
    actor: str
    other: str
    number: int

    @property
    def stream_id(self) -> str:
        return f"stream-{self.number}"


class History:
    """Runs steps on a space, one command each."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.clients: dict[str, Client] = {}
        self.sequence = 0

    def play(self, step: Step) -> None:
        """Carry out a step if its actor is connected."""
        if step.verb in _OUTSIDE:
            _OUTSIDE[step.verb](self, step)
        elif (client := self.clients.get(step.actor)) is not None and client.closed is None:
            _INSIDE[step.verb](self, client, step)

    def play_all(self, steps: list[Step]) -> None:
        for step in steps:
            self.play(step)

    def next_sequence(self, step: Step) -> int:
        self.sequence += step.number
        return self.sequence


def _join(history: History, step: Step) -> None:
    if step.actor == "guest":
        client = history.lab.connect()
        client.send(type="join", participantId="guest")
    else:
        client = history.lab.join(step.actor)
    history.clients[step.actor] = client


def _observe(history: History, _step: Step) -> None:
    history.lab.observe()


def _advance(history: History, step: Step) -> None:
    history.lab.advance(step.number * 25)


def _post(history: History, step: Step) -> None:
    history.lab.post("carol", {"kind": "chat", "payload": {"text": step.other}})


def _restart(history: History, _step: Step) -> None:
    history.clients.clear()
    history.lab.restart()


def _lose(history: History, step: Step) -> None:
    history.lab.lose(step.actor, step.stream_id, 1, step.number)


def _leave(history: History, client: Client, step: Step) -> None:
    del history.clients[step.actor]
    client.leave()


def _frame(_history: History, client: Client, step: Step) -> None:
    client.frame(step.stream_id, step.other)


def _data(history: History, client: Client, step: Step) -> None:
    payload = {"stream_id": step.stream_id, "sequence": history.next_sequence(step), "content": step.other}
    client.send(kind="stream/data", payload=payload)


def _say(kind: str, payload: Callable[[Step], dict[str, Any]], *, to_other: bool = False) -> "_Inside":
    def say(_history: History, client: Client, step: Step) -> None:
        to = {"to": [step.other]} if to_other else {}
        client.send(to, kind=kind, payload=payload(step))

    return say


def _of_stream(step: Step) -> dict[str, Any]:
    return {"stream_id": step.stream_id}


def _with_participant(step: Step) -> dict[str, Any]:
    return {"stream_id": step.stream_id, "participant_id": step.other}


def _request(step: Step) -> dict[str, Any]:
    policy = {} if step.number == 1 else {"on_owner_disconnect": ["close", "keep"][step.number - 2]}
    return {"description": step.other, "depth": {"x": 1.50}, **policy}


def _announce(step: Step) -> dict[str, Any]:
    return {"formats": [{"id": step.other}], "desired_id": "moves" if step.number == 1 else None}


def _pause(step: Step) -> dict[str, Any]:
    return {"timeout_seconds": step.number * 20} if step.number < 3 else {}


_Outside = Callable[[History, Step], None]
_Inside = Callable[[History, Client, Step], None]

_OUTSIDE: Final[dict[str, _Outside]] = {
    "join": _join,
    "observe": _observe,
    "advance": _advance,
    "post": _post,
    "restart": _restart,
    "lose": _lose,
}
_INSIDE: Final[dict[str, _Inside]] = {
    "leave": _leave,
    "frame": _frame,
    "data": _data,
    "chat": _say("chat", lambda step: {"text": step.other}),
    "request": _say("stream/request", _request),
    "announce": _say("stream/announce", _announce),
    "start": _say("stream/start", _of_stream),
    "close": _say("stream/close", _of_stream),
    "grant write": _say("stream/grant-write", _with_participant),
    "revoke write": _say("stream/revoke-write", _with_participant),
    "transfer": _say("stream/transfer-ownership", lambda step: {"stream_id": step.stream_id, "new_owner": step.other}),
    "kick": _say("space/kick", lambda step: {"participant_id": step.other}),
    "invite": _say(
        "space/invite", lambda step: {"participant_id": step.other, "initial_capabilities": [{"kind": "*"}]}
    ),
    "grant": _say(
        "capability/grant",
        lambda step: {
            "recipient": step.other,
            "capabilities": [{"kind": "stream/*", "payload": {"description": [f"{step.number}*"]}}],
        },
    ),
    "revoke": _say("capability/revoke", lambda step: {"recipient": step.other, "capabilities": [{"kind": "stream/*"}]}),
    "pause": _say("participant/pause", _pause, to_other=True),
    "resume": _say("participant/resume", lambda _step: {}, to_other=True),
    "shutdown": _say("participant/shutdown", lambda _step: {}, to_other=True),
}
COMING_AND_GOING: Final = ("join", "join", "leave", "advance", "request", "grant write", "transfer", "kick")
ALL_VERBS: Final = (*_OUTSIDE, *_INSIDE, "join", "join", "request", "grant write", "data", "frame")


def opened(steps: list[Step]) -> list[Step]:
    """The same steps, after all have joined and alice has a stream."""
    return [*_OPENING, *steps]


def histories(verbs: tuple[str, ...] = ALL_VERBS, size: int = 40) -> st.SearchStrategy[list[Step]]:
    """Lists of steps after the opening."""
    step = st.builds(
        Step,
        st.sampled_from(verbs),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(min_value=1, max_value=3),
    )
    return st.lists(step, max_size=size).map(opened)


_OPENING: Final = [
    Step("join", "alice", "alice", 1),
    Step("join", "bob", "bob", 1),
    Step("join", "carol", "carol", 1),
    Step("join", "guest", "guest", 1),
    Step("request", "alice", "bob", 1),
    Step("grant write", "alice", "bob", 1),
]
