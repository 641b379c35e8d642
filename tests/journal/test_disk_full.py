"""A disk that is really full: nothing stays unrecorded unless it may, clients get an error, and it recovers itself."""

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from mew.journal.reader import Journal
from mew.protocol.records import Record
from tests.gateway.raw import CLOSE, TEXT, Raw, frame
from tests.journal.gateway_process import SPACE, GatewayProcess, gateway, launch
from tests.journal.small_disk import Disk, on_a_small_disk
from tests.support.polling import until

EVERYBODY = {name: {"capabilities": [{"kind": "*"}]} for name in ("alice", "bob", "carol")}
LARGE = "x" * 20_000
"""More than what is left of a page that the file has already."""
FRAMES = 8000


def on(disk: Disk, elsewhere: Path, **journal: Any) -> Any:
    return gateway(disk.path, elsewhere, participants=EVERYBODY, journal={"segment_seconds": 3600, **journal})


def texts(records: list[Record]) -> list[str]:
    """What was said, as it is on record."""
    chats = (msgspec.json.decode(record.payload) for record in records if record.kind == "chat")
    return [chat["payload"]["text"] for chat in chats]


def recorded(process: GatewayProcess) -> list[Record]:
    return list(Journal(process.journal.root, SPACE).records())


def is_ready(process: GatewayProcess) -> bool:
    return process.get("/ready").status == 200


def chat(client: Raw, text: str) -> None:
    client.say(kind="chat", payload={"text": text})


def heard(client: Raw) -> str:
    """The next chat."""
    return str(client.envelope("chat")["payload"]["text"])


def refused(client: Raw) -> dict[str, Any]:
    """Send a message; the very next message is the error that nothing can be recorded."""
    client.say(kind="chat", id="refused", payload={"text": "refused"})
    answer: dict[str, Any] = msgspec.json.decode(client.frame().payload)
    assert answer["kind"] == "system/error", answer
    assert answer["payload"]["error"] == "journal_unavailable"
    assert answer["correlation_id"] == ["refused"]
    return answer


def fill_under(process: GatewayProcess, disk: Disk, client: Raw) -> None:
    """Fill the disk, and let a client send what no longer fits; until the gateway says so."""
    disk.fill()
    chat(client, LARGE)
    until(lambda: "journal unavailable" in process.error_output(), "the end of the room")


def assert_stops_and_resumes(disk: Disk, elsewhere: Path, sync: str) -> None:
    with on(disk, elsewhere, sync=sync) as process:
        process.start()
        (alice, _), (bob, _) = process.join("alice"), process.join("bob")
        chat(alice, "before")
        assert (heard(bob), heard(alice)) == ("before", "before")
        stream_id = process.post("alice", "stream/request").json["stream_id"]
        for client in (alice, bob):
            assert client.envelope("stream/open")["payload"]["stream_id"] == stream_id
        fill_under(process, disk, alice)
        assert_every_client_gets_the_error(process, alice, bob, stream_id)
        disk.make_room()
        # No client sends anything: the held messages arrive by themselves.
        assert heard(bob) == LARGE
        until(lambda: is_ready(process))
        assert process.get("/health").json["status"] == "ok"
        chat(bob, "after")
        assert heard(bob) == "after"
        assert process.post("alice", "chat", text="posted").status == 200
        process.kill()
        records = recorded(process)
        assert [record for record in records if record.event == "frame"] == []
        assert texts(records) == ["before", LARGE, "after", "posted"]
        assert [record.position for record in records] == list(range(len(records)))
        assert [event["event"] for event in process.events()].count("journal can be written again") == 1
        check_that_it_comes_back(process, stream_id)


def assert_every_client_gets_the_error(process: GatewayProcess, alice: Raw, bob: Raw, stream_id: str) -> None:
    """Nothing of what could not be recorded has reached anybody: an answer to something later comes before it."""
    problem = "nothing can be recorded: No space left on device"
    assert refused(bob)["payload"]["message"] == problem
    answer = process.post("alice", "chat", text="refused")
    assert (answer.status, answer.json["error"]) == (503, "journal_unavailable")
    assert process.post("bob", "space/kick", participant_id="alice").status == 503
    rejected = process.connect("carol")
    assert rejected.envelope("system/error")["payload"]["error"] == "journal_unavailable"
    closed = rejected.frame()
    assert (closed.opcode, closed.code) == (CLOSE, 1013)
    refused(alice)
    alice.send(frame(TEXT, f"#{stream_id}#refused".encode()) * 50)
    assert alice.envelope("system/error")["payload"]["error"] == "journal_unavailable"
    ready, health = process.get("/ready"), process.get("/health")
    assert (ready.status, ready.json["status"]) == (503, "not_ready")
    assert ready.json["checks"]["journal"] == "lab: No space left on device"
    assert (health.status, health.json["status"]) == (200, "degraded")
    assert health.json["journal"] == {"lab": "No space left on device"}
    assert 'mew_journal_available{space="lab"} 0.0' in process.get("/metrics").body.decode()
    problems = [event for event in process.events() if event["event"] == "journal unavailable"]
    assert [(event["level"], event["space"]) for event in problems] == [("error", "lab")]
    assert problems[0]["error"] == f"{process.journal.log}: No space left on device"


