"""A hundred thousand invalid messages: none raises, none makes the space grow, each is answered."""

import gc
import sys
from typing import Any

import msgspec
import pytest

from mew.protocol import (
    ERROR_CODES,
    Admission,
    Deliver,
    DeliverFrame,
    Effect,
    HttpAnswer,
    Join,
    JoinRequest,
    Limits,
    OneConnection,
    Post,
    ProtocolError,
    Receive,
    Recipients,
    Record,
    SpaceCore,
    SpaceState,
    Start,
    Tick,
    fold,
    observer_welcome_at,
    parse,
    restore,
    snapshot,
)
from mew.protocol.frames import is_frame
from mew.testing import NOON, MemoryTokens, settings
from mew.view import SpaceView, apply_envelope, apply_frame, view_from_welcome
from tests.faults.mutator import FORMATS, NAMES, Mutator

INPUTS = 25_000
SEEDS = (1, 2, 3, 4)
ROUND = 125
"""Inputs between two clean-ups."""
HELD: dict[str, list[dict[str, Any]]] = {
    "ada": [{"kind": "*"}],
    "ben": [{"kind": "stream/*"}, {"kind": "mcp/*", "to": ["ada"]}],
    "eve": [{"kind": "chat"}],
    "fay": [{"kind": "*"}],
}
LIMITS = Limits(
    envelopes_per_second=1e9,
    envelope_burst=10**9,
    work_per_second=10**9,
    work_burst=10**9,
    bytes_per_second=10**9,
    byte_burst=10**9,
    streams=12,
    writers=8,
    grants=16,
    invitations=6,
    desired_ids=40,
)
WARDEN = "warden-of-the-test"
BY_HTTP = "fay"
PASSES_FOR_CHANCE = 500
"""How many memory blocks, of more than 100,000, may vary."""
MAY_VARY = 2 + LIMITS.invitations - len(HELD)
"""How many more entries a table may have at one time than at another: one for each invited stranger."""


def is_compact(text: bytes) -> bool:
    """Whether JSON has no spaces between its parts. True for bytes that are not JSON."""
    try:
        return msgspec.json.format(text, indent=-1) == text
    except (msgspec.DecodeError, RecursionError):
        return True


