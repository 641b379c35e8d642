"""A whole space in memory, for tests: participants that join, send and receive without a gateway or a network.

It runs the same core as the gateway. Nothing here waits; time passes when the test says so.

    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="chat", payload={"text": "hello"})
    assert bob.take("chat")["payload"]["text"] == "hello"
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mew.protocol import (
    GATEWAY,
    Admission,
    Admit,
    AllExcept,
    AttachOutputLog,
    Audience,
    Close,
    Command,
    Deliver,
    DeliverFrame,
    Effect,
    Everyone,
    HttpAnswer,
    Identity,
    JoinRequest,
    Leave,
    OneConnection,
    Poll,
    Post,
    ProtocolError,
    Receive,
    Recipients,
    Record,
    ReportLoss,
    SpaceCore,
    SpaceSettings,
    SpaceState,
    Start,
    Tick,
    fold,
    parse,
    read_capabilities,
    reject_connection,
)
from mew.protocol.envelope import Stamp
from mew.protocol.frames import build_frame, split_frame
from mew.protocol.interface import http_connection, log_connection
from mew.protocol.timestamps import SECOND
from mew.view import SpaceView, apply_envelope, apply_frame, view_from_welcome

NOON = 1_763_208_000_000_000
"""2025-11-15T12:00:00Z: the default start time of a space in memory."""
OWN_TOKEN = "own"
"""Stands for the token of the participant that posts."""


class Message(dict[str, Any]):
    """A received envelope. `raw` is its JSON text."""

    def __init__(self, raw: bytes) -> None:
        """Decode a received message."""
        super().__init__(msgspec.json.decode(raw))
        self.raw = raw


class ReceivedFrame(msgspec.Struct, frozen=True):
    """A received frame."""

    stream_id: str
    data: bytes
    text: bool = True


class MemoryTokens:
    """Tokens that contain the name of their holder: `token-of-alice@lab`."""

    def __init__(self) -> None:
        """Start without any tokens."""
        self.holders: dict[str, Identity] = {}

    def identify(self, token: str) -> Identity | None:
        """Return the identity that this token belongs to, or None if the token is unknown."""
        return self.holders.get(token)

    def issue(self, space_id: str, participant: str, *, observer: bool = False) -> str:
        """Return the token of a participant or an observer. With the same name, they have different tokens."""
        token = f"{'observer-' if observer else ''}token-of-{participant}@{space_id}"
        self.holders.setdefault(token, Identity(space_id, participant, observer))
        return token


class Client:
    """One connection, and everything that it has received."""

    def __init__(self, lab: "MemorySpace", connection: str, *, is_socket: bool = True) -> None:
        """Start with an open connection that has not joined yet. HTTP and logs have no socket that can be closed."""
        self._lab = lab
        self.connection = connection
        self.is_socket = is_socket
        self.credentials = JoinRequest()
        self.participant: str | None = None
        self.observer = False
        self.closed: int | None = None
        """The close code, once the gateway has closed the connection."""
        self.view: SpaceView | None = None
        """What this client knows about the space, from the envelopes that it has received."""
        self._unread: list[Message | ReceivedFrame] = []

    def send(self, envelope: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Send an envelope: a mapping, fields, or both."""
        self.send_bytes(msgspec.json.encode({**(envelope or {}), **fields}))

    def send_bytes(self, message: bytes, *, text: bool = True) -> None:
        """Send these bytes as one message."""
        self._lab.receive(self, message, text=text)

    def frame(self, stream_id: str, data: bytes | str, *, text: bool = True) -> None:
        """Send a raw frame."""
        payload = data.encode() if isinstance(data, str) else data
        self.send_bytes(build_frame(stream_id, payload), text=text)

    def leave(self) -> None:
        """Close the connection."""
        self._lab.drop(self.connection)
        self._lab.run(Leave(self.connection))

    def inbox(self) -> list[Message | ReceivedFrame]:
        """Return all unread messages, in order, and mark them as read."""
        unread, self._unread = self._unread, []
        return unread

    def kinds(self) -> list[str]:
        """Return the kinds of all unread messages, `#` for a frame, and mark them as read."""
        return ["#" if isinstance(message, ReceivedFrame) else message["kind"] for message in self.inbox()]

    def take(self, kind: str) -> Message:
        """Return the first unread envelope of this kind. The others stay unread."""
        for index, message in enumerate(self._unread):
            if isinstance(message, Message) and message["kind"] == kind:
                del self._unread[index]
                return message
        raise AssertionError(f"{self.participant or self.connection} received no {kind!r}; unread: {self._summary()}")

    def take_frame(self) -> ReceivedFrame:
        """Return the first unread frame. The other messages stay unread."""
        for index, message in enumerate(self._unread):
            if isinstance(message, ReceivedFrame):
                del self._unread[index]
                return message
        raise AssertionError(f"{self.participant or self.connection} received no frame; unread: {self._summary()}")

    def error(self) -> dict[str, Any]:
        """Return the payload of the first unread `system/error`."""
        payload: dict[str, Any] = self.take("system/error")["payload"]
        return payload

    def _summary(self) -> str:
        """Describe the unread messages. An error among them often explains why another message is missing."""
        return ", ".join(map(_summarize, self._unread)) or "nothing"

    def deliver(self, message: bytes) -> None:
        """Receive an envelope."""
        self._unread.append(Message(message))
        envelope = parse(message)
        if envelope.kind == "system/welcome" and self.view is None:
            self.view = view_from_welcome(envelope)
        elif self.view is not None:
            self.view = apply_envelope(self.view, envelope)

    def deliver_frame(self, message: bytes, *, text: bool) -> None:
        """Receive a frame."""
        self._unread.append(ReceivedFrame(*split_frame(message), text))
        if self.view is not None:
            self.view = apply_frame(self.view, message)


