"""`mew tail`: the events of a space, one per line, as an observer sees them: past, new, and across a restart."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.cli.common.http_client import GatewayClient
from mew.cli.observe.feed import FeedEvent, FeedFilter, JournalHistory, frame_json
from mew.cli.observe.tail import Paint, count_text, event_line
from mew.protocol.patterns import KindPattern
from tests.cli.running_space import SECONDS, Lab, command, configure, environment, lab_in, run

T = "2026-03-01T10:00:00.123456Z"
PLAIN = Paint(colours=False)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A space with chats, a refusal, and a stream with data."""
    with lab_in(tmp_path_factory.mktemp("lab")) as started:
        started.succeeds("send", "one")
        started.succeeds("send", "two", "--as", "bob", "--to", "carol")
        assert started.mew("send", "--as", "bob", "-k", "mcp/request", "-p", '{"method":"x"}').code == 4
        assert started.succeeds("stream", "open", "--description", "numbers") == "stream-1"
        for number in range(3):
            data = {"stream_id": "stream-1", "sequence": number, "content": f"piece {number}"}
            started.succeeds("send", "-k", "stream/data", "-p", json.dumps(data))
        started.succeeds("send", "three")
        yield started


def shown(lab: Lab, *arguments: str) -> list[str]:
    """The lines of past events, without the times."""
    return [item[13:] for item in lab.succeeds("tail", "--no-follow", *arguments).splitlines()]


def test_the_last_lines_are_shown_with_their_senders(lab: Lab) -> None:
    lines = shown(lab, "-n", "5")
    assert lines[-1] == "alice        chat three"
    assert shown(lab, "-n", "1", "--kind", "chat", "--from", "bob") == ["bob          chat → carol two"]


def test_a_refusal_is_shown_with_its_code(lab: Lab) -> None:
    refused = shown(lab, "--kind", "mcp/*")
    assert refused == ["bob          mcp/request refused: capability_violation"]


def test_stream_data_is_counted_unless_frames_are_requested(lab: Lab) -> None:
    lines = shown(lab, "--since", "1h")
    begin = lines.index("gateway      stream/open stream-1 of alice: numbers")
    assert lines[begin + 1].strip().startswith("stream-1: 3 frames, ")
    assert lines[begin + 2] == "alice        chat three"
    assert shown(lab, "--stream", "stream-1", "-n", "1") == ["gateway      stream/open stream-1 of alice: numbers"]
    item = shown(lab, "--stream", "stream-1", "--frames", "-n", "2")
    assert item == [f'alice        stream/data stream-1 {{"sequence":{n},"content":"piece {n}"}}' for n in (1, 2)]


def test_json_has_each_envelope_unchanged(lab: Lab) -> None:
    lines = [json.loads(item) for item in lab.succeeds("tail", "--no-follow", "--json", "-n", "100").splitlines()]
    chats = [item for item in lines if item.get("kind") == "chat"]
    assert [item["payload"]["text"] for item in chats] == ["one", "two", "three"]
    assert set(chats[0]) == {"protocol", "id", "ts", "from", "kind", "payload"}
    (refused,) = [item["refused"] for item in lines if "refused" in item]
    assert (refused["error"], refused["participant"], refused["kind"]) == ("capability_violation", "bob", "mcp/request")
    assert [item["payload"]["sequence"] for item in lines if item.get("kind") == "stream/data"] == [0, 1, 2]


def test_since_starts_at_a_time(lab: Lab) -> None:
    lines = [json.loads(item) for item in lab.succeeds("tail", "--no-follow", "--json", "-n", "100").splitlines()]
    (second,) = [item for item in lines if item.get("payload", {}).get("text") == "two"]
    since = lab.succeeds("tail", "--no-follow", "--json", "--since", second["ts"]).splitlines()
    assert json.loads(since[0])["payload"].get("event") == "join" or json.loads(since[0]) == second
    assert json.loads(since[-1])["payload"] == {"text": "three"}
    assert "one" not in [json.loads(item).get("payload", {}).get("text") for item in since]
    assert len(lab.succeeds("tail", "--no-follow", "--json", "--since", "1d").splitlines()) == len(lines)
    assert lab.succeeds("tail", "--no-follow", "--since", "2099-01-01") == ""


