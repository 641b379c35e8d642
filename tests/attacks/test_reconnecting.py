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
from mew.gateway.fanout import delivery, fanout
from mew.gateway.gateway import Gateway
from mew.journal import JournalSettings
from tests.gateway.raw import ANYTHING, TEXT, Raw, Running, frame, joined, running, upgrade
from tests.gateway.raw import closing as closing_frame

CROWD: Final = [f"p{number}" for number in range(60)]
SPACE: Final = {"participants": dict.fromkeys(("alice", *CROWD), ANYTHING)}
LAST: Final = "that is all"


@pytest.fixture(params=["as it is", "one by one", "delayed"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Unchanged, with the least work per event-loop iteration, and with the largest batches."""
    if request.param == "one by one":
        monkeypatch.setattr(scheduling, "TURN_SECONDS", 1e-9)
        monkeypatch.setattr(delivery, "SLICE_SECONDS", 0.0)
    elif request.param == "delayed":
        monkeypatch.setattr(fanout, "BUSY", 0.0)
        monkeypatch.setattr(fanout, "DELAY_FLUSHES", 10**6)
        monkeypatch.setattr(fanout, "SMALL_AUDIENCE", 1)
    unadmitted = UnadmittedLimits(unadmitted_per_address=1_000)
    with running(tmp_path, SPACE, journal=JournalSettings(), unadmitted=unadmitted) as started:
        yield started


def come(gateway: Running, opened: ExitStack, by: str) -> dict[str, Raw]:
    """Each speaks with its first packet, before it has heard anything; or with its join, before its welcome."""
    crowd = {name: opened.enter_context(closing(Raw(gateway.port))) for name in CROWD}
    for name, each in crowd.items():
        token = gateway.token(name)
        each.send(upgrade(Authorization=f"Bearer {token}") + chat(name) if by == "header" else upgrade())
    for each in crowd.values():
        assert each.answer().status == 101
    if by == "message":
        for name, each in crowd.items():
            each.send(join(gateway.token(name)) + chat(name))
    return crowd


def chat(text: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"kind": "chat", "payload": {"text": text}}))


def join(token: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"type": "join", "token": token}))


@pytest.mark.parametrize("by", ["header", "message"])
def test_who_comes_back_with_a_crowd_is_told_and_told_of_in_order(gateway: Running, by: str) -> None:
    alice = joined(gateway)
    with ExitStack() as opened:
        come(gateway, opened, by)
    with ExitStack() as opened:
        crowd = come(gateway, opened, by)
        gateway.until(lambda gateway: gateway.first_hub.counts.envelopes == 2 * len(CROWD))
        alice.say(kind="chat", payload={"text": LAST})
        heard = alice.envelopes(LAST)
        for name, each in crowd.items():
            told = each.envelopes(LAST)
            assert told[0]["kind"] == "system/welcome"
            assert told[0]["payload"]["you"]["id"] == name
            assert roster(told) == {"alice", *CROWD} - {name}
            assert in_order(told[1:])
    assert in_order(heard)
    assert roster(heard) == set(CROWD)
    for name in CROWD:
        of_it = [event for event in map(what, heard) if event[1] == name]
        # A new connection before the gateway has seen the end of the old one takes it over: no one else sees that.
        assert of_it[0] == ("join", name)
        assert of_it.count(("says", name)) == 2
    alice.close()


def upgraded_crowd(gateway: Running, opened: ExitStack) -> list[tuple[Raw, str]]:
    """Each has its upgrade, and a token that it has not shown yet."""
    crowd = [(opened.enter_context(closing(Raw(gateway.port))), gateway.token(name)) for name in CROWD]
    for each, _ in crowd:
        each.send(upgrade())
    for each, _ in crowd:
        assert each.answer().status == 101
    return crowd


def here(gateway: Gateway) -> int:
    return len(gateway.first_hub.space.sessions)


def test_a_crowd_of_first_messages_is_let_in_a_few_at_a_turn(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)

        async def let_in() -> list[int]:
            """How many had joined after each event-loop iteration, until all had."""
            for each, token in crowd:
                each.send(join(token))
            counts = [0]
            while counts[-1] < len(CROWD):
                await asyncio.sleep(0)
                counts.append(here(gateway.gateway))
            return counts

        counts = gateway.do(let_in())
        # As many as may pass in a turn, once as they are read and once from the line.
        assert max(now - before for before, now in pairwise(counts)) <= 2 * scheduling.JOINS_A_TURN


def test_large_messages_behind_joins_in_a_crowd_come_whole(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)
        large = chat("*" * 100_000)
        for each, token in crowd[:20]:
            each.send(join(token) + large)
        for each, _ in crowd[:20]:
            assert len(each.envelope("chat")["payload"]["text"]) == 100_000


def test_who_is_gone_before_its_turn_does_not_stay(gateway: Running) -> None:
    with ExitStack() as opened:
        crowd = upgraded_crowd(gateway, opened)

        async def come_and_go() -> None:
            for number, (each, token) in enumerate(crowd):
                each.send(join(token), closing_frame() if number % 3 == 0 else b"")
                if number % 3 == 1:
                    each.close()

        gateway.do(come_and_go())
        gateway.until(lambda gateway: here(gateway) == len(CROWD[2::3]) == len(gateway.sockets))
    gateway.until(lambda gateway: gateway.connections.open_count == 0)


def what(envelope: dict[str, Any]) -> tuple[str, str]:
    """What happened, and by whom."""
    if envelope["kind"] == "system/presence":
        return envelope["payload"]["event"], envelope["payload"]["participant"]["id"]
    return "says", envelope["from"]


def in_order(heard: list[dict[str, Any]]) -> bool:
    """Whether no participant sends before the presence of its join or after that of its leave."""
    gone = set()
    for event, name in map(what, heard):
        if event == "leave":
            gone.add(name)
        elif event == "join":
            gone.discard(name)
        elif name in gone:
            return False
    return True


def roster(heard: list[dict[str, Any]]) -> set[str]:
    """Who is here, by a welcome, if it begins with one, and the presence behind it."""
    here = set()
    for envelope in heard:
        if envelope["kind"] == "system/welcome":
            here |= {each["id"] for each in envelope["payload"]["participants"]}
        elif envelope["kind"] == "system/presence":
            event, name = what(envelope)
            assert (name in here) == (event == "leave"), f"{event} of {name}"
            (here.add if event == "join" else here.discard)(name)
    return here
