"""A gateway does what the core says, however the commands fall into the turns of its loop.

A history is played in a space in memory, which delivers at once and is the measure; then the same is done at a gateway,
much of it in one turn.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from mew.protocol import Answer, Command, Effect, Leave, Record
from mew.testing import OWN_TOKEN, Client, Frame, MemorySpace, Message
from tests.chance import examples
from tests.histories import ALL_VERBS, CONFIGURATION, History, Step, histories, opened
from tests.interaction.doors import Door

Deed = Callable[[Any, list[Any]], object]
"""What somebody did, to be done again in another space, by the client of the same number."""

many_histories = given(
    steps=histories(tuple(verb for verb in ALL_VERBS if verb != "restart")),
    turns=st.lists(st.integers(min_value=1, max_value=12), min_size=1, max_size=8),
    logs=st.sampled_from([frozenset(), frozenset({"carol"})]),
)
by_chance = examples(60, allow=[HealthCheck.function_scoped_fixture])
PORT = re.compile(rb'(?<="connection_url":"ws://localhost):\d+(?=")')


class Remembered(MemorySpace):
    """A space in memory that remembers what was done in it."""

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
            (number,) = [index for index, each in enumerate(self.clients) if each.connection == command.connection]
            self.deeds.append(lambda _, clients: clients[number].leave())
        return super().run(command)

    def advance(self, seconds: float) -> None:
        self.deeds.append(lambda lab, _: lab.advance(seconds))
        super().advance(seconds)

    def post(self, participant: str, envelope: Mapping[str, Any] | bytes, *, token: str | None = OWN_TOKEN) -> Answer:
        self.deeds.append(lambda lab, _: lab.post(participant, envelope, token=token))
        return super().post(participant, envelope, token=token)

    def lose(self, participant: str, stream_id: str, first: int, last: int) -> None:
        self.deeds.append(lambda lab, _: lab.lose(participant, stream_id, first, last))
        super().lose(participant, stream_id, first, last)


def do_again(measure: Remembered, lab: Any, turns: list[int]) -> list[Any]:
    """Do the same in another space, so many of the deeds in each turn; its clients."""
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


def received(client: Any, epoch: str) -> list[Any]:
    """What reached a client, ids without the epoch and addresses without the port: a gateway chooses both by chance."""
    return [comparable(each, epoch) for each in client.inbox()]


def comparable(message: Message | Frame, epoch: str) -> Any:
    if isinstance(message, Frame):
        return message
    return PORT.sub(b"", message.raw.replace(f'"{epoch}-'.encode(), b'"'))


def recorded(record: Record, epoch: str) -> Record:
    """A record without the epoch; its size counts the epoch too."""
    payload = record.payload.replace(f'"{epoch}-'.encode(), b'"')
    envelope_id = None if record.envelope_id is None else record.envelope_id.removeprefix(f"{epoch}-")
    return msgspec.structs.replace(record, payload=payload, envelope_id=envelope_id, size=0)


@contextmanager
def played(
    open_space: Door, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> Iterator[tuple[Remembered, Any, list[Any]]]:
    """The same history in a space in memory and at a gateway, and the clients there."""
    configuration = {**CONFIGURATION, "output_logs": logs}
    measure, lab = Remembered(**configuration), open_space(**configuration)
    lab.by_hand = True  # every byte is compared: no client may add an id of its own
    History(measure).play_all(steps)
    yield measure, lab, do_again(measure, lab, turns)
    lab.close()


@pytest.mark.doors("memory", "websocket")
@by_chance
@example(
    steps=opened([Step("kick", "alice", "bob", 1), Step("invite", "alice", "bob", 1)]), turns=[1], logs=frozenset()
)
@many_histories
def test_everybody_receives_what_the_core_says_however_the_turns_fall(
    open_space: Door, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, clients):
        readers = [(measure.log(name), lab.log(name)) for name in logs]
        for expected, client in [*zip(measure.clients, clients, strict=True), *readers]:
            assert received(client, lab.state.epoch) == received(expected, measure.state.epoch)
            assert client.closed == expected.closed


@pytest.mark.doors("memory", "websocket")
@by_chance
@many_histories
def test_a_mailbox_holds_what_the_core_says_however_the_turns_fall(
    open_space: Door, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, _):
        expected = [comparable(each, measure.state.epoch) for each in measure.poll("carol")]
        polled = [comparable(each, lab.state.epoch) for each in lab.poll("carol")]
        assert polled == expected[len(expected) - len(polled) :]  # what was there before it last came is gone


@pytest.mark.doors("memory", "websocket")
@by_chance
@many_histories
def test_everything_is_recorded_as_the_core_says_however_the_turns_fall(
    open_space: Door, steps: list[Step], turns: list[int], logs: frozenset[str]
) -> None:
    with played(open_space, steps, turns, logs) as (measure, lab, _):
        ours = [recorded(each, lab.state.epoch) for each in lab.records[1:]]
        assert ours == [recorded(each, measure.state.epoch) for each in measure.records[1:]]