def test_rare_lines_are_found_however_old_they_are(lab: Lab) -> None:
    assert [item[18:] for item in shown(lab, "-n", "2", "--kind", "chat", "--from", "alice")] == ["one", "three"]
    assert shown(lab, "-n", "0") == []


@pytest.mark.parametrize("window", [1, 3])
def test_old_events_are_found_in_small_windows_and_pages(lab: Lab, window: int) -> None:
    with GatewayClient(f"http://localhost:{lab.port}", lab.token("alice"), "lab") as client:
        history = JournalHistory(client, "lab", control=False, window=window, page_records=2)
        events = history.latest(2, lambda event: (event.kind, event.sender) == ("chat", "alice"), data=False)
    texts = [msgspec.json.decode(event.envelope or b"")["payload"]["text"] for event in events]
    assert texts == ["one", "three"]


def test_invalid_options_are_reported(lab: Lab) -> None:
    assert "--since: expected a time" in lab.mew("tail", "--no-follow", "--since", "soon").err
    assert lab.mew("tail", "--no-follow", "--space", "elsewhere").code == 4
    assert lab.mew("tail", "--no-follow", "--gateway", "ws://127.0.0.1:1").code == 3


def test_a_stopped_space_is_reported_and_no_token_is_created(tmp_path: Path) -> None:
    ran = run(configure(tmp_path), "tail", "--no-follow")
    assert (ran.code, ran.err) == (3, "mew: space 'lab' is not running: start it with `mew space up`\n")
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_any_token_is_accepted_and_no_connection_is_taken_over(lab: Lab, tmp_path: Path) -> None:
    ran = subprocess.run(
        command("tail", "--no-follow", "--kind", "chat"),
        cwd=tmp_path,
        env=environment(MEW_GATEWAY=lab.url, MEW_TOKEN=lab.token("bob")),
        timeout=SECONDS,
        capture_output=True,
        check=True,
    )
    assert ran.stdout.endswith(b"alice        chat three\n")


