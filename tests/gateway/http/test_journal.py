"""The journal over HTTP: pages and the live stream. A participant sees only what the protocol sent to it."""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from schemathesis import Case
from schemathesis.specs.openapi.checks import ignored_auth

from mew.gateway.gateway import GatewayOptions, JournalApiOptions
from mew.gateway.http.journal import STEP_BYTES
from mew.gateway.http.openapi import document
from mew.gateway.http.responses import EVENT, EXAMPLE_PAGE
from mew.journal import JournalSettings
from mew.journal.arrow import SCHEMA
from mew.journal.reader import Journal
from mew.protocol import Checkpoint
from mew.protocol.timestamps import rfc3339
from tests.gateway.http.test_openapi import CHECKS, FEW, address
from tests.gateway.http_requests import Clients, ask, connecting, tokens_of
from tests.gateway.journal_follower import LIVE, Following
from tests.gateway.raw import ANYTHING, BINARY, CLOSE, PATIENCE, TEXT, Answer, Raw, Running, frame, running, upgrade

SPACE = {"space_id": "demo"}
JOURNAL = JournalSettings()
PATH = "/spaces/demo/journal"
OBSERVER = "onlooker"
FEW_LIVE_READERS = 3


class Story(msgspec.Struct, frozen=True):
    """A history of a space, and the messages that each participant received."""

    gateway: Running
    first: int
    last: int
    received: dict[str, list[Any]]


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with running(tmp_path_factory.mktemp("space"), SPACE, journal=JOURNAL) as gateway:
        with connecting() as clients:
            played = play(gateway, clients)
        yield played


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway with small limits and short times for readers of the journal."""
    readers = JournalApiOptions(
        page_bytes=1500, live_readers=FEW_LIVE_READERS, heartbeat_seconds=0.1, slow_seconds=0.05
    )
    work = GatewayOptions(journal_api=readers)
    with running(tmp_path_factory.mktemp("limited"), SPACE, journal=JOURNAL, work=work) as started:
        yield started


@pytest.fixture
def gateway(story: Story) -> Running:
    """The gateway that all tests share: a test looks at what came after its start."""
    return story.gateway


def written(gateway: Running) -> int:
    """The last position, after everything has been written to the files."""
    gateway.until(lambda it: it.journals.open_journals["demo"].writer.written == it.first_hub.space.state.position)
    return gateway.ask(lambda it: it.first_hub.space.state.position)


def token_of(gateway: Running, participant: str) -> str:
    return tokens_of(gateway).issue("demo", participant, observer=participant == OBSERVER)


def get(clients: Clients, gateway: Running, participant: str = "alice", **query: Any) -> Answer:
    parameters = urlencode({name.rstrip("_"): value for name, value in query.items()})
    return ask(clients.raw(gateway), "GET", f"{PATH}?{parameters}", token_of(gateway, participant))


def page(clients: Clients, gateway: Running, participant: str = "alice", **query: Any) -> Any:
    answer = get(clients, gateway, participant, **query)
    assert answer.status == 200, answer.body
    return answer.json


def follow(clients: Clients, gateway: Running, participant: str = "alice", **query: Any) -> Following:
    parameters = urlencode({name.rstrip("_"): value for name, value in query.items()})
    return Following(clients.raw(gateway), f"{PATH}?{parameters}", token_of(gateway, participant))


def journal_in(path: Path) -> Journal:
    return Journal(path / ".mew" / "journal", "demo")


def talk(alice: Raw) -> None:
    """Send a chat, open a stream, and send frames and data to it."""
    alice.say(kind="chat", payload={"text": "é"})
    stream = alice.open_stream()
    for n in range(5):
        alice.send(frame(BINARY, stream + bytes([n, 255])))
    name = stream.strip(b"#").decode()
    alice.say(kind="stream/data", payload={"stream": {"stream_id": name}, "sequence": 4, "content": {"x": 1.50}})
    alice.envelope("stream/data")


def open_targeted(alice: Raw) -> None:
    """Open a stream whose only target is bob."""
    alice.say(kind="stream/request", payload={"target": ["bob"]})
    assert alice.envelope("stream/open")["payload"]["stream_id"] == "stream-1"


# Pages


def test_a_page_has_the_columns_of_the_journal_files(story: Story, clients: Clients) -> None:
    gateway = story.gateway
    start = written(gateway) + 1
    talk(clients.joined(gateway))
    last = written(gateway)
    body = page(clients, gateway, from_=start)
    assert list(body) == ["space", "first", "last", "records", "next"]
    assert (body["space"], body["first"], body["last"], body["next"]) == ("demo", 0, last, last + 1)
    expected = list(journal_in(gateway.config.spaces[0].directory).records(start))
    assert len(body["records"]) == len(expected) == last + 1 - start
    for shown, record in zip(body["records"], expected, strict=True):
        if record.event == "admin":
            assert shown["withheld"]
            continue
        if record.event == "frame":
            shown["payload"] = base64.b64decode(shown.pop("payload_base64"))
            assert shown["payload"] == record.payload
        else:
            assert shown["payload"] == msgspec.json.decode(record.payload)
            shown["payload"] = record.payload
        assert shown == {**msgspec.structs.asdict(record), "time": rfc3339(record.time)}
        assert sorted(shown) == sorted(SCHEMA.names)
    assert {record.event for record in expected} == {"admin", "join", "welcome", "envelope", "frame"}


def test_a_payload_is_the_exact_text_that_was_sent(gateway: Running, clients: Clients) -> None:
    alice = clients.joined(gateway)
    envelope = b'{"kind":"note","payload":{"a":1.0,\n "b":123456789012345678901234567890,\r\n"a":"\xc3\xa9"}}'
    alice.send(frame(TEXT, envelope))
    alice.envelope("note")
    answer = get(clients, gateway, from_=written(gateway))
    assert envelope[envelope.index(b'{"a"') : -1] in answer.body


@pytest.mark.parametrize("control", [0, 1])
def test_pages_continue_at_next_until_the_last_position(story: Story, clients: Clients, control: int) -> None:
    gateway, last = story.gateway, written(story.gateway)
    whole = page(clients, gateway, control=control)
    records, start = [], 0
    while start <= last:
        body = page(clients, gateway, from_=start, limit=7, control=control)
        assert len(body["records"]) <= 7
        assert start < body["next"] <= last + 1
        assert (body["first"], body["last"]) == (0, last)
        records += body["records"]
        start = body["next"]
    assert records == whole["records"]
    assert page(clients, gateway, from_=start) == {**whole, "records": []}


def test_control_omits_frames_and_stream_data(story: Story, clients: Clients) -> None:
    everything = page(clients, story.gateway)["records"]
    control = page(clients, story.gateway, control=1)["records"]
    assert [record for record in everything if record["frame_number"] is None] == control
    assert len(everything) >= len(control) + 9


def test_a_page_has_a_maximum_size_in_bytes(limited: Running, clients: Clients) -> None:
    alice = clients.joined(limited)
    start = written(limited) + 1
    for n in range(4):
        alice.say(kind="chat", payload={"text": str(n) * 1000})
        alice.envelope("chat")
    assert written(limited) == start + 3
    body = page(clients, limited, from_=start)
    assert [len(body["records"]), body["next"]] == [2, start + 2]


def test_segments_and_log_are_read_as_one_journal_from_the_first_record_that_exists(
    tmp_path: Path, clients: Clients
) -> None:
    with running(tmp_path, SPACE, journal=JOURNAL) as first:
        clients.joined(first, "bob")
        open_targeted(clients.joined(first))
        clients.close()
    assert journal_in(tmp_path).folder.logs() == []
    (sealed,) = journal_in(tmp_path).folder.segments()
    with running(tmp_path, SPACE, journal=JOURNAL) as second:
        clients.joined(second).send(frame(BINARY, b"#stream-1#later"))
        second.until(lambda it: it.first_hub.space.state.frames["stream-1"])
        last = written(second)
        assert sealed.last < last
        for start in (last, sealed.last, 0):
            # The stream may have started before the requested records; it is still for bob only.
            shown = {
                participant: page(clients, second, participant, from_=start)["records"]
                for participant in ("bob", "carol", OBSERVER)
            }
            assert [record["position"] for record in shown["bob"]] == list(range(start, last + 1))
            assert base64.b64decode(shown["bob"][-1]["payload_base64"]) == b"later"
            assert [shown[participant][-1].get("withheld") for participant in shown] == [None, True, True]
        sealed.control.unlink()
        body = page(clients, second)
        assert (body["first"], body["records"][0]["position"]) == (sealed.last + 1, sealed.last + 1)
        clients.close()


def test_details_of_a_corrupt_file_are_only_in_the_log(
    tmp_path: Path, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, SPACE, journal=JOURNAL) as first:
        talk(clients.joined(first))
        clients.close()
    (sealed,) = journal_in(tmp_path).folder.segments()
    whole = bytearray(sealed.control.read_bytes())
    whole[len(whole) // 2] ^= 1
    sealed.control.write_bytes(whole)
    with running(tmp_path, SPACE, journal=JOURNAL) as second:
        answer = get(clients, second)
        assert (answer.status, answer.json["error"]) == (500, "internal_error")
        assert str(tmp_path) not in answer.json["message"]
        assert page(clients, second, from_=sealed.last + 1)["records"]
        assert follow(clients, second).to_the_end() == []
    assert caplog.text.count(sealed.control.name) == 2


# Who may read, and with which parameters


def test_an_invalid_number_is_refused_with_the_name_of_its_parameter(gateway: Running, clients: Clients) -> None:
    wrong = {"from": ["-1", "x", "1e3", "1" * 19, "٣", ""], "limit": ["0", "10001", ""], "control": ["2", "yes"]}
    for name, values in wrong.items():
        for value in values:
            answer = get(clients, gateway, **{name: value})
            assert (answer.status, answer.json["error"]) == (400, "invalid_request"), (name, value)
            assert f"`{name}`" in answer.json["message"]
    answer = ask(clients.raw(gateway), "GET", PATH, token_of(gateway, "alice"), **LIVE, Last_Event_ID="x")
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")
    assert "`Last-Event-ID`" in answer.json["message"]


def test_without_a_token_of_the_space_nothing_is_shown(gateway: Running, clients: Clients) -> None:
    stranger = tokens_of(gateway).issue("elsewhere", "alice")
    requests = [(PATH, None), (PATH, "wrong"), (PATH, stranger), ("/spaces/elsewhere/journal", stranger)]
    for accept in (None, "text/event-stream"):
        answers = [ask(clients.raw(gateway), "GET", path, token, Accept=accept) for path, token in requests]
        assert [(answer.status, answer.json["error"]) for answer in answers] == [
            (401, "unauthorized"),
            (403, "unauthorized"),
            (403, "unauthorized"),
            (404, "space_not_found"),
        ]


def test_the_default_space_is_the_first(gateway: Running, clients: Clients) -> None:
    answer = ask(clients.raw(gateway), "GET", "/spaces/default/journal?limit=1", token_of(gateway, "alice"))
    assert answer.json["space"] == "demo"


def test_a_space_without_a_journal_answers_not_found(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE) as gateway:
        answer = get(clients, gateway)
        assert (answer.status, answer.json["error"]) == (404, "not_found")


# What each participant may see


class Listener:
    """A client in the space, and everything that it receives."""

    def __init__(self, clients: Clients, gateway: Running, participant: str) -> None:
        self.client = clients.raw(gateway)
        self.client.send(upgrade("/", Authorization=f"Bearer {token_of(gateway, participant)}"))
        assert self.client.answer().status == 101
        self.received: list[Any] = []
        """Envelopes, and the bytes of frames."""
        self.hear("system/welcome")

    def say(self, kind: str, answer: str, **envelope: Any) -> None:
        """Send an envelope, and read until the answer comes."""
        self.client.say(kind=kind, **envelope)
        self.hear(answer)

    def hear(self, kind: str, **payload: Any) -> None:
        """Read until an envelope of this kind with these payload fields comes."""
        while True:
            received = self.client.frame()
            assert received.opcode != CLOSE, received
            if received.payload.startswith(b"#"):
                self.received.append(received.payload.split(b"#", 2)[2])
                continue
            envelope = msgspec.json.decode(received.payload)
            self.received.append(envelope)
            if envelope["kind"] == kind and payload.items() <= envelope["payload"].items():
                return


def play(gateway: Running, clients: Clients) -> Story:
    """Play a history with everything that some participants receive and others do not."""
    listeners = {name: Listener(clients, gateway, name) for name in ("alice", "bob", "carol", OBSERVER)}
    alice, bob, carol, observer = listeners.values()
    alice.say("chat", "chat", payload={"text": "listen"})
    for listener in listeners.values():
        listener.received.clear() if listener is alice else listener.hear("chat")
        listener.received.clear()
    first = written(gateway) + 1
    for stream_id in ("stream-1", "b", "open"):
        play_stream(stream_id, alice, carol)
    alice.say("stream/grant-write", "stream/write-granted", payload={"stream_id": "open", "participant_id": "carol"})
    carol.client.say(kind="system/heartbeat")
    carol.say("chat", "system/error", payload={"text": ""})
    carol.say("system/register", "system/error", payload={"of": "carol"})
    observer.say("chat", "system/error", payload={"text": "I may not"})
    alice.say("space/invite", "space/invite-ack", payload={"participant_id": "dave", "hidden": "field"})
    alice.client.say(kind="space/kick", payload={"participant_id": "dave", "reason": "hush"})
    alice.say("capability/grant", "system/presence", payload={"recipient": "bob", "capabilities": [{"kind": "x"}]})
    bob.hear("system/welcome")
    bob.say("system/join", "system/welcome", token=token_of(gateway, "bob"))
    observer.say("system/join", "system/welcome", token=token_of(gateway, OBSERVER))
    gateway.ask(lambda it: it.first_hub.run(Checkpoint()))
    alice.client.say(kind="chat", payload={"text": "that is all"})
    for listener in listeners.values():
        listener.hear("chat", text="that is all")
    return Story(gateway, first, written(gateway), {name: listener.received for name, listener in listeners.items()})


TARGETS = {"stream-1": ["bob"], "b": ["bob", "alice"], "open": None}


def play_stream(stream_id: str, alice: Listener, carol: Listener) -> None:
    """A stream with or without targets, and valid and invalid data on it."""
    target = {} if TARGETS[stream_id] is None else {"target": TARGETS[stream_id]}
    if stream_id == "stream-1":
        alice.say("stream/request", "stream/open", payload=target)
    else:
        announced = {"formats": [{"id": "f"}], "desired_id": stream_id, **target}
        alice.say("stream/announce", "stream/ready", payload=announced)
        alice.say("stream/start", "stream/start", payload={"stream_id": stream_id})
    # Only the gateway opens streams: a `stream/open` of a participant has no effect.
    carol.say("stream/open", "stream/open", payload={"stream_id": stream_id, "target": ["carol"]})
    alice.client.send(frame(BINARY, f"#{stream_id}#for {stream_id}".encode()))
    for n in (1, 5, 2):  # some numbers are left out, one comes too late
        data = {"stream_id": stream_id, "sequence": n, "content": f"{stream_id}{n}"}
        alice.client.say(kind="stream/data", payload=data)
    alice.hear("system/error", error="sequence_out_of_order")
    carol.client.send(frame(BINARY, f"#{stream_id}#not mine".encode()))
    carol.hear("system/error", error="unauthorized_stream_write")


def comparable(envelope: Any) -> bytes:
    """An envelope without the token of an invitation, which the journal omits; frames stay bytes."""
    if isinstance(envelope, bytes):
        return envelope
    payload = {name: value for name, value in envelope["payload"].items() if name not in ("token", "connection_url")}
    return msgspec.json.encode({**envelope, "payload": payload}, order="deterministic")


def is_about(name: str, record: Any) -> bool:
    """Whether this is a presence that is not sent to this participant, because it caused it."""
    presence = record["payload"]["payload"] if record["kind"] == "system/presence" else {"participant": {"id": None}}
    return name in (presence["participant"]["id"], presence.get("invited_by"))


REFUSALS = {"rejected", "frame_rejected"}
SENT = {"consumed", *REFUSALS}


@pytest.mark.parametrize("participant", ["alice", "bob", "carol", OBSERVER])
def test_a_participant_sees_what_it_received_and_what_it_sent_and_nothing_else(
    story: Story, clients: Clients, participant: str
) -> None:
    records = page(clients, story.gateway, participant, from_=story.first, limit=story.last + 1 - story.first)[
        "records"
    ]
    assert [record["position"] for record in records] == list(range(story.first, story.last + 1))
    shown = [record for record in records if "withheld" not in record]
    sent = [record for record in shown if record["event"] in SENT or record["reason"] == "skipped"]
    assert {record["participant"] for record in sent} <= {participant}
    refused = [record for record in records if record not in shown and record["event"] in REFUSALS]
    assert {record["participant"] for record in records if record not in shown and record not in refused} <= {None}
    # This includes the refusals of an observer: a record does not say which observer of this name it was.
    assert all(
        record["reason"] and (record["participant"] != participant or participant == OBSERVER) for record in refused
    )
    visible = {
        base64.b64decode(record["payload_base64"]) if record["event"] == "frame" else comparable(record["payload"])
        for record in shown
        if record not in sent and record["event"] not in ("join", "leave") and not is_about(participant, record)
    }
    # A refusal has a record of its own. No one may learn about an observer, not even with the observer's token.
    not_shown = {"system/error", "system/welcome"} if participant == OBSERVER else {"system/error"}
    received = [
        message
        for message in story.received[participant]
        if isinstance(message, bytes) or message["kind"] not in not_shown
    ]
    assert visible == {comparable(message) for message in received}
    # Alice skipped numbers, sent one late, granted, invited and kicked; carol sent a heartbeat and refused messages.
    assert len(sent) == {"alice": 3 + 3 + 3, "bob": 0, "carol": 1 + 2 + 3, OBSERVER: 0}[participant]


def test_a_withheld_record_has_a_position_a_time_and_an_event(story: Story, clients: Clients) -> None:
    records = page(clients, story.gateway, OBSERVER, from_=story.first, limit=story.last + 1 - story.first)["records"]
    withheld = [record for record in records if "withheld" in record]
    for record in withheld:
        assert record.pop("withheld") is True
        fields = {name for name, value in record.items() if value is not None} - {"position", "time", "event"}
        is_data = record["event"] in ("frame", "envelope") and record["kind"] != "space/invite-ack"
        if record["event"] in REFUSALS:
            assert {"participant", "reason", "size"} <= fields <= {"participant", "kind", "stream_id", "reason", "size"}
            continue
        assert fields <= {"kind", "stream_id", "frame_number"}
        assert ("stream_id" in fields) == ("frame_number" in fields)
        assert not fields or is_data
    others = [record for record in withheld if record["event"] not in REFUSALS]
    assert {(record["event"], record["kind"]) for record in others} == {
        ("welcome", None), ("consumed", None), ("gap", None), ("checkpoint", None), ("envelope", None),
        ("frame", None), ("envelope", "stream/data"), ("admin", None),
    }  # fmt: skip
    assert {record["event"] for record in withheld} >= REFUSALS


def test_a_takeover_is_shown_only_to_its_participant(gateway: Running, clients: Clients) -> None:
    start = written(gateway) + 1
    clients.joined(gateway, "bob")
    clients.joined(gateway, "bob")
    written(gateway)

    def joins(participant: str) -> list[Any]:
        records = page(clients, gateway, participant, from_=start)["records"]
        return [(record["reason"], "withheld" in record) for record in records if record["event"] == "join"]

    assert joins("bob") == [(None, False), ("takeover", False)]
    assert joins("alice") == joins(OBSERVER) == [(None, False), (None, True)]


# The live stream


@pytest.mark.parametrize("control", [0, 1])
def test_each_record_is_an_event_and_new_ones_follow(gateway: Running, clients: Clients, control: int) -> None:
    alice = clients.joined(gateway)
    talk(alice)
    start, before = 2, written(gateway)
    following = follow(clients, gateway, from_=start, control=control)
    events = following.until(before - 6 * control)
    alice.say(kind="chat", payload={"text": "two\nlines"})
    alice.envelope("chat")
    events += following.until(before + 1)
    shown = page(clients, gateway, from_=start, control=control)["records"]
    assert [event.data for event in events] == shown
    assert [(event.id, event.event) for event in events] == [(record["position"], record["event"]) for record in shown]


def test_line_breaks_between_tokens_do_not_break_an_event(gateway: Running, clients: Clients) -> None:
    alice = clients.joined(gateway)
    alice.send(frame(TEXT, b'{"kind":"note","payload":{\r\n"a":\n"b\\n",\r"c":1}}'))
    alice.envelope("note")
    last = written(gateway)
    event = follow(clients, gateway, from_=last).until(last)[-1]
    assert event.data["payload"]["payload"] == {"a": "b\n", "c": 1}


def test_a_reader_resumes_after_the_last_event_that_it_names(story: Story, clients: Clients) -> None:
    events = follow(clients, story.gateway).until(story.last)
    client, token = clients.raw(story.gateway), token_of(story.gateway, "alice")
    resumed = Following(client, f"{PATH}?from=0", token, **{"Last-Event-ID": str(events[3].id)})
    assert resumed.until(story.last) == events[4:]


@pytest.mark.parametrize("participant", ["bob", "carol", OBSERVER])
def test_the_live_stream_withholds_the_same_as_a_page(story: Story, clients: Clients, participant: str) -> None:
    events = follow(clients, story.gateway, participant, from_=story.first).until(story.last)
    records = page(clients, story.gateway, participant, from_=story.first, limit=story.last + 1 - story.first)[
        "records"
    ]
    assert [event.data for event in events if event.id <= story.last] == records


def test_a_heartbeat_comes_while_there_are_no_records(limited: Running, clients: Clients) -> None:
    following = follow(clients, limited, from_=10**17)
    assert [following.next(), following.next(), following.ended] == [None, None, False]


def test_the_live_stream_ends_properly_when_the_gateway_stops(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path, SPACE, journal=JOURNAL) as gateway:
        following = follow(clients, gateway)
        following.until(written(gateway))
        stopping = gateway.stopping()
        assert following.to_the_end() == []
        stopping.result(PATIENCE)


def test_a_removed_participant_sees_no_later_records(gateway: Running, clients: Clients) -> None:
    alice = clients.joined(gateway)
    alice.say(kind="space/invite", payload={"participant_id": "eve"})
    alice.envelope("space/invite-ack")
    following = follow(clients, gateway, "eve", from_=written(gateway))
    following.next()
    alice.say(kind="space/kick", payload={"participant_id": "eve"})
    alice.say(kind="chat", payload={"text": "at last"})
    alice.envelope("chat")
    last = written(gateway)
    assert [event.id for event in following.to_the_end() if event.id >= last] == []
    answer = get(clients, gateway, "eve")
    assert (answer.status, answer.json["error"]) == (403, "unauthorized")


def test_the_gateway_does_not_buffer_the_journal_for_a_slow_client(limited: Running, clients: Clients) -> None:
    alice = clients.joined(limited)
    stream = alice.open_stream()
    start, token = written(limited) + 1, token_of(limited, "alice")
    following = Following(clients.raw(limited, buffer=8192), f"{PATH}?from={start}", token)
    size, count = 30_000, 400
    for n in range(count):
        alice.send(frame(BINARY, stream + b"%05d" % n + b"x" * size))
        alice.echo()
    last = written(limited)
    waiting = limited.until(lambda _: waits_for(limited, following))
    assert waiting < 4 * STEP_BYTES < size * count / 10
    limited.until(lambda _: not being_read(limited))
    events = following.until(last)
    assert [event.id for event in events] == list(range(start, last + 1))
    numbers = [int(base64.b64decode(event.data["payload_base64"])[:5]) for event in events]
    assert numbers == list(range(count))


def waits_for(gateway: Running, following: Following) -> int:
    """Bytes that the gateway has buffered for a client."""
    mine = following.client.socket.getsockname()
    transports = [connection.transport for connection in gateway.server._http.connections]
    (transport,) = [candidate for candidate in transports if candidate.get_extra_info("peername") == mine]
    return transport.get_write_buffer_size()


def being_read(gateway: Running) -> list[str]:
    """The log files that this process has open for reading, including those that have been sealed since."""
    log = str(journal_in(gateway.config.spaces[0].directory).folder.log)
    paths = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            path, info = str(entry.readlink()), Path("/proc/self/fdinfo", entry.name).read_text(encoding="ascii")
            is_written = int(info.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE
            is_log = path.startswith(log) and path.removesuffix(" (deleted)").endswith(".log")
            paths += [path] if is_log and not is_written else []
    return paths


def test_the_number_of_live_readers_is_limited_and_a_disconnect_makes_room(limited: Running, clients: Clients) -> None:
    token = token_of(limited, "alice")

    def admitted() -> Raw:
        """Retry: the gateway may not have noticed yet that an earlier reader has disconnected."""
        deadline = time.monotonic() + PATIENCE
        while ask(client := clients.raw(limited), "GET", PATH, token, **LIVE).status != 200:
            assert time.monotonic() < deadline
        return client

    readers = [admitted() for _ in range(FEW_LIVE_READERS)]
    refused = ask(clients.raw(limited), "GET", PATH, token, **LIVE)
    assert (refused.status, refused.json["error"]) == (429, "quota_exceeded")
    readers[0].close()
    assert admitted() not in readers


def test_a_head_request_for_the_live_stream_ends_immediately(gateway: Running, clients: Clients) -> None:
    client = clients.raw(gateway)
    answer = ask(client, "HEAD", PATH, token_of(gateway, "alice"), **LIVE)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert ask(client, "GET", "/health").status == 200


# Conformance to the OpenAPI document


api = schemathesis.openapi.from_dict(document())
api.config.generation.update(modes=list(schemathesis.GenerationMode))


@api.include(path_regex="^/spaces").parametrize()
@FEW
def test_answers_to_a_valid_token_match_the_document_and_other_tokens_are_refused(
    case: Case[Any], story: Story
) -> None:
    case.path_parameters["id"] = "demo"
    own = {"Authorization": f"Bearer {token_of(story.gateway, 'bob')}"}
    case.call_and_validate(base_url=address(story.gateway), headers=own, checks=[*CHECKS, ignored_auth])


def test_the_examples_are_real_answers(tmp_path: Path, clients: Clients) -> None:
    people = {"alice": ANYTHING, "bob": [{"kind": "chat"}]}
    with running(tmp_path, {**SPACE, "participants": people}, journal=JOURNAL) as gateway:
        alice = clients.joined(gateway)
        alice.say(id="c-1", kind="chat", payload={"text": "hello"})
        alice.say(kind="chat", payload={"text": ""})
        alice.envelope("system/error")
        assert written(gateway) == 6
        body = page(clients, gateway, "bob", from_=5)
        (event,) = follow(clients, gateway, "bob", from_=6).until(6)
        clients.close()
    assert timeless(body) == timeless(EXAMPLE_PAGE)
    assert list(body["records"][0]) == list(EXAMPLE_PAGE["records"][0])
    assert event.data == body["records"][1]


def timeless(value: Any) -> Any:
    """The value without its timestamps."""
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name not in ("time", "ts")}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def test_the_examples_match_their_schema() -> None:
    schema = {"$ref": "#/components/schemas/JournalPage", "components": document()["components"]}
    jsonschema_rs.validate(schema, EXAMPLE_PAGE)
    fields = dict(line.split(": ", 1) for line in EVENT.removesuffix("\n\n").split("\n"))
    assert msgspec.json.decode(fields["data"]) == EXAMPLE_PAGE["records"][1]
    assert (fields["id"], fields["event"]) == ("6", "rejected")
