"""A wall clock that is set back one hour, on a real gateway: limits and time-outs continue to work."""

import time
from pathlib import Path

import pytest

from mew.journal import JournalSettings
from mew.protocol.settings import Limits
from tests.gateway.raw import BINARY, Raw, frame, joined, running

HOUR = 3_600_000_000


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many microseconds the wall clock of the machine is set back: a list with one item."""
    back = [0]
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - back[0] * 1_000)
    return back


def is_accepted_again(client: Raw) -> bool:
    """Whether a participant over its rate is accepted again after half a second."""
    for _ in range(10):
        client.say(kind="chat", payload={"text": "flood"})
    client.envelope("system/error")
    time.sleep(0.5)
    client.say(kind="chat", payload={"text": "after"})
    return bool(client.envelope("chat")["payload"]["text"] == "after")


def test_rates_of_envelopes_refill(tmp_path: Path, set_back: list[int]) -> None:
    limits = Limits(envelopes_per_second=10, envelope_burst=5)
    with running(tmp_path, {"limits": limits}) as gateway:
        client = joined(gateway)
        client.say(kind="chat", payload={"text": "before"})
        client.envelope("chat")
        set_back[0] = HOUR
        assert is_accepted_again(client)
        client.close()


def test_rates_of_frames_refill(tmp_path: Path, set_back: list[int]) -> None:
    limits = Limits(frames_per_second=10, frame_burst=3)
    with running(tmp_path, {"limits": limits}) as gateway:
        client = joined(gateway)
        prefix = client.open_stream()
        set_back[0] = HOUR
        client.send(*(frame(BINARY, prefix + b"%d" % n) for n in range(3)))
        assert [client.echo().payload for _ in range(3)] == [prefix + b"%d" % n for n in range(3)]
        time.sleep(0.4)
        client.send(frame(BINARY, prefix + b"after"))
        assert client.echo().payload == prefix + b"after"
        client.close()


def test_a_pause_ends(tmp_path: Path, set_back: list[int]) -> None:
    with running(tmp_path) as gateway:
        alice, bob = joined(gateway), joined(gateway, "bob")
        set_back[0] = HOUR
        alice.say(kind="participant/pause", to=["bob"], payload={"timeout_seconds": 0.3})
        bob.envelope("participant/pause")
        time.sleep(0.5)
        bob.say(kind="chat", payload={"text": "again"})
        assert alice.envelope("chat")["payload"]["text"] == "again"
        alice.close()
        bob.close()


def test_rates_refill_after_a_restart_whose_clock_is_behind_the_journal(tmp_path: Path, set_back: list[int]) -> None:
    limits = Limits(envelopes_per_second=10, envelope_burst=5)
    with running(tmp_path, {"limits": limits}, journal=JournalSettings()) as gateway:
        joined(gateway).close()
    set_back[0] = HOUR
    with running(tmp_path, {"limits": limits}, journal=JournalSettings()) as gateway:
        client = joined(gateway)
        assert is_accepted_again(client)
        client.close()
