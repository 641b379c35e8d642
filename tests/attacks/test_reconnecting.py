"""Many participants disconnect and reconnect together: order and roster stay right, and others are served."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from mew.config.models import UnadmittedLimits
from mew.gateway import scheduling
from mew.gateway.fanout.delivery import SliceLimits
from mew.gateway.fanout.fanout import FanoutOptions
from mew.gateway.gateway import Gateway, GatewayOptions
from mew.journal import JournalSettings
from tests.gateway.raw import ANYTHING, TEXT, Raw, Running, frame, joined, running, upgrade
from tests.gateway.raw import closing as closing_frame

CROWD: Final = [f"p{number}" for number in range(60)]
SPACE: Final = {"participants": dict.fromkeys(("alice", *CROWD), ANYTHING)}
LAST: Final = "that is all"


WORK: Final = {
    "as it is": GatewayOptions(),
    "one by one": GatewayOptions(throttle_seconds=1e-9, fanout=FanoutOptions(slices=SliceLimits(seconds=0.0))),
    "delayed": GatewayOptions(fanout=FanoutOptions(busy=0.0, delay_flushes=10**6, small_audience=1)),
}


@pytest.fixture(params=WORK)
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """Unchanged, with the least work per event-loop iteration, and with the largest batches."""
    unadmitted = UnadmittedLimits(unadmitted_per_address=1_000)
    work = WORK[request.param]
    with running(tmp_path, SPACE, work=work, journal=JournalSettings(), unadmitted=unadmitted) as started:
        yield started


def come(gateway: Running, opened: ExitStack, by: str) -> dict[str, Raw]:
    """Connect all, and send a chat with the first packet, or with the join: in both cases before the welcome."""
    crowd = {name: opened.enter_context(closing(Raw(gateway.port))) for name in CROWD}
    for name, client in crowd.items():
        token = gateway.token(name)
        client.send(upgrade(Authorization=f"Bearer {token}") + chat(name) if by == "header" else upgrade())
    for client in crowd.values():
        assert client.answer().status == 101
    if by == "message":
        for name, client in crowd.items():
            client.send(join(gateway.token(name)) + chat(name))
    return crowd


def chat(text: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"kind": "chat", "payload": {"text": text}}))


def join(token: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"type": "join", "token": token}))


@pytest.mark.parametrize("by", ["header", "message"])
def test_many_participants_that_reconnect_together_see_each_other_in_order(gateway: Running, by: str) -> None:
    alice = joined(gateway)
    with ExitStack() as opened:
        come(gateway, opened, by)
    with ExitStack() as opened:
        crowd = come(gateway, opened, by)
        gateway.until(lambda gateway: gateway.first_hub.counts.envelopes == 2 * len(CROWD))
        alice.say(kind="chat", payload={"text": LAST})
        seen_by_alice = alice.envelopes(LAST)
        for name, client in crowd.items():
            received = client.envelopes(LAST)
            assert received[0]["kind"] == "system/welcome"
            assert received[0]["payload"]["you"]["id"] == name
            assert roster(received) == {"alice", *CROWD} - {name}
            assert in_order(received[1:])
    assert in_order(seen_by_alice)
    assert roster(seen_by_alice) == set(CROWD)
    for name in CROWD:
        of_it = [event for event in map(event_of, seen_by_alice) if event[1] == name]
        # A new connection before the gateway has seen the end of the old one takes it over: no one else sees that.
        assert of_it[0] == ("join", name)
        assert of_it.count(("says", name)) == 2
    alice.close()


def upgraded_crowd(gateway: Running, opened: ExitStack) -> list[tuple[Raw, str]]:
    """Upgraded connections that have not joined yet, each with a token."""
    crowd = [(opened.enter_context(closing(Raw(gateway.port))), gateway.token(name)) for name in CROWD]
    for client, _ in crowd:
        client.send(upgrade())
    for client, _ in crowd:
        assert client.answer().status == 101
    return crowd


def session_count(gateway: Gateway) -> int:
    return len(gateway.first_hub.space.sessions)


def test_many_joins_are_admitted_a_few_per_event_loop_iteration(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)

        async def admit_all() -> list[int]:
            """The number of joins after each event-loop iteration, until all have joined."""
            for client, token in crowd:
                client.send(join(token))
            counts = [0]
            while counts[-1] < len(CROWD):
                await asyncio.sleep(0)
                counts.append(session_count(gateway.gateway))
            return counts

        counts = gateway.do(admit_all())
        # The limit per iteration applies twice: to messages as they are read, and to queued ones.
        assert max(now - before for before, now in pairwise(counts)) <= 2 * scheduling.JOINS_A_TURN


def test_large_messages_after_many_concurrent_joins_arrive_whole(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)
        large = chat("*" * 100_000)
        for client, token in crowd[:20]:
            client.send(join(token) + large)
        for client, _ in crowd[:20]:
            assert len(client.envelope("chat")["payload"]["text"]) == 100_000


def test_a_client_that_disconnects_before_its_join_is_handled_does_not_stay(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)

        async def come_and_go() -> None:
            for number, (client, token) in enumerate(crowd):
                client.send(join(token), closing_frame() if number % 3 == 0 else b"")
                if number % 3 == 1:
                    client.close()

        gateway.do(come_and_go())
        gateway.until(lambda gateway: session_count(gateway) == len(CROWD[2::3]) == len(gateway.sockets))
    gateway.until(lambda gateway: gateway.connections.open_count == 0)


def event_of(envelope: dict[str, Any]) -> tuple[str, str]:
    """The event of an envelope, and its participant."""
    if envelope["kind"] == "system/presence":
        return envelope["payload"]["event"], envelope["payload"]["participant"]["id"]
    return "says", envelope["from"]


def in_order(envelopes: list[dict[str, Any]]) -> bool:
    """Whether no participant sends before the presence of its join or after that of its leave."""
    left = set()
    for event, name in map(event_of, envelopes):
        if event == "leave":
            left.add(name)
        elif event == "join":
            left.discard(name)
        elif name in left:
            return False
    return True


def roster(envelopes: list[dict[str, Any]]) -> set[str]:
    """The participants that are present according to the welcome, if there is one, and the presences after it."""
    present = set()
    for envelope in envelopes:
        if envelope["kind"] == "system/welcome":
            present |= {participant["id"] for participant in envelope["payload"]["participants"]}
        elif envelope["kind"] == "system/presence":
            event, name = event_of(envelope)
            assert (name in present) == (event == "leave"), f"{event} of {name}"
            (present.add if event == "join" else present.discard)(name)
    return present