def _summarize(received: Message | ReceivedFrame) -> str:
    if isinstance(received, ReceivedFrame):
        return f"#{received.stream_id}#"
    if received["kind"] == "system/error":
        return f"system/error ({received['payload']['error']}: {received['payload']['message']})"
    return str(received["kind"])


def settings(
    space_id: str = "lab",
    participants: Mapping[str, list[dict[str, Any]] | None] | None = None,
    defaults: list[dict[str, Any]] | None = None,
    **others: Any,
) -> SpaceSettings:
    """Return settings. Capabilities are given as plain JSON."""
    if defaults is not None:
        others["defaults"] = read_capabilities(defaults, "defaults")
    by_id = {
        name: None if capabilities is None else read_capabilities(capabilities, name)
        for name, capabilities in (participants or {}).items()
    }
    return SpaceSettings(space_id=space_id, participants=by_id, **others)


class MemorySpace:
    """One space, its clients and its journal, in memory."""

    def __init__(self, *, now: int = NOON, **configuration: Any) -> None:
        """Start a space. `configuration` is as for `settings`."""
        self.settings = settings(**configuration)
        self.tokens = MemoryTokens()
        self.now = now
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        """The effects of the last command."""
        self._starts = 0
        self._connections = 0
        self._clients: dict[str, Client] = {}
        self._connection_of: dict[str, str] = {}
        self._observers: dict[str, None] = {}
        for participant in self.settings.participants:
            self.tokens.issue(self.settings.space_id, participant)
        self.space = self._start(None)

    def _start(self, state: SpaceState | None) -> SpaceCore:
        self._starts += 1
        self.space = SpaceCore(self.settings, self.tokens, state)
        self.run(Start(f"epoch{self._starts}"))
        return self.space

    @property
    def state(self) -> SpaceState:
        """The state of the space, as the journal determines it."""
        return self.space.state

    def restart(self) -> None:
        """Crash and recover: a new space from the journal alone. All connections are closed."""
        for table in (self._clients, self._connection_of, self._observers):
            table.clear()
        self._start(self.folded())

    def folded(self) -> SpaceState:
        """Return the state folded from the records."""
        state = SpaceState(space_id=self.settings.space_id)
        for record in self.records:
            state = fold(state, record)
        return state

    def token(self, participant: str) -> str:
        """Return the token of a participant."""
        return self.tokens.issue(self.settings.space_id, participant)

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        """Open a new connection. With a token in its header it joins immediately."""
        self._connections += 1
        client = Client(self, f"c{self._connections}")
        client.credentials = JoinRequest(space=space, token=token)
        self._clients[client.connection] = client
        if token is not None:
            self._admit(client, client.credentials)
        return client

    def join(self, participant: str) -> Client:
        """Let a participant join with its token."""
        return self.connect(token=self.token(participant))

    def observe(self, name: str = "viewer") -> Client:
        """Join with an observer's token."""
        return self.connect(token=self.tokens.issue(self.settings.space_id, name, observer=True))

    def log(self, participant: str) -> Client:
        """Return the `output_log` of a participant, which has received what was written to the log."""
        self.run(AttachOutputLog(participant))
        return self._client(log_connection(participant))

    def _client(self, connection: str) -> Client:
        """Return the client of a connection. Clients of HTTP and of logs are created on their first use."""
        return self._clients.setdefault(connection, Client(self, connection, is_socket=False))

    def receive(self, client: Client, message: bytes, *, text: bool) -> None:
        """Handle a message of a client. The first message of a connection must be a join."""
        if client.connection in self.space.sessions or client.participant is not None:
            self.run(Receive(client.connection, message, text))
            return
        if client.closed is not None:
            return
        try:
            request = self._admission().first_message(message)
        except ProtocolError as refusal:
            self.carry_out(reject_connection(client.connection, refusal, self._stamp()))
            return
        self._admit(client, request.or_else(client.credentials))

    def _admit(self, client: Client, request: JoinRequest) -> None:
        try:
            space, join = self._admission().admit(client.connection, request)
        except ProtocolError as refusal:
            self.carry_out(reject_connection(client.connection, refusal, self._stamp(), request.cause))
            return
        client.participant, client.observer = join.participant, join.observer
        self.carry_out(space.handle(join, self.now))

    def _stamp(self) -> Stamp:
        return Stamp(GATEWAY, self.space.new_id(), self.now)

    def _admission(self) -> Admission:
        return Admission({self.settings.space_id: self.space}, self.tokens)

    def post(
        self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN
    ) -> HttpAnswer:
        """Send a message over HTTP, and return the answer."""
        own = token == OWN_TOKEN
        try:
            self._admission().authenticate(participant, JoinRequest(token=self.token(participant) if own else token))
        except ProtocolError as refusal:
            return HttpAnswer(refusal.payload(), refusal)
        message = envelope if isinstance(envelope, bytes) else msgspec.json.encode(envelope)
        self.run(Post(participant, message))
        return next(effect for effect in self.effects if isinstance(effect, HttpAnswer))

    def poll(self, participant: str) -> list[Message | ReceivedFrame]:
        """Return the messages that a participant has received over HTTP since its last poll."""
        self.run(Poll(participant))
        return self._client(http_connection(participant)).inbox()

    def lose(self, participant: str, stream_id: str, first: int, last: int) -> None:
        """Report that frames of a stream were dropped for a reader."""
        dropped = last - first + 1
        self.run(ReportLoss(participant=participant, stream_id=stream_id, first=first, last=last, dropped=dropped))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * SECOND)
        self.run(Tick())

    def run(self, command: Command) -> list[Effect]:
        """Execute a command and its effects, and return the effects."""
        self.carry_out(self.space.handle(command, self.now))
        return self.effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Execute the effects of a command."""
        self.effects = effects
        for effect in effects:
            match effect:
                case Record():
                    self.records.append(effect)
                case Admit(observer=True):
                    self._observers[effect.connection] = None
                case Admit():
                    self._connection_of[effect.participant] = self._client(effect.connection).connection
                case Deliver():
                    for client in self._audience(effect.audience):
                        client.deliver(effect.message)
                case DeliverFrame():
                    for client in self._audience(effect.audience):
                        client.deliver_frame(effect.message, text=effect.text)
                case Close():
                    self._close(effect)

    def _close(self, close: Close) -> None:
        self.drop(close.connection)
        client = self._clients.get(close.connection)
        if client is not None and client.is_socket:
            client.closed = close.code

    def drop(self, connection: str) -> None:
        """Stop delivering messages to a connection."""
        self._observers.pop(connection, None)
        for participant in [name for name, current in self._connection_of.items() if current == connection]:
            del self._connection_of[participant]

    def _audience(self, audience: Audience) -> list[Client]:
        match audience:
            case OneConnection():
                connections = [audience.connection]
            case Recipients():
                connections = [
                    self._connection_of[name] for name in audience.participants if name in self._connection_of
                ]
            case AllExcept():
                others = [current for name, current in self._connection_of.items() if name != audience.participant]
                connections = [*others, *self._observers]
            case Everyone():
                connections = [*self._connection_of.values(), *self._observers]
        return [self._clients[connection] for connection in connections if connection in self._clients]