class Target:
    """A space that receives invalid messages, and its state as seen from outside."""

    def __init__(self) -> None:
        self.tokens = MemoryTokens()
        people = {**HELD, WARDEN: [{"kind": "*"}]}
        self.settings = settings(participants=people, limits=LIMITS, allow_anonymous=True)
        for name in people:
            self.tokens.issue("lab", name)
        self.space = SpaceCore(self.settings, self.tokens)
        self.lobby = Admission({"lab": self.space}, self.tokens)
        self.shadow = SpaceState(space_id="lab")
        self.view: SpaceView | None = None
        self.compact = True
        """Whether all messages since the last clean-up were compact: a relayed message keeps its spaces."""
        self.now = NOON
        self.run(Start("epoch"))
        self.run(Join(connection=WARDEN, participant=WARDEN))
        self.run(Join(connection="onlooker", participant="onlooker", observer=True))
        self.clean()

    def run(self, command: Any) -> list[Effect]:
        effects = self.space.handle(command, self.now)
        for effect in effects:
            self._take(effect)
        return effects

    def _take(self, effect: Effect) -> None:
        """Every delivery is JSON that an observer's view accepts, and every record can be folded."""
        match effect:
            case Record():
                assert effect.position == self.shadow.position + 1
                assert effect.event not in {"rejected", "frame_rejected"} or effect.reason in ERROR_CODES
                self.shadow = fold(self.shadow, effect)
            case Deliver(audience=audience):
                envelope = parse(effect.message)
                assert not self.compact or is_compact(effect.message)
                if envelope.kind == "system/error":
                    assert envelope.payload["error"] in ERROR_CODES
                if audience == OneConnection("onlooker") and envelope.kind == "system/welcome":
                    self.view = view_from_welcome(envelope)
                elif self.view is not None and not isinstance(audience, OneConnection | Recipients):
                    self.view = apply_envelope(self.view, envelope)
            case DeliverFrame(audience=audience) if self.view is not None and not isinstance(audience, Recipients):
                self.view = apply_frame(self.view, effect.message)

    def order(self, kind: str, to: list[str] | None = None, **payload: Any) -> None:
        self.run(Receive(WARDEN, msgspec.json.encode({"kind": kind, "to": to, "payload": payload})))

    def clean(self) -> None:
        """End every stream, restore the participants, and open two streams as targets."""
        self.compact = False
        for stream_id in list(self.space.state.streams):
            self.order("stream/close", stream_id=stream_id)
        self.order("participant/resume", to=[*NAMES, *self.space.state.paused])
        for name, capabilities in HELD.items():
            self.order("space/kick", participant_id=name)
            self.order("space/invite", participant_id=name, initial_capabilities=capabilities)
            if name != BY_HTTP:
                self.run(Join(connection=name, participant=name))
        if "onlooker" not in self.space.sessions:
            self.run(Join(connection="onlooker", participant="onlooker", observer=True))
        self.compact = True
        described = {"formats": FORMATS, "validate": True, "desired_id": "voice"}
        for kind in ("stream/request", "stream/announce"):
            self.run(Receive("ada", msgspec.json.encode({"kind": kind, "payload": described})))
        self.live, self.ready = (stream_id.encode() for stream_id in self.space.state.streams)

    def aim(self, message: bytes) -> bytes:
        """The same message with the ids of open streams."""
        return message.replace(b"stream-2", self.ready).replace(b"stream-1", self.live)

    def receive(self, connection: str, message: bytes, *, text: bool) -> None:
        session = self.space.sessions.get(connection)
        effects = self.run(Receive(connection, message, text))
        if session is None:
            assert effects == []
            return
        records = [effect for effect in effects if isinstance(effect, Record)]
        assert records, "nothing was recorded"
        refused = [record for record in records if record.event in {"rejected", "frame_rejected"}]
        if refused and refused[0].event == "rejected":
            assert any(
                isinstance(effect, Deliver)
                and effect.audience == OneConnection(connection)
                and effect.kind == "system/error"
                for effect in effects
            )
        if is_frame(message) and not session.observer:
            routed = self.space.route(session.participant, message)
            assert isinstance(routed, ProtocolError) == bool(refused)

    def post(self, message: bytes) -> None:
        effects = self.run(Post(BY_HTTP, message))
        answers = [effect for effect in effects if isinstance(effect, HttpAnswer)]
        assert answers == effects[-1:]
        refusal = answers[0].refusal
        assert refusal is None or refusal.code in ERROR_CODES
        assert isinstance(msgspec.json.decode(msgspec.json.encode(answers[0].body)), dict)

    def knock(self, message: bytes) -> None:
        """Send it as the first message of a connection."""
        try:
            self.lobby.admit("c", self.lobby.first_message(message).or_else(JoinRequest(space="lab")))
        except ProtocolError as refusal:
            assert refusal.code in ERROR_CODES

    def sizes(self) -> dict[str, int]:
        """The size of each table of the space, and of its state without strangers and used names."""
        tables_by_name = {**vars(self.space), **msgspec.structs.asdict(self.space.state)}
        tables = {
            name: len(table)
            for name, table in tables_by_name.items()
            if hasattr(table, "__len__") and name != "desired_ids"
        }
        state = restore(snapshot(self.space.state))
        for table in (state.invited, state.kicked, state.left, state.grants, state.revoked, state.paused):
            for stranger in table.keys() - HELD.keys():
                del table[stranger]
        state.desired_ids.clear()
        return {**tables, "state": len(snapshot(state)) // 100, "memory": sys.getallocatedblocks() // PASSES_FOR_CHANCE}

    def check(self) -> None:
        assert snapshot(self.shadow) == snapshot(self.space.state)
        assert self.view is not None
        welcome = msgspec.json.decode(observer_welcome_at(self.space.state, "onlooker"))
        assert [participant.id for participant in self.view.participants.values()] == [
            participant["id"] for participant in welcome["participants"]
        ]
        for entry in welcome["active_streams"]:
            stream = self.view.streams[entry["stream_id"]]
            if entry.get("target") is None:
                assert stream.entry == entry
        assert len(self.view.streams) == len(welcome["active_streams"])


def fire_much(target: Target, mutator: Mutator, count: int) -> dict[str, int]:
    """Send messages with regular clean-ups, and return the sizes at the end."""
    for number in range(1, count + 1):
        fire(target, mutator)
        if number % ROUND == 0:
            target.check()
            target.clean()
    gc.collect()
    return target.sizes()


def fire(target: Target, mutator: Mutator) -> None:
    """Send one message over a socket or HTTP."""
    message = target.aim(mutator.message())
    chance = mutator.chance
    target.compact = target.compact and is_compact(message)
    target.now += chance.choice((0, 1_000, 1_000, 300_000))
    sender = chance.choice(("ada", "ada", "ada", "ada", "ben", "ben", "eve", "onlooker", "http", "http"))
    try:
        if sender == "http":
            target.post(message)
        else:
            target.receive(sender, message, text=chance.random() < 0.9)
        target.space.route("ada", message)
        if chance.random() < 0.2:
            target.knock(message)
        if chance.random() < 0.02:
            target.run(Tick())
    except BaseException as error:
        error.add_note(f"from {sender!r}: {message[:2_000]!r}")
        raise


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_of_a_hundred_thousand_raises_or_lets_the_space_grow(seed: int) -> None:
    target, mutator = Target(), Mutator(seed)
    after_half = fire_much(target, mutator, INPUTS // 2)
    after_all = fire_much(target, mutator, INPUTS // 2)
    assert len(target.space.state.invited) <= LIMITS.invitations
    assert len(target.space.state.desired_ids) <= LIMITS.desired_ids
    grown = {name: size for name, size in after_all.items() if size > after_half[name] + MAY_VARY}
    assert grown == {}, f"more than {after_half}"
