"""The state machine: each method marked `action` is a possible step, with the possible values of its arguments.

`World.do` carries out a step and checks all invariants. The rules are in `model`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from mew.protocol import (
    AttachOutputLog,
    Checkpoint,
    Deliver,
    Envelope,
    HttpAnswer,
    Join,
    Leave,
    Limits,
    Poll,
    Post,
    ProtocolError,
    Receive,
    Record,
    Tick,
)
from mew.testing import settings
from tests.model.harness import SpaceHarness
from tests.model.model import Model, Rejected

PEOPLE: Final[dict[str, list[str] | None]] = {
    "ada": ["*"],
    "ben": ["stream/*", "chat"],
    "cleo": ["stream/request", "chat"],
    "dan": ["stream/manage", "space/invite", "space/kick"],
    "eve": None,
    "fay": ["capability/*", "participant/*", "stream/request", "!chat"],
    "gus": ["stream/request", "participant/resume"],
}
LOG: Final = "gus"
GUEST: Final = "guest"
NAMES: Final = (*PEOPLE, GUEST)
MIGHTY: Final = (*NAMES, "ada", "ada", "dan", "fay")
HERE_FROM_THE_START: Final = ("ada", "ben", "cleo", "dan", "fay", GUEST)
LIMITS: Final = {"streams": 5, "writers": 4, "grants": 8}
SOMEWHERE: Final = (*[0, 1, 2, 3, 4] * 4, -1)
OWNER, WRITER, REMOVED = "the owner", "a writer", "a removed participant"
OWNERS: Final = (*NAMES, *[OWNER] * 12)
WRITERS: Final = (*NAMES, *[OWNER] * 5, *[WRITER] * 5)
TRANSPORTS: Final = ("socket", "socket", "socket", "http")
TARGETS: Final[tuple[list[str] | None, ...]] = (
    None,
    None,
    None,
    None,
    [],
    ["ada", "ben"],
    ["ada"],
    ["ben", "guest"],
    ["cleo", "gus", "cleo"],
)
POLICIES: Final = (None, None, "transfer", "keep", "close")
KINDS: Final = ("stream/request", "stream/manage", "stream/*", "chat", "*", "!chat", "capability/*", "stream/write:x")
FORMATS: Final = ([{"id": "text"}], [{"id": "text"}, {"id": "pcm", "mime_type": "audio/L16"}])

T = TypeVar("T")


@dataclass(frozen=True)
class Action:
    """A possible step, and the possible values of each argument."""

    weight: int
    options: dict[str, tuple[Any, ...]]


ACTIONS: Final[dict[str, Action]] = {}


def action(weight: int = 2, **options: tuple[Any, ...]) -> Callable[[T], T]:
    def mark(method: T) -> T:
        ACTIONS[method.__name__] = Action(weight, options)  # type: ignore[attr-defined]
        return method

    return mark


class World(SpaceHarness):
    """A space in which one history runs."""

    def __init__(self) -> None:
        people = {name: None if kinds is None else [{"kind": kind} for kind in kinds] for name, kinds in PEOPLE.items()}
        configured = settings(
            participants=people, output_logs=frozenset({LOG}), allow_anonymous=True, limits=Limits(**LIMITS)
        )
        super().__init__(configured, Model(dict(PEOPLE), {LOG}, LIMITS))
        self.count = 0
        self.grant_ids: list[tuple[str, str]] = []
        for name in HERE_FROM_THE_START:
            self.do("join", who=name)
        self.do("request", who="cleo", via="socket", readers=None, policy=None, formats=None)
        self.do("grant_write", who="cleo", via="socket", stream=0, writer="ben")

    def do(self, name: str, **arguments: Any) -> None:
        """Carry out one step, and check the invariants."""
        for listener in self.listeners.values():
            listener.heard.clear()
        self.model.announced.clear()
        self.effects = []
        getattr(self, name)(**arguments)
        self.check()

    # Joining and leaving

    @action(weight=6, who=NAMES)
    def join(self, who: str) -> None:
        anonymous = not self.model.has_token(who)
        if anonymous and who in self.model.seats:
            return  # the id of another participant: rejected before the space sees it
        connection = self._new_connection()
        code = self._expect(lambda: self.model.join(who, anonymous=anonymous))
        self.run(Join(connection=connection, participant=who, anonymous=anonymous))
        assert self.refused.get(connection) == code

    @action(weight=3, who=(*NAMES, *[OWNER] * 4, WRITER), stream=SOMEWHERE)
    def leave(self, who: str, stream: int) -> None:
        who = self._resolve(who, self._stream(stream))
        connection = self._socket(who)
        if connection is not None:
            self.model.leave(who)
            del self.listeners[connection]
            self.run(Leave(connection))

    @action(weight=1, which=(0, 1, 2))
    def leave_once_more(self, which: int) -> None:
        if which < len(self.gone):
            assert self.run(Leave(self.gone[-1 - which])) == []

    @action(weight=1, which=(0, 1, 2))
    def speak_after_the_end(self, which: int) -> None:
        if which < len(self.gone):
            assert self.run(Receive(self.gone[-1 - which], b'{"kind":"mcp/response"}')) == []

    @action(weight=1)
    def observe(self) -> None:
        if sum(listener.observer for listener in self.listeners.values()) < 3:
            self.run(Join(connection=self._new_connection(), participant="onlooker", observer=True))

    @action(weight=1, stream=SOMEWHERE, message=("chat", "#"))
    def let_an_observer_speak(self, stream: int, message: str) -> None:
        connection = next((listener.connection for listener in self.listeners.values() if listener.observer), None)
        if connection is None:
            return
        frame = f"#{self._stream(stream)}#x".encode()
        self.run(Receive(connection, frame if message == "#" else b'{"kind":"chat","payload":{"text":"hi"}}'))
        assert self._code() == ("unauthorized_stream_write" if message == "#" else "capability_violation")

    @action(weight=1, who=NAMES)
    def join_once_more(self, who: str) -> None:
        connection = self._socket(who)
        if connection is not None:
            self.run(Receive(connection, b'{"type":"join"}'))
            assert [message.kind for message in self._heard(who)] == ["system/welcome"]

    @action(weight=1)
    def attach_the_log(self) -> None:
        self.model.attach(LOG)
        self.run(AttachOutputLog(LOG))

    @action(weight=1, who=NAMES)
    def poll(self, who: str) -> None:
        if self.model.has_token(who):
            code = self._expect(lambda: self.model.appear(who))
            self.run(Poll(who))
            assert self._code() == code

    @action(weight=4, seconds=(0, 1, 5, 12, 30, 60, 61))
    def tick(self, seconds: int) -> None:
        self.model.now += seconds
        self.model.tick()
        self.run(Tick())

    @action(weight=1, seconds=(1, 5, 30, 70))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds
        self.saw_the_time = False

    @action(weight=1)
    def checkpoint(self) -> None:
        (record,) = self.run(Checkpoint())
        assert isinstance(record, Record)
        assert record.event == "checkpoint"

    @action(weight=1, returning=(0, 2, 4, 8))
    def restart(self, returning: int) -> None:
        self.model.restart()
        self.recover()
        self.check()
        for name in NAMES[:returning]:
            self.do("join", who=name)

    # Streams

    @action(weight=8, who=NAMES, via=TRANSPORTS, readers=TARGETS, policy=POLICIES, formats=(None, *FORMATS))
    def request(self, who: str, via: str, readers: Any, policy: Any, formats: Any) -> None:
        self._open(who, via, "stream/request", target=readers, on_owner_disconnect=policy, formats=formats)

    @action(
        weight=6,
        who=MIGHTY,
        via=TRANSPORTS,
        readers=TARGETS,
        policy=POLICIES,
        formats=(None, *FORMATS, *FORMATS),
        desired=(None, "voice", "voice", "stream-7", "Ä"),
    )
    def announce(self, who: str, via: str, readers: Any, policy: Any, formats: Any, desired: Any) -> None:
        fields = {"target": readers, "on_owner_disconnect": policy, "formats": formats, "desired_id": desired}
        self._open(who, via, "stream/announce", **fields)

    def _open(self, who: str, via: str, kind: str, **requested: Any) -> None:
        payload = {name: value for name, value in requested.items() if value is not None}
        expected = {**payload, "desired_id": "voice" if requested.get("desired_id") == "voice" else None}
        self._say(who, via, {"kind": kind, "payload": payload}, lambda: self.model.open(who, kind, expected))

    @action(weight=4, who=OWNERS, via=TRANSPORTS, stream=SOMEWHERE)
    def start(self, who: str, via: str, stream: int) -> None:
        stream_id = self._stream(stream)
        who = self._resolve(who, stream_id)
        envelope = {"kind": "stream/start", "payload": {"stream": {"stream_id": stream_id}}}
        self._say(who, via, envelope, lambda: self.model.start(who, stream_id))

    @action(weight=10, who=WRITERS, stream=SOMEWHERE, data=(b"", b"1", b"#2#"), text=(True, False))
    def frame(self, who: str, stream: int, data: bytes, text: bool) -> None:
        stream_id = self._stream(stream)
        who = self._resolve(who, stream_id)
        connection = self._socket(who)
        if connection is None:
            return
        message = f"#{stream_id}#".encode() + data
        receivers, code = self._attempt(lambda: self.model.frame(who, stream_id))
        self.run(Receive(connection, message, text))
        assert self._code() == code, f"a frame of {who} on {stream_id}: {self._code()}, not {code}"
        routed = self.space.route(who, message)
        assert (routed.code if isinstance(routed, ProtocolError) else None) == code
        self.check_receivers([message], receivers, accepted=code is None)

    @action(
        weight=8,
        who=WRITERS,
        via=TRANSPORTS,
        stream=SOMEWHERE,
        step=(1, 1, 1, 1, 5, 0, -2, "true", 2**53),
        format_id=(None, None, "text", "text", "pcm", "other"),
    )
    def data(self, who: str, via: str, stream: int, step: Any, format_id: Any) -> None:
        stream_id = self._stream(stream)
        who = self._resolve(who, stream_id)
        last = self.model.streams.get(stream_id, {"sequences": {}})["sequences"].get(who, -1)
        sequence = last + step if isinstance(step, int) else True
        payload = {"stream": {"stream_id": stream_id}, "sequence": sequence, "content": 1, "format_id": format_id}
        envelope = {"kind": "stream/data", "payload": payload}
        answer = self._say(who, via, envelope, lambda: self.model.data(who, stream_id, sequence, format_id))
        if answer is not None:
            heard = [
                effect.message
                for effect in self.effects
                if isinstance(effect, Deliver) and effect.kind == "stream/data"
            ]
            self.check_receivers(heard, answer[0], accepted=answer[1] is None)

    @action(weight=6, who=OWNERS, via=TRANSPORTS, stream=SOMEWHERE, writer=NAMES)
    def grant_write(self, who: str, via: str, stream: int, writer: str) -> None:
        stream_id = self._stream(stream)
        who = self._resolve(who, stream_id)
        envelope = {"kind": "stream/grant-write", "payload": {"stream_id": stream_id, "participant_id": writer}}
        self._say(who, via, envelope, lambda: self.model.grant_write(who, stream_id, writer))

    @action(weight=2, who=OWNERS, via=TRANSPORTS, stream=SOMEWHERE, writer=(*NAMES, WRITER, WRITER, WRITER, OWNER))
    def revoke_write(self, who: str, via: str, stream: int, writer: str) -> None:
        stream_id = self._stream(stream)
        who, writer = self._resolve(who, stream_id), self._resolve(writer, stream_id)
        envelope = {"kind": "stream/revoke-write", "payload": {"stream_id": stream_id, "participant_id": writer}}
        self._say(who, via, envelope, lambda: self.model.revoke_write(who, stream_id, writer))

    @action(weight=4, who=OWNERS, via=TRANSPORTS, stream=SOMEWHERE, heir=(*NAMES, WRITER, WRITER, OWNER))
    def transfer(self, who: str, via: str, stream: int, heir: str) -> None:
        stream_id = self._stream(stream)
        who, heir = self._resolve(who, stream_id), self._resolve(heir, stream_id)
        envelope = {"kind": "stream/transfer-ownership", "payload": {"stream_id": stream_id, "new_owner": heir}}
        self._say(who, via, envelope, lambda: self.model.transfer(who, stream_id, heir))

    @action(weight=1, who=OWNERS, via=TRANSPORTS, stream=SOMEWHERE, how=("close", "complete", "error"))
    def end(self, who: str, via: str, stream: int, how: str) -> None:
        stream_id, kind = self._stream(stream), f"stream/{how}"
        who = self._resolve(who, stream_id)
        payload = {"stream_id": stream_id, "code": "c", "message": "m"}
        self._say(who, via, {"kind": kind, "payload": payload}, lambda: self.model.end(who, kind, stream_id))

    # Capabilities and membership

    @action(weight=3, who=MIGHTY, via=TRANSPORTS, recipient=(*NAMES, "nobody"), kind=KINDS)
    def grant(self, who: str, via: str, recipient: str, kind: str) -> None:
        self.count += 1
        grant_id = f"grant-{self.count}"
        payload = {"recipient": recipient, "capabilities": [{"kind": kind}]}
        envelope = {"kind": "capability/grant", "id": grant_id, "payload": payload}
        self._say(who, via, envelope, lambda: self.model.grant(who, grant_id, recipient, kind))
        self.grant_ids.append((recipient, grant_id))

    @action(weight=2, who=MIGHTY, via=TRANSPORTS, recipient=(*NAMES, "nobody"), kind=KINDS)
    def revoke(self, who: str, via: str, recipient: str, kind: str) -> None:
        payload = {"recipient": recipient, "capabilities": [{"kind": kind}]}
        envelope = {"kind": "capability/revoke", "payload": payload}
        self._say(who, via, envelope, lambda: self.model.revoke(who, recipient, kind=kind))

    @action(weight=1, who=MIGHTY, via=TRANSPORTS, which=(0, 1, 2))
    def revoke_a_grant(self, who: str, via: str, which: int) -> None:
        if which < len(self.grant_ids):
            recipient, grant_id = self.grant_ids[-1 - which]
            envelope = {"kind": "capability/revoke", "payload": {"recipient": recipient, "grant_id": grant_id}}
            self._say(who, via, envelope, lambda: self.model.revoke(who, recipient, grant_id=grant_id))

    @action(
        weight=2,
        who=MIGHTY,
        via=TRANSPORTS,
        invited=(*NAMES, GUEST, *[REMOVED] * 4),
        initial=(None, [], ["stream/*"], ["chat"]),
    )
    def invite(self, who: str, via: str, invited: str, initial: Any) -> None:
        invited = min(self.model.kicked, default=GUEST) if invited == REMOVED else invited
        payload: dict[str, Any] = {"participant_id": invited}
        if initial is not None:
            payload["initial_capabilities"] = [{"kind": kind} for kind in initial]
        envelope = {"kind": "space/invite", "payload": payload}
        answer = self._say(who, via, envelope, lambda: self.model.invite(who, invited, initial))
        if answer is not None and answer[0] is not None and via == "socket":
            acknowledged = [
                message.payload["status"] for message in self._heard(who) if message.kind == "space/invite-ack"
            ]
            assert acknowledged == [answer[0]]

    @action(weight=1, who=("ada", "dan", "ben"), via=TRANSPORTS, kicked=(*NAMES, "nobody"))
    def kick(self, who: str, via: str, kicked: str) -> None:
        envelope = {"kind": "space/kick", "payload": {"participant_id": kicked}}
        self._say(who, via, envelope, lambda: self.model.kick(who, kicked))

    @action(weight=1, who=MIGHTY, via=TRANSPORTS, whom=(*NAMES, "nobody"), seconds=(None, 3, 60))
    def pause(self, who: str, via: str, whom: str, seconds: Any) -> None:
        payload = {} if seconds is None else {"timeout_seconds": seconds}
        envelope = {"kind": "participant/pause", "to": [whom], "payload": payload}
        self._say(who, via, envelope, lambda: self.model.pause(who, [whom], seconds))

    @action(weight=2, who=MIGHTY, via=TRANSPORTS, whom=NAMES)
    def resume(self, who: str, via: str, whom: str) -> None:
        envelope = {"kind": "participant/resume", "to": [whom]}
        self._say(who, via, envelope, lambda: self.model.resume(who, [whom]))

    @action(weight=1, who=MIGHTY, via=TRANSPORTS, whom=NAMES)
    def shut_down(self, who: str, via: str, whom: str) -> None:
        envelope = {"kind": "participant/shutdown", "to": [whom]}
        self._say(who, via, envelope, lambda: self.model.shut_down(who, [whom]))

    # Helpers of the actions

    def _say(self, who: str, via: str, envelope: Any, rule: Callable[[], T]) -> tuple[T | None, str | None] | None:
        """Send or post an envelope, and return the model's result. None if it could not be sent."""
        message = msgspec.json.encode(envelope)
        connection = self._socket(who)
        if via == "socket" and connection is not None:
            result, code = self._attempt(rule)
            self.run(Receive(connection, message))
        elif via == "http" and self.model.has_token(who):
            result, code = self._attempt(lambda: self.model.over_http(who, rule))
            self.run(Post(who, message))
        else:
            return None
        actual = self._code()
        assert actual == code, f"{envelope} of {who}: {actual}, not {code}"
        return result, code

    def _attempt(self, rule: Callable[[], T]) -> tuple[T | None, str | None]:
        try:
            return rule(), None
        except Rejected as rejection:
            return None, rejection.code

    def _expect(self, rule: Callable[[], object]) -> str | None:
        return self._attempt(rule)[1]

    def _code(self) -> str | None:
        """The code with which the last message was rejected, if it was."""
        for effect in self.effects:
            if isinstance(effect, Record) and effect.event in {"rejected", "frame_rejected"}:
                return effect.reason
            if (
                isinstance(effect, HttpAnswer)
                and effect.refusal is not None
                and effect.refusal.code != "already_exists"
            ):
                return effect.refusal.code
        return None

    def _heard(self, who: str) -> list[Envelope]:
        listener = self.listeners[self.seats[who]]
        return [message for message in listener.heard if isinstance(message, Envelope)]

    def _stream(self, which: int) -> str:
        """An open stream. If there is none, or for -1, a stream that has ended or never existed."""
        streams = list(self.model.streams)
        if streams and which >= 0:
            return streams[which % len(streams)]
        return self.model.ended[-1] if self.model.ended else "stream-99"

    def _resolve(self, who: str, stream_id: str) -> str:
        stream = self.model.streams.get(stream_id)
        if who not in {OWNER, WRITER}:
            return who
        if stream is None:
            return "ada"
        return str(stream["owner"] if who == OWNER else stream["writers"][-1])

    def _socket(self, who: str) -> str | None:
        return self.seats[who] if self.model.seats.get(who) == "socket" else None

    def _new_connection(self) -> str:
        self.count += 1
        return f"c{self.count}"
