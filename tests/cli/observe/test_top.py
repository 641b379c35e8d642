"""`mew top`: rates of participants and streams, counted from what an observer receives."""

import json
import os
import pty
import signal
import subprocess
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mew.cli.observe.rates import ParticipantRates, RateCounter, Rates, StreamRates
from mew.cli.observe.top import rates_lines, rates_tables
from mew.client.frames import Frame
from mew.protocol import parse
from mew.view import ParticipantView, SpaceView, StreamView
from tests.cli.running_space import SECONDS, Lab, command, environment

T = "2026-03-01T10:00:00.000000Z"


def stream_of(name: str, owner: str, *writers: str, frames: int = 0, **more: Any) -> StreamView:
    stream_entry: dict[str, Any] = {
        "stream_id": name,
        "namespace": f"lab/{name}",
        "status": "live",
        "creator": owner,
        "formats": [],
    }
    stream_entry |= {"owner_connected": True, "frames": frames}
    entry = {"stream_id": name, "owner": owner, "authorized_writers": [owner, *writers], "stream": stream_entry, **more}
    return StreamView(entry)


def view_of(*streams: StreamView) -> SpaceView:
    people = {name: ParticipantView(name, [{"kind": "chat"}]) for name in ("alice", "bob")}
    return SpaceView(ParticipantView("top", []), people, {item.stream_id: item for item in streams}, 0)


def envelope(sender: str, kind: str, **payload: Any) -> Any:
    return parse(msgspec.json.encode({"id": "1", "ts": T, "from": sender, "kind": kind, "payload": payload}))


def test_envelopes_count_for_their_sender_and_those_of_the_gateway_for_no_one() -> None:
    view = view_of()
    counting = RateCounter(view)
    for message in (envelope("alice", "chat", text="hi"), envelope("system:gateway", "system/presence")):
        counting.take(message, view)
    rates = counting.look(view, T)
    assert [(item.id, item.envelopes > 0, item.last_kind) for item in rates.participants] == [
        ("alice", True, "chat"),
        ("bob", False, None),
    ]
    assert counting.look(view, T).participants[0].envelopes == 0


def test_frames_count_for_their_stream_and_for_its_only_writer() -> None:
    before = view_of(stream_of("own", "alice", frames=10), stream_of("shared", "alice", "bob"))
    counting = RateCounter(before)
    counting.take(Frame("own", b"12345"), before)
    counting.take(Frame("shared", b"123"), before)
    counting.take(envelope("bob", "stream/data", stream={"stream_id": "shared"}, sequence=0, content=1), before)
    after = view_of(stream_of("own", "alice", frames=11), stream_of("shared", "alice", "bob", frames=2))
    rates = counting.look(after, T)
    alice, bob = rates.participants
    assert (alice.frames > 0, bob.frames > 0) == (True, True)
    own, shared = rates.streams
    assert own.frames is not None
    assert own.frames == pytest.approx(alice.frames)
    assert shared.frames == pytest.approx(2 * own.frames, rel=0.01)
    assert own.total == 11
    assert shared.bytes is not None
    assert rates.bytes == pytest.approx((own.bytes or 0) + shared.bytes, rel=0.01)


def test_a_stream_for_others_has_no_rate_and_a_participant_that_left_is_still_listed() -> None:
    view = view_of(stream_of("secret", "alice", target=["bob"]))
    counting = RateCounter(view)
    counting.take(envelope("carol", "chat", text="bye"), view)
    rates = counting.look(view, T)
    assert (rates.streams[0].frames, rates.streams[0].bytes) == (None, None)
    assert [(item.id, item.present) for item in rates.participants][-1] == ("carol", False)
    assert "carol (left)" in rates_lines(rates)
    assert "  ?  " in rates_lines(rates)


def some_rates() -> Rates:
    people = (
        ParticipantRates("alice", True, 1.5, 20, 3000, "chat"),
        ParticipantRates("[b]bob\x1b", True, 9, 0, 5, None),
    )
    stream = StreamRates("s", "alice", False, ("alice", "bob"), "live", 1234, 20, 2000)
    return Rates(T, 1.0, people, (stream,), 3005, 3.0)


def test_the_busiest_are_first_and_names_cannot_control_the_terminal() -> None:
    text = rates_lines(some_rates())
    heading, _, first, second, _, stream = text.splitlines()
    assert heading == f"{T} 2 present, 1 open streams: 10.5 envelopes/s, 20.0 frames/s, 3.0 kB/s, 3/s too fast to count"
    assert (first.split()[0], second.split()[0]) == ("alice", "[b]bob\\x1b")
    assert stream.split() == ["s", "alice", "(away)", "bob", "20.0", "2.0", "kB", "1,234", "live"]
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(rates_tables(some_rates()))
    assert "[b]bob\\x1b" in console.export_text()
    console.file.close()


def test_one_interval_is_one_line_of_json(shared_lab: Lab) -> None:
    shared_lab.succeeds("send", "here")
    stream = shared_lab.succeeds("stream", "open")
    result = shared_lab.mew("top", "--once", "--json", "--interval", "0.1").json
    assert "alice" in [item["id"] for item in result["participants"]]
    assert (stream, "alice") in [(item["stream_id"], item["owner"]) for item in result["streams"]]
    assert result["seconds"] >= 0.1
    assert " present, " in shared_lab.succeeds("top", "--once", "-i", "0.05")
    assert shared_lab.mew("top", "--interval", "0").code == 2


def test_top_prints_lines_until_it_is_interrupted_and_counts_envelopes(shared_lab: Lab) -> None:
    process = shared_lab.following("top", "--json", "--interval", "0.1")
    try:
        assert process.stdout is not None
        busy = 0.0
        while not busy:
            shared_lab.succeeds("send", "busy", "--as", "bob")
            result = json.loads(process.stdout.readline())
            busy = next((item["envelopes"] for item in result["participants"] if item["id"] == "bob"), 0.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.communicate()


def test_on_a_terminal_top_is_one_table_that_is_updated(shared_lab: Lab) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("top", "-i", "0.1"),
        cwd=shared_lab.directory,
        env=environment(TERM="xterm", COLUMNS="100", LINES="30"),
        stdout=theirs,
    )
    os.close(theirs)
    try:
        text = ""
        while text.count(" present, ") < 2:
            text += os.read(ours, 4096).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "\x1b[?1049h" in text
    assert "envelopes/s" in text