@contextmanager
def following(lab: Lab, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = lab.following("tail", *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()[13:].rstrip("\n")


def test_tail_continues_and_waits_for_a_gateway_that_restarts(tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        lab.succeeds("send", "before")
        with following(lab, "--kind", "chat") as process:
            assert read(process) == "alice        chat before"
            lab.succeeds("send", "now")
            assert read(process) == "alice        chat now"
            lab.stop()
            assert process.stderr is not None
            assert "waiting for it" in process.stderr.readline()
            lab.start()
            lab.succeeds("send", "after")
            assert read(process) == "alice        chat after"
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
        with following(lab, "-n", "1") as process:
            assert "after" in read(process)
            assert process.stdout is not None
            process.stdout.close()
            assert process.wait(SECONDS) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""


def test_a_space_without_a_journal_is_followed_from_the_present(tmp_path: Path) -> None:
    with lab_in(tmp_path, journal=False) as lab:
        assert "has no journal" in lab.mew("tail", "--no-follow").err
        stream = lab.succeeds("stream", "open")
        with following(lab, "--frames") as process:
            # Only messages after the join of the observer are shown, so repeat one until it appears.
            assert read_until(lab, process) == "alice        chat are you there?"
            data = {"stream_id": stream, "sequence": 1, "content": "x"}
            lab.succeeds("send", "-k", "stream/data", "-p", json.dumps(data))
            assert read(process).endswith('{"sequence":1,"content":"x"}')


def read_until(lab: Lab, process: "subprocess.Popen[str]") -> str:
    """Send a chat until it is shown, then skip its repetitions."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    output = 0
    messages = ""
    while not messages:
        lab.succeeds("send", "are you there?")
        output += 1
        messages = process.stdout.readline()
    os.set_blocking(process.stdout.fileno(), True)
    lab.succeeds("send", "enough")
    line = messages[13:].rstrip("\n")
    while not read(process).endswith("enough"):
        pass
    return line


def test_on_a_terminal_the_lines_have_colours(lab: Lab) -> None:
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in environment().items() if name != "NO_COLOR"}
    subprocess.run(
        command("tail", "--no-follow", "-n", "1", "--kind", "chat"),
        cwd=lab.directory,
        env=environ,
        stdout=theirs,
        timeout=SECONDS,
        check=True,
    )
    os.close(theirs)
    text = os.read(ours, 4096).decode()
    os.close(ours)
    assert "\x1b[" in text
    assert "three" in text


# The text of a line


def event_of(kind: str, payload: Any, **more: Any) -> FeedEvent:
    sender = more.pop("sender", "alice")
    envelope = {"from": sender, "kind": kind, "to": more.pop("to", []), "payload": payload}
    return FeedEvent(time=T, sender=sender, kind=kind, envelope=msgspec.json.encode(envelope), **more)


STREAM = {"stream": {"stream_id": "s", "owner": "alice"}, "stream_id": "s"}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (event_of("chat", {"text": "a\nb\x1b[2J"}), "chat a\\nb\\x1b[2J"),
        (event_of("chat", {"text": "x" * 200}), "chat " + "x" * 160 + "…"),
        (event_of("chat", {}), "chat"),
        (event_of("chat", None), "chat"),
        (event_of("custom/thing", {"a": 1}), 'custom/thing {"a":1}'),
        (event_of("chat", {"text": "x"}, to=["bob", "carol"]), "chat → bob, carol x"),
        (event_of("mcp/request", {"method": "tools/list"}), "mcp/request tools/list"),
        (
            event_of("mcp/request", {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}),
            'mcp/request tools/call add {"a":1}',
        ),
        (event_of("mcp/request", {"method": "x", "params": 5}), 'mcp/request {"method":"x","params":5}'),
        (event_of("reasoning/thought", {"text": "hm"}), "reasoning/thought hm"),
        (
            event_of("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "x"}]}),
            'capability/grant bob: [{"kind":"x"}]',
        ),
        (event_of("stream/ready", {**STREAM, "intent": "video"}), "stream/ready s of alice: video"),
        (event_of("stream/open", STREAM), "stream/open s of alice"),
        (
            event_of("stream/write-granted", {**STREAM, "authorized_writers": ["alice", "bob"]}, stream_id="s"),
            "stream/write-granted s may be written by alice, bob",
        ),
        (
            event_of(
                "stream/ownership-transferred", {**STREAM, "previous_owner": "a", "new_owner": "b"}, stream_id="s"
            ),
            "stream/ownership-transferred s went from a to b",
        ),
        (
            event_of("system/presence", {"event": "leave", "participant": {"id": "bob"}, "reason": "kicked"}),
            "system/presence bob left (kicked)",
        ),
        (event_of("stream/close", {**STREAM, "reason": "done"}, stream_id="s"), 'stream/close s {"reason":"done"}'),
        (FeedEvent(time=T, sender="alice", stream_id="s", frame=b"text\n"), "frame s text\\n"),
        (FeedEvent(time=T, sender="alice", stream_id="s", frame=b"\xff\x00"), "frame s ff00"),
        (
            FeedEvent(time=T, sender="alice", stream_id="s", frame="ü".encode() * 100),
            "frame s " + "ü" * 80 + "… (200 B)",
        ),
        (
            FeedEvent(time=T, sender="alice", stream_id="s", frame=b"a" + "ü".encode() * 100),
            "frame s a" + "ü" * 79 + "… (201 B)",
        ),
        (FeedEvent(time=T, sender="alice", stream_id="s", frame=b"", withheld=True), "frame s for other recipients"),
        (FeedEvent(time=T, sender="alice", stream_id="s", refused="paused"), "frame refused: paused on s"),
    ],
)
def test_a_line_has_the_main_fact_of_an_event(event: FeedEvent, line: str) -> None:
    assert event_line(event, PLAIN) == f"10:00:00.123 alice        {line}"


def test_envelopes_of_the_gateway_are_shown_without_recipients() -> None:
    result = event_line(event_of("stream/open", STREAM, sender="system:gateway", to=["bob"]), PLAIN)
    assert result == "10:00:00.123 gateway      stream/open s of alice"


def test_each_name_keeps_its_colour_and_a_refusal_is_red() -> None:
    paint = Paint(colours=True)
    assert paint.name("alice") == paint.name("alice") != paint.name("bob")
    assert "\x1b[31m" in event_line(FeedEvent(time=T, sender="a", kind="chat", refused="paused"), paint)
    assert count_text("s", 1, 5, 0, PLAIN).strip() == "s: 1 frame, 5 B"
    assert count_text("s", 3000, 5000, 2, PLAIN).strip() == "s: 3,000 frames, 5.0 kB, 1,500/s"


class Pages:
    """An API with forty records from position 7; every third one is a frame, and pairs have the same time."""

    def __init__(self) -> None:
        self.records = [self._record(position) for position in range(7, 47)]

    @staticmethod
    def _record(position: int) -> dict[str, Any]:
        common = {"position": position, "time": Pages.time(position), "participant": "alice", "size": 1}
        if position % 3 == 0:
            return {**common, "event": "frame", "stream_id": "s", "frame_number": position, "payload_base64": "eA=="}
        return {**common, "event": "envelope", "kind": "chat", "payload": {"payload": {"text": str(position)}}}

    @staticmethod
    def time(position: int) -> str:
        return f"2026-03-01T10:00:{position // 2:02}.000000Z"

    def ask(self, _method: str, _path: str, *, form: Any, **query: int) -> Any:
        expected = [
            record
            for record in self.records
            if record["position"] >= query["from"] and not (query["control"] and record["event"] == "frame")
        ][: query["limit"]]
        following = expected[-1]["position"] + 1 if expected else max(query["from"], 47)
        page = {"first": 7, "last": 46, "records": expected, "next": following}
        return msgspec.json.decode(msgspec.json.encode(page), type=form)


def past_of(pages: Any, *, control: bool = False, **limits: int) -> JournalHistory:
    return JournalHistory(pages, "lab", control=control, **limits)


@pytest.mark.parametrize("control", [False, True])
def test_since_returns_every_record_from_that_time_and_none_before(control: bool) -> None:
    past = past_of(Pages(), control=control)
    for position in range(7, 47):
        since = Pages.time(position)
        expected = [item for item in range(7, 47) if Pages.time(item) >= since and (item % 3 or not control)]
        assert [item.time for item in past.since(past.position_at(since))] == [Pages.time(item) for item in expected]
    assert past.position_at("2025-01-01T00:00:00.000000Z") == 7
    assert past.position_at("2027-01-01T00:00:00.000000Z") == 47


@pytest.mark.parametrize("window", [1, 2, 5, 512])
@pytest.mark.parametrize("page", [1, 4, 5000])
def test_the_latest_records_are_found_once_each_and_in_order(window: int, page: int) -> None:
    every = [position for position in range(7, 47) if position % 3]
    for number in (0, 1, 4, 100):
        matches = past_of(Pages(), window=window, page_records=page).latest(
            number, lambda event: not event.is_data, data=False
        )
        result = [int(msgspec.json.decode(item.envelope or b"")["payload"]["text"]) for item in matches]
        assert result == (every[-number:] if number else [])
    assert len(past_of(Pages(), window=window, page_records=page).latest(100, lambda _: True, data=True)) == 40


def test_filters_are_combined() -> None:
    chat, frame = event_of("chat", {}), FeedEvent(time=T, sender="bob", stream_id="s", frame=b"")
    assert FeedFilter().has(chat) and FeedFilter().has(frame)
    assert FeedFilter(kinds=(KindPattern.parse("stream/*"),)).has(frame)
    assert not FeedFilter(kinds=(KindPattern.parse("chat"),)).has(frame)
    assert not FeedFilter(senders=frozenset({"bob"}), kinds=(KindPattern.parse("chat"),)).has(chat)
    assert FeedFilter(streams=frozenset({"s"})).has(frame)
    assert not FeedFilter(streams=frozenset({"s"})).has(chat)


def test_the_json_of_a_frame_is_that_of_an_output_log() -> None:
    assert frame_json(FeedEvent(time=T, sender="a", stream_id="s", frame=b"hi")) == {
        "frame": {"stream_id": "s", "encoding": "text", "data": "hi"}
    }
    assert frame_json(FeedEvent(time=T, sender="a", stream_id="s", frame=b"\xff"))["frame"]["data"] == "/w=="