def check_that_it_comes_back(process: GatewayProcess, stream_id: str) -> None:
    """A restart finds everything, and an orderly stop seals everything."""
    process.start()
    _, welcome = process.join("alice")
    assert [(entry["stream_id"], entry["owner"]) for entry in welcome["active_streams"]] == [(stream_id, "alice")]
    before = len(recorded(process))
    assert process.stop() == 0
    assert process.journal.logs() == []
    records = recorded(process)
    assert len(records) >= before
    assert [record.position for record in records] == list(range(len(records)))


@on_a_small_disk
def test_with_sync_always_a_full_disk_stops_the_space_and_free_room_resumes_it(disk: Disk, elsewhere: Path) -> None:
    assert_stops_and_resumes(disk, elsewhere, "always")


@on_a_small_disk
def test_with_sync_interval_a_full_disk_stops_the_space_and_free_room_resumes_it(disk: Disk, elsewhere: Path) -> None:
    assert_stops_and_resumes(disk, elsewhere, "interval:20")


@on_a_small_disk
def test_a_kicked_participant_is_disconnected_once_the_kick_is_recorded(disk: Disk, elsewhere: Path) -> None:
    with on(disk, elsewhere) as process:
        process.start()
        (alice, _), (bob, _), (carol, _) = (process.join(name) for name in ("alice", "bob", "carol"))
        disk.fill()
        alice.say(kind="space/kick", payload={"participant_id": "carol", "reason": LARGE})
        until(lambda: "journal unavailable" in process.error_output())
        refused(carol)
        disk.make_room()
        assert [bob.envelope("system/presence")["payload"]["event"] for _ in range(2)] == ["join", "leave"]
        assert carol.closed() == 4403
        process.kill()
        assert [record.kind for record in recorded(process)].count("space/kick") == 1


@on_a_small_disk
def test_a_slow_reader_gets_its_queued_messages_and_a_report_of_dropped_ones(disk: Disk, elsewhere: Path) -> None:
    limits = {"limits": {"data_queue_bytes": 65_536}}
    with gateway(disk.path, elsewhere, participants=EVERYBODY, gateway=limits) as process:
        process.start()
        slow = process.connect("bob", buffer=8192)
        alice, _ = process.join("alice")
        stream_id = process.post("alice", "stream/request").json["stream_id"]
        alice.send(*[frame(TEXT, f"#{stream_id}#{number:0200}".encode()) for number in range(FRAMES)])
        until(lambda: f'mew_frames_total{{space="lab"}} {FRAMES}.0' in process.get("/metrics").body.decode())
        fill_under(process, disk, alice)
        reader = Reader(slow)
        reader.until_nothing_comes()
        assert reader.chats == []
        disk.make_room()
        until(lambda: reader.chats == [LARGE])
        process.kill()
        reader.join()
        frames, lost = reader.frames, sum(gap["dropped"] for gap in reader.gaps)
        assert lost > 0
        assert len(frames) + lost == FRAMES
        assert len([record for record in recorded(process) if record.event == "gap"]) == len(reader.gaps)


class Reader(threading.Thread):
    """Reads a socket to its end."""

    def __init__(self, client: Raw) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.frames: list[bytes] = []
        self.chats: list[str] = []
        self.gaps: list[dict[str, Any]] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                message = self._client.frame().payload
            except EOFError:
                return
            if message.startswith(b"#"):
                self.frames.append(message)
                continue
            envelope = msgspec.json.decode(message)
            if envelope["kind"] == "chat":
                self.chats.append(envelope["payload"]["text"])
            elif envelope["kind"] == "stream/gap":
                self.gaps.append(envelope["payload"])

    def until_nothing_comes(self) -> None:
        """Until it has everything that was in flight."""
        counts: list[int] = [-1]

        def rests() -> bool:
            counts.append(len(self.frames))
            return len(counts) > 100 and len(set(counts[-100:])) == 1

        until(rests)


@on_a_small_disk
def test_with_on_error_continue_the_space_runs_unrecorded_until_a_checkpoint_resumes_the_journal(
    disk: Disk, elsewhere: Path
) -> None:
    with on(disk, elsewhere, on_error="continue") as process:
        process.start()
        (alice, _), (bob, _), _ = (process.join(name) for name in ("alice", "bob", "carol"))
        chat(alice, "before")
        assert heard(bob) == "before"
        fill_under(process, disk, alice)
        assert heard(bob) == LARGE
        assert process.post("alice", "space/kick", participant_id="carol").status == 200
        stream_id = process.post("alice", "stream/request").json["stream_id"]
        chat(bob, "unrecorded")
        assert heard(bob) == "unrecorded"
        assert is_ready(process)
        assert process.get("/health").json["status"] == "degraded"
        metrics = process.get("/metrics").body.decode()
        unrecorded = metrics.split('mew_journal_unrecorded_total{space="lab"} ')[1].split("\n")[0]
        assert float(unrecorded) >= 4
        disk.make_room()
        until(lambda: "journal can be written again" in process.error_output())
        assert process.post("alice", "chat", text="after").status == 200
        process.kill()
        check_the_hole(recorded(process))
        process.start()
        rejected = process.connect("carol")
        assert rejected.envelope("system/error")["payload"]["error"] == "unauthorized"
        bob, welcome = process.join("bob")
        assert [entry["stream_id"] for entry in welcome["active_streams"]] == [stream_id]
        assert process.stop() == 0
        assert process.journal.logs() == []
        check_the_hole(recorded(process))


