"""A gateway carries out what the core decides, however its commands fall into iterations of the event loop.

A history runs in a space in memory, which delivers immediately and is the reference. Then it runs at a gateway, with
many commands in one iteration.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from mew.protocol import Command, Effect, HttpAnswer, Leave, Record
from mew.protocol.records import ADMIN
from mew.testing import OWN_TOKEN, Client, MemorySpace, Message, ReceivedFrame
from tests.requirements.transports import Transport
from tests.support.histories import ALL_VERBS, CONFIGURATION, History, Step, histories, opened
from tests.support.hypothesis_settings import examples

pytestmark = pytest.mark.transport("memory", "websocket")

Deed = Callable[[Any, list[Any]], object]
"""A client's action, to be repeated in another space by the client with the same number."""

many_histories = given(
    steps=histories(tuple(verb for verb in ALL_VERBS if verb != "restart")),
    turns=st.lists(st.integers(min_value=1, max_value=12), min_size=1, max_size=8),
    logs=st.sampled_from([frozenset(), frozenset({"carol"})]),
)
by_chance = examples(60, allow=[HealthCheck.function_scoped_fixture])
POSITION = re.compile(rb'(?<="position":)\d+')
PORT = re.compile(rb'(?<="connection_url":"ws://localhost):\d+(?=")')


class Remembered(MemorySpace):
    """A space in memory that records the actions in it."""

    def __init__(self, **configuration: Any) -> None:
        self.deeds: list[Deed] = []
        self.clients: list[Client] = []
        super().__init__(**configuration)

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        self.deeds.append(lambda lab, clients: clients.append(lab.connect(token=token, space=space)))
        client = super().connect(token=token, space=space)
        self.clients.append(client)
        return client

    def receive(self, client: Client, message: bytes, *, text: bool) -> None:
        number = self.clients.index(client)
        self.deeds.append(lambda _, clients: clients[number].send_bytes(message, text=text))
        super().receive(client, message, text=text)

    def run(self, command: Command) -> list[Effect]:
        if isinstance(command, Leave):
            (number,) = [index for index, client in enumerate(self.clients) if client.connection == command.connection]
            self.deeds.append(lambda _, clients: clients[number].leave())
        return super().run(command)

    def advance(self, seconds: float) -> None:
        self.deeds.append(lambda lab, _: lab.advance(seconds))
        super().advance(seconds)

    def post(
        self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN
    ) -> HttpAnswer:
        self.deeds.append(lambda lab, _: lab.post(participant, envelope, token=token))
        return super().post(participant, envelope, token=token)

    def lose(self, participant: str, stream_id: str, first: int, last: int) -> None:
        self.deeds.append(lambda lab, _: lab.lose(participant, stream_id, first, last))
        super().lose(participant, stream_id, first, last)


def do_again(measure: Remembered, lab: Any, turns: list[int]) -> list[Any]:
    """Repeat the actions in another space, so many in each iteration, and return its clients."""
    lab.tokens.holders.update(measure.tokens.holders)
    clients: list[Any] = []
    left = list(measure.deeds)
    while left:
        turn = turns[len(left) % len(turns)]
        for deed in left[:turn]:
            deed(lab, clients)
        lab.settle()
        del left[:turn]
    return clients


class Seen:
    """What one of the two spaces sent and recorded, without values that differ: the epoch, the port, the peers.

    A real gateway records the peers of its connections; a space in memory has none. These records are left out, and
    positions are counted without them.
    """

    def __init__(self, lab: Any) -> None:
        self._epoch = lab.state.epoch
        self._records = [record for record in lab.records if record.event != ADMIN]
        self._positions = [record.position for record in self._records]

    def records(self) -> list[Record]:
        """Everything after the first start: the size of a start record includes the epoch."""
        return [
            msgspec.structs.replace(
                record,
                position=self._number(record.position),
                envelope_id=record.envelope_id and record.envelope_id.removeprefix(f"{self._epoch}-"),
                payload=self._text(record.payload),
                size=0,
            )
            for record in self._records[1:]
        ]

    def messages(self, received: list[Message | ReceivedFrame]) -> list[Any]:
        """Messages as text, frames unchanged."""
        return [message if isinstance(message, ReceivedFrame) else self._text(message.raw) for message in received]

    def _text(self, text: bytes) -> bytes:
        text = PORT.sub(b"", text.replace(f'"{self._epoch}-'.encode(), b'"'))
        return POSITION.sub(lambda match: b"%d" % self._number(int(match.group())), text)

    def _number(self, position: int) -> int:
        return bisect_right(self._positions, position)


def require_equal(actual: list[Any], expected: list[Any]) -> None:
    """Show only the first difference: a comparison of everything takes minutes, and Hypothesis repeats it."""
    for index, pair in enumerate(zip_longest(actual, expected)):
        assert pair[0] == pair[1], f"difference at {index}"


@contextmanager
def played(
    open_space: Transport, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> Iterator[tuple[Remembered, Any, list[Any]]]:
    """The same history in a space in memory and at a gateway, and the clients of both."""
    configuration = {**CONFIGURATION, "output_logs": logs}
    measure, lab = Remembered(**configuration), open_space(**configuration)
    lab.by_hand = True  # every byte is compared, so no client may add its own id
    try:
        History(measure).play_all(steps)
        yield measure, lab, do_again(measure, lab, turns)
    finally:
        lab.close()


@pytest.mark.transports("memory", "websocket")
@by_chance
@example(
    steps=opened([Step("kick", "alice", "bob", 1), Step("invite", "alice", "bob", 1)]), turns=[1], logs=frozenset()
)
@many_histories
def test_every_participant_receives_the_messages_of_the_core_whatever_the_batches(
    open_space: Transport, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, clients):
        readers = [(measure.log(name), lab.log(name)) for name in logs]
        actual_seen, expected_seen = Seen(lab), Seen(measure)
        for expected, client in [*zip(measure.clients, clients, strict=True), *readers]:
            require_equal(actual_seen.messages(client.inbox()), expected_seen.messages(expected.inbox()))
            assert client.closed == expected.closed


@pytest.mark.transports("memory", "websocket")
@by_chance
@many_histories
def test_a_mailbox_holds_what_the_core_says_however_the_turns_fall(
    open_space: Transport, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, _):
        inboxes = [space.poll("carol") for space in (measure, lab)]
        expected, polled = (Seen(space).messages(inbox) for space, inbox in zip((measure, lab), inboxes, strict=True))
        require_equal(polled, expected[len(expected) - len(polled) :])  # nothing remains from before its last join


@pytest.mark.transports("memory", "websocket")
@by_chance
@many_histories
def test_everything_is_recorded_as_the_core_says_however_the_turns_fall(
    open_space: Transport, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, _):
        require_equal(Seen(lab).records(), Seen(measure).records())
