"""`mew stream …`: opened, fed, shared, read and ended from a shell, and nobody's socket is touched."""

import asyncio
import base64
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from mew.cli.common.errors import Unreachable, UsageError
from mew.cli.common.http_client import ApiError
from mew.cli.participate import stream_feed
from mew.cli.participate.stream import ChunkOptions
from mew.cli.participate.stream_feed import Feed, packed, read_pieces, unpacked
from mew.client import connect
from tests.cli.running_space import SECONDS, Lab, command, environment, piped


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    return shared_lab


@pytest.fixture
def stream(lab: Lab) -> str:
    return lab.says("stream", "open", "--description", "numbers")


@contextmanager
def reading(lab: Lab, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Somebody who reads a stream, and is there: the first piece it prints was sent after it came."""
    process = subprocess.Popen(
        command("stream", "tail", *arguments), cwd=lab.directory, env=environment(), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        while not process.stdout.readline():
            assert process.poll() is None
            feed(lab, arguments[0], b"are you there?\n")
        os.set_blocking(process.stdout.fileno(), True)
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def feed(lab: Lab, stream: str, given: bytes, *arguments: str) -> dict[str, Any]:
    """Within this process, through a pipe."""
    reader, writer = os.pipe()
    thread = Thread(target=_pour, args=(writer, given))
    thread.start()
    sink = Feed(*door_of(lab), stream, None)
    with os.fdopen(reader, "rb") as source, sink._client:
        how: Any = dict.fromkeys(arguments, True)
        for piece in read_pieces(source, ChunkOptions(**how), sink.stay):
            sink.send(piece)
    thread.join(SECONDS)
    return sink.sent()


def _pour(writer: int, given: bytes) -> None:
    with os.fdopen(writer, "wb") as file:
        file.write(given)


def door_of(lab: Lab) -> tuple[Any, str]:
    from mew.cli.common.target import TargetOptions, participant_client

    return participant_client(TargetOptions(space_dir=lab.directory), "alice")


def entry(lab: Lab, stream: str) -> dict[str, Any]:
    lines = lab.says("stream", "ls", "--json", "--interval", "0").splitlines()
    return next(item for item in map(json.loads, lines) if item["stream_id"] == stream)


def test_a_stream_is_opened_with_what_was_said_of_it(lab: Lab) -> None:
    opened = lab.mew(
        "stream", "open", "--description", "heat", "--content-type", "text/plain", "--field", "rate=60", "--json"
    ).json
    assert opened["status"] == "stream_opened"
    stream_entry = entry(lab, opened["stream_id"])
    assert (stream_entry["description"], stream_entry["content_type"], stream_entry["rate"]) == (
        "heat",
        "text/plain",
        None,
    )
    assert (stream_entry["owner"], stream_entry["stream"]["status"]) == ("alice", "live")


def test_a_stream_is_announced_under_a_name_and_started(lab: Lab) -> None:
    assert lab.says("stream", "open", "--announce", "camera", "--formats", '[{"id":"jpeg"}]') == "camera"
    stream_entry = entry(lab, "camera")
    assert (stream_entry["stream"]["status"], stream_entry["formats"]) == ("live", [{"id": "jpeg"}])
    assert lab.mew("stream", "open", "--announce", "x").code == 4


@pytest.mark.parametrize("field", ["rate", "=5", "rate=x"])
def test_a_field_that_is_none_is_told(lab: Lab, field: str) -> None:
    ran = lab.mew("stream", "open", "--field", field)
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_streams_are_listed_with_owner_writers_and_rate(lab: Lab, stream: str) -> None:
    lab.says("send", "here", "--as", "carol")
    lab.says("stream", "grant", stream, "carol")
    feed(lab, stream, b"1\n2\n3\n")
    heading, *lines = lab.says("stream", "ls", "--interval", "0.05").splitlines()
    assert heading.split() == ["stream", "owner", "writers", "status", "frames", "rate", "about"]
    (line,) = [item.split() for item in lines if item.startswith(f"{stream} ")]
    assert line == [stream, "alice", "carol", "live", "3", "0.0/s", "numbers"]


def test_a_rate_is_what_the_gateway_has_counted_between_two_looks(lab: Lab, stream: str) -> None:
    process = subprocess.Popen(
        command("stream", "ls", "--json", "--interval", "0.5"),
        cwd=lab.directory,
        env=environment(),
        stdout=subprocess.PIPE,
    )
    try:
        while process.poll() is None:
            feed(lab, stream, b"x\n" * 20)
    finally:
        process.kill()
        lines = process.communicate()[0].splitlines()
    (rate,) = [item["rate"] for item in map(json.loads, lines) if item["stream_id"] == stream]
    assert rate > 1


def test_a_writer_is_granted_revoked_and_made_the_owner(lab: Lab, stream: str) -> None:
    lab.says("send", "here", "--as", "carol")
    assert lab.says("stream", "grant", stream, "carol", "--reason", "helps") == f"{stream}: writers alice, carol"
    assert lab.says("stream", "revoke", stream, "carol") == f"{stream}: writers alice"
    assert lab.says("stream", "transfer", stream, "carol") == f"{stream} owner carol: writers carol"
    refused = lab.mew("stream", "grant", stream, "alice")
    assert (refused.code, "(unauthorized)" in refused.err) == (4, True)
    answer = lab.mew("stream", "grant", stream, "alice", "--as", "carol", "--json").json
    assert (answer["status"], answer["authorized_writers"]) == ("granted", ["carol", "alice"])
    result = [item for item in lab.heard() if item.get("kind") == "stream/write-granted"]
    assert result[-2]["payload"]["reason"] == "helps"


@pytest.mark.parametrize(("how", "kind"), [((), "stream/close"), (("--as-complete",), "stream/complete")])
def test_a_stream_is_ended(lab: Lab, stream: str, how: tuple[str, ...], kind: str) -> None:
    assert lab.says("stream", "close", stream, *how, "--reason", "done") == f"{stream}: ended"
    ended = lab.said()[-1]
    assert (ended["kind"], ended["payload"]["stream_id"], ended["payload"]["reason"]) == (kind, stream, "done")


def test_lines_become_data_and_come_out_as_lines(lab: Lab, stream: str) -> None:
    with reading(lab, stream) as reader:
        sent = piped(lab.directory, "stream", "send", stream, "--json", given="one\ntwo\r\nümlaut".encode())
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["sent"] == 3
        assert reader.stdout is not None
        lab.says("stream", "close", stream)
        assert reader.stdout.read().decode().splitlines()[-3:] == ["one", "two", "ümlaut"]
        assert reader.wait(SECONDS) == 0


def test_bytes_come_out_as_they_went_in(lab: Lab, stream: str) -> None:
    values = Random(1).randbytes(5000) + b"\n"
    with reading(lab, stream, "--raw") as reader:
        assert reader.stdout is not None
        feed(lab, stream, values, "binary")
        lab.says("stream", "close", stream)
        assert reader.stdout.read().endswith(values)
        assert reader.wait(SECONDS) == 0


def test_it_ends_quietly_when_nobody_reads_it_any_more_although_nothing_comes(lab: Lab, stream: str) -> None:
    with reading(lab, stream) as reader:
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.wait(SECONDS) == 0


def test_json_out_has_sender_number_and_content(lab: Lab, stream: str) -> None:
    with reading(lab, stream, "--json") as reader:
        feed(lab, stream, b'{"x":1.0}\n', "json_lines")
        lab.says("stream", "close", stream)
        assert reader.stdout is not None
        *_, line = reader.stdout.read().splitlines()
    result = json.loads(line)
    assert (result["stream_id"], result["from"], result["content"]) == (stream, "alice", {"x": 1})
    assert line.endswith(b'"content":{"x":1.0}}')


def test_raw_frames_of_a_socket_come_out_too(lab: Lab) -> None:
    async def send() -> list[str]:
        async with connect(lab.url, token=lab.token("alice"), reconnect=False) as alice:
            stream = await alice.open_stream()
            reader = await asyncio.create_subprocess_exec(
                *command("stream", "tail", stream.stream_id, "--json", "-n", "2"),
                cwd=lab.directory,
                env=environment(),
                stdout=subprocess.PIPE,
            )
            assert reader.stdout is not None
            ended = asyncio.create_task(reader.stdout.read())
            while not ended.done():
                await stream.send("text")
                await stream.send(b"\xff")
                await asyncio.wait([ended], timeout=0.05)
            await reader.wait()
            await stream.close()
            return sorted((await ended).decode().splitlines())

    base, text = asyncio.run(send())
    assert json.loads(base)["encoding"] == "base64"
    assert base64.b64decode(json.loads(base)["data"]) == b"\xff"
    assert (json.loads(text)["encoding"], json.loads(text)["data"]) == ("text", "text")


def test_numbers_go_on_where_an_earlier_command_ended(lab: Lab, stream: str) -> None:
    assert feed(lab, stream, b"a\nb\n") == {"stream_id": stream, "sent": 2, "last_sequence": 1}
    assert feed(lab, stream, b"c\n") == {"stream_id": stream, "sent": 1, "last_sequence": 2}


def test_a_stream_can_end_with_its_input(lab: Lab, stream: str) -> None:
    assert piped(lab.directory, "stream", "send", stream, "--complete", given=b"last\n").returncode == 0
    assert lab.said()[-1]["kind"] == "stream/complete"


def test_who_may_not_write_is_refused(lab: Lab, stream: str) -> None:
    sent = piped(lab.directory, "stream", "send", stream, "--as", "bob", given=b"mine\n")
    assert (sent.returncode, sent.stdout) == (4, b"")
    assert sent.stderr.endswith(b"(unauthorized_stream_write)\n")


def test_a_stream_that_is_not_there_or_not_for_observers_is_told(lab: Lab) -> None:
    missing = lab.mew("stream", "tail", "stream-99999")
    assert (missing.code, "no stream 'stream-99999'" in missing.err) == (4, True)
    targeted = lab.says("stream", "open", "--target", "watcher")
    ran = lab.mew("stream", "tail", targeted)
    assert (ran.code, ran.err) == (4, f"mew: {targeted} is sent only to watcher: an observer does not receive it\n")
    assert lab.mew("stream", "tail", targeted, "--gateway", "ws://127.0.0.1:1").code == 3


@pytest.mark.parametrize("verb", [("tail", "stream-1"), ("ls",)])
def test_looking_with_a_participants_own_token_is_refused_since_it_would_take_over(
    lab: Lab, verb: tuple[str, ...], tmp_path: Path
) -> None:
    values = environment(MEW_GATEWAY=lab.url, MEW_TOKEN=lab.token("bob"))
    ran = subprocess.run(
        command("stream", *verb), cwd=tmp_path, env=values, timeout=SECONDS, check=False, capture_output=True
    )
    assert (ran.returncode, b"the token belongs to participant bob, whose connection" in ran.stderr) == (2, True)


# How input is cut


def cut(given: bytes, **how: Any) -> list[Any]:
    reader, writer = os.pipe()
    _pour(writer, given)
    with os.fdopen(reader, "rb") as source:
        return list(read_pieces(source, ChunkOptions(**how), lambda: None))


def test_lines_and_chunks_and_prefixed_pieces() -> None:
    assert cut(b"a\n\nb\r\nc") == ["a", "", "b", "c"]
    assert cut(b"") == []
    assert cut(b"abcde", binary=True, chunk=2) == [packed(b"ab"), packed(b"cd"), packed(b"e")]
    prefixed = b"".join(struct.pack(">I", len(item)) + item for item in (b"", b"xyz"))
    assert cut(prefixed, length_prefixed=True) == [packed(b""), packed(b"xyz")]


def test_while_nothing_comes_somebody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_feed, "IDLE_SECONDS", 0.01)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source:
        assert list(read_pieces(source, ChunkOptions(), lambda: _pour(writer, b"at last\n"))) == ["at last"]


def test_a_writer_that_says_it_is_still_there_is_heard(lab: Lab, stream: str) -> None:
    door, name = door_of(lab)
    with door:
        feeding = Feed(door, name, stream, None)
        feeding.send("a")
        feeding.stay()
        feeding.send("b")
    assert feeding.count == 2


@pytest.mark.parametrize(
    ("given", "how", "told"),
    [
        (b"ok\n\xff\n", {}, "line 2 is not UTF-8"),
        (b"1\n{\n", {"json_lines": True}, "line 2 is not JSON"),
        (b"\x00\x00\x00\x05ab", {"length_prefixed": True}, "ended in the middle of a piece"),
        (b"\xff\xff\xff\xff", {"length_prefixed": True}, "a piece has 4294967295 bytes"),
        (b"x", {"binary": True, "chunk": 0}, "--chunk"),
        (b"x", {"binary": True, "json_lines": True}, "give only one of"),
    ],
)
def test_input_that_cannot_be_cut_is_told(given: bytes, how: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        cut(given, **how)


def test_packed_bytes_are_known_from_other_contents() -> None:
    assert unpacked(json.dumps(packed(b"\x00\xff")).encode()) == b"\x00\xff"
    for other in ('"text"', "5", "{}", '{"encoding":"base64"}', '{"encoding":"text","data":"x"}', '{"data":"eA=="}'):
        assert unpacked(other.encode()) is None


class Answering:
    """A door that answers as it is told, and keeps what was posted."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.posted = list(answers), list[Any]()

    def post(self, _participant: str, envelope: Any) -> dict[str, Any]:
        self.posted.append((envelope["payload"]["sequence"], envelope["payload"]["content"]))
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        return {}

    def close(self) -> None:
        pass


def out_of_order(last: int) -> ApiError:
    return ApiError("sequence_out_of_order", "late", {"last_sequence": last})


def test_a_piece_whose_answer_was_lost_is_not_sent_twice() -> None:
    door: Any = Answering(Unreachable("gone"), out_of_order(0), None)
    feeding = Feed(door, "alice", "s", None)
    feeding.send("a")
    feeding.send("b")
    assert door.posted == [(0, "a"), (0, "a"), (1, "b")]
    assert feeding.sent() == {"stream_id": "s", "sent": 2, "last_sequence": 1}


def test_a_piece_that_never_arrived_is_sent_again_and_one_too_fast_a_little_later() -> None:
    door: Any = Answering(out_of_order(6), Unreachable("gone"), None, ApiError("rate_limited", "slow", {}), None)
    feeding = Feed(door, "alice", "s", None)
    feeding.send("a")
    feeding.send("b")
    assert door.posted == [(0, "a"), (7, "a"), (7, "a"), (8, "b"), (8, "b")]


def test_a_gateway_that_is_gone_is_told() -> None:
    door: Any = Answering(Unreachable("gone"), Unreachable("gone"))
    with pytest.raises(Unreachable):
        Feed(door, "alice", "s", None).send("a")