def check_the_hole(records: list[Record]) -> None:
    """One hole, which a checkpoint ends: what was before and what is behind it is all there."""
    holes = [(one, other) for one, other in pairwise(records) if other.position != one.position + 1]
    assert [other.event for _, other in holes] == ["checkpoint"]
    assert texts(records) == ["before", "after"]


@on_a_small_disk
def test_what_cannot_be_sealed_stays_and_is_sealed_before_what_comes_later(disk: Disk, elsewhere: Path) -> None:
    with on(disk, elsewhere, segment_seconds=0.2) as process:
        process.start()

        def could_not_be_sealed() -> bool:
            disk.fill()
            process.post("alice", "chat", text="small")
            return "journal maintenance failed" in process.error_output()

        until(could_not_be_sealed)
        disk.make_room()
        until(lambda: is_ready(process))
        assert process.post("alice", "chat", text="after").status == 200
        until(lambda: not process.journal.logs(), "the sealing of all")
        records = recorded(process)
        assert [record.position for record in records] == list(range(len(records)))
        assert texts(records)[-1] == "after"


# ---------------------------------------------------------------------------------------------- at the start


def fails_to_start(folder: Path, elsewhere: Path, code: int = 1) -> str:
    """What a gateway says that cannot start: one line."""
    with (elsewhere / "said").open("w+") as errors:
        process = launch(folder, errors)
        output, _ = process.communicate(timeout=30)
        errors.seek(0)
        error_text = errors.read()
    lines = [line for line in error_text.splitlines() if not line.startswith("{")]
    assert (process.returncode, output, len(lines)) == (code, "", 1), error_text
    assert "Traceback" not in error_text
    return lines[0]


def test_a_second_gateway_on_the_same_journal_gets_the_process_that_writes_it(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=EVERYBODY) as process:
        process.start()
        runs = f"mew: space 'lab' already runs at ws://localhost:{process.port} (process {process.process.pid})"
        assert fails_to_start(tmp_path, tmp_path, 2) == runs
        (tmp_path / ".mew" / "pids.json").unlink()
        error_text = fails_to_start(tmp_path, tmp_path, 2)
        assert str(process.journal.root) in error_text
        assert f"process {process.process.pid} " in error_text
        process.kill()
        process.start()


def test_a_journal_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=EVERYBODY) as process:
        process.journal.root.parent.mkdir()
        process.journal.root.touch()
        error_text = fails_to_start(tmp_path, tmp_path)
        assert f"{process.journal.log}: Not a directory" in error_text


@on_a_small_disk
def test_a_journal_that_cannot_be_written_is_named(disk: Disk, elsewhere: Path) -> None:
    with on(disk, elsewhere) as process:
        process.start()
        assert process.stop() == 0
        disk.remount("ro")
        error_text = fails_to_start(disk.path, elsewhere)
        assert f"{process.journal.lock}: Read-only file system" in error_text
        disk.remount("rw")


@on_a_small_disk
def test_a_disk_that_is_full_from_the_start_is_waited_for(disk: Disk, elsewhere: Path) -> None:
    with on(disk, elsewhere) as process:
        process.start()
        assert process.stop() == 0
        before = len(recorded(process))
        process.journal.lock.unlink()
        disk.fill()
        process.start()
        assert not is_ready(process)
        assert process.post("alice", "chat", text="refused").status == 503
        disk.make_room()
        until(lambda: is_ready(process))
        assert process.post("alice", "chat", text="after").status == 200
        process.kill()
        records = recorded(process)
        assert [record.position for record in records] == list(range(len(records)))
        assert records[before].event == "start"
        assert texts(records) == ["after"]


def test_a_damaged_journal_is_not_started_on_and_named(tmp_path: Path) -> None:
    with gateway(tmp_path, participants=EVERYBODY, journal={"sync": "always", "segment_seconds": 3600}) as process:
        process.start()
        process.kill()
        (log,) = process.journal.logs()
        data = bytearray(log.read_bytes())
        data[-1] ^= 1
        log.write_bytes(data)
        error_text = fails_to_start(tmp_path, tmp_path)
        assert error_text.startswith(f"mew: {log}: ")
        assert "mew journal verify" in error_text
        assert log.read_bytes() == data
