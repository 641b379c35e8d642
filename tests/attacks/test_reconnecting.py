"""A crowd that hangs up and comes back at the same time: everybody's order and roster hold, and others are served."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from mew.gateway import fanout, pace, sending, turnstile
from mew.gateway.config import UnadmittedLimits
from mew.journal.settings import JournalSettings
from tests.gateway.raw import ANYTHING, TEXT, Raw, Running, frame, joined, running, upgrade

CROWD: Final = [f"p{number}" for number in range(60)]
SPACE: Final = {"participants": dict.fromkeys(("alice", *CROWD), ANYTHING)}
LAST: Final = "that is all"


@pytest.fixture(params=["as it is", "one by one", "held off"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """As it is, with the least that a turn of the loop may do, and with as much gathered as may be."""
    if request.param == "one by one":
        monkeypatch.setattr(turnstile, "TURN_SECONDS", 1e-9)
        monkeypatch.setattr(sending, "SLICE_SECONDS", 0.0)
    elif request.param == "held off":
        monkeypatch.setattr(pace, "BUSY", 0.0)
        monkeypatch.setattr(pace, "FLUSHES", 10**6)
        monkeypatch.setattr(fanout, "FEW", 1)
    unadmitted = UnadmittedLimits(unadmitted_per_address=1_000)
    with running(tmp_path, SPACE, journal=JournalSettings(), unadmitted=unadmitted) as started:
        yield started


def come(gateway: Running, opened: ExitStack) -> dict[str, Raw]:
    """Each speaks with its first packet, before it has heard anything."""
    crowd = {name: opened.enter_context(closing(Raw(gateway.port))) for name in CROWD}
    for name, each in crowd.items():
        chat = msgspec.json.encode({"kind": "chat", "payload": {"text": name}})
        each.send(upgrade(Authorization=f"Bearer {gateway.token(name)}") + frame(TEXT, chat))
    for each in crowd.values():
        assert each.answer().status == 101
    return crowd


def test_who_comes_back_with_a_crowd_is_told_and_told_of_in_order(gateway: Running) -> None:
    alice = joined(gateway)
    with ExitStack() as opened:
        come(gateway, opened)
    with ExitStack() as opened:
        crowd = come(gateway, opened)
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
        # A connection that comes while the gateway has not seen the other one end takes its seat: nobody sees that.
        assert of_it[0] == ("join", name)
        assert of_it.count(("says", name)) == 2
    alice.close()


def what(envelope: dict[str, Any]) -> tuple[str, str]:
    """What happened, and by whom."""
    if envelope["kind"] == "system/presence":
        return envelope["payload"]["event"], envelope["payload"]["participant"]["id"]
    return "says", envelope["from"]


def in_order(heard: list[dict[str, Any]]) -> bool:
    """Whether nobody says anything before the presence of its join, nor behind that of its leave."""
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
