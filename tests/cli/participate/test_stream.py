"""`mew stream …`: open, feed, share, read and end a stream from a shell, without an effect on open connections."""

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
from mew.cli.participate.stream import ChunkOptions
from mew.cli.participate.stream_feed import Feed, packed, read_pieces, unpacked
from mew.client import connect
from tests.cli.running_space import SECONDS, Lab, command, environment, piped


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    return shared_lab


@pytest.fixture
def stream(lab: Lab) -> str:
    return lab.succeeds("stream", "open", "--description", "numbers")


@contextmanager
def reading(lab: Lab, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that reads a stream; it has printed a piece that was sent after it had joined."""
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


def feed(lab: Lab, stream: str, input_bytes: bytes, *arguments: str) -> dict[str, Any]:
    """Feed a stream within this process, through a pipe."""
    reader, writer = os.pipe()
    thread = Thread(target=_pour, args=(writer, input_bytes))
    thread.start()
    sink = Feed(*client_of(lab), stream, None)
    with os.fdopen(reader, "rb") as source, sink._client:
        options: Any = dict.fromkeys(arguments, True)
        for piece in read_pieces(source, ChunkOptions(**options), sink.stay):
            sink.send(piece)
    thread.join(SECONDS)
    return sink.sent()


def _pour(writer: int, content: bytes) -> None:
    with os.fdopen(writer, "wb") as file:
        file.write(content)


def client_of(lab: Lab) -> tuple[Any, str]:
    from mew.cli.common.target import TargetOptions, participant_client

    return participant_client(TargetOptions(space_dir=lab.directory), "alice")


def entry(lab: Lab, stream: str) -> dict[str, Any]:
    lines = lab.succeeds("stream", "ls", "--json", "--interval", "0").splitlines()
    return next(item for item in map(json.loads, lines) if item["stream_id"] == stream)


def test_a_stream_is_opened_with_its_description_and_fields(lab: Lab) -> None:
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
    assert lab.succeeds("stream", "open", "--announce", "camera", "--formats", '[{"id":"jpeg"}]') == "camera"
    stream_entry = entry(lab, "camera")
    assert (stream_entry["stream"]["status"], stream_entry["formats"]) == ("live", [{"id": "jpeg"}])
    assert lab.mew("stream", "open", "--announce", "x").code == 4


@pytest.mark.parametrize("field", ["rate", "=5", "rate=x"])
def test_an_invalid_field_is_reported(lab: Lab, field: str) -> None:
    ran = lab.mew("stream", "open", "--field", field)
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_streams_are_listed_with_owner_writers_and_rate(lab: Lab, stream: str) -> None:
    lab.succeeds("send", "here", "--as", "carol")
    lab.succeeds("stream", "grant", stream, "carol")
    feed(lab, stream, b"1\n2\n3\n")
    heading, *lines = lab.succeeds("stream", "ls", "--interval", "0.05").splitlines()
    assert heading.split() == ["stream", "owner", "writers", "status", "frames", "rate", "about"]
    (line,) = [item.split() for item in lines if item.startswith(f"{stream} ")]
    assert line == [stream, "alice", "carol", "live", "3", "0.0/s", "numbers"]


def test_a_rate_is_the_difference_between_two_counts_of_the_gateway(lab: Lab, stream: str) -> None:
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
    lab.succeeds("send", "here", "--as", "carol")
    assert lab.succeeds("stream", "grant", stream, "carol", "--reason", "helps") == f"{stream}: writers alice, carol"
    assert lab.succeeds("stream", "revoke", stream, "carol") == f"{stream}: writers alice"
    assert lab.succeeds("stream", "transfer", stream, "carol") == f"{stream} owner carol: writers carol"
    refused = lab.mew("stream", "grant", stream, "alice")
    assert (refused.code, "(unauthorized)" in refused.err) == (4, True)
    answer = lab.mew("stream", "grant", stream, "alice", "--as", "carol", "--json").json
    assert (answer["status"], answer["authorized_writers"]) == ("granted", ["carol", "alice"])
    result = [item for item in lab.received() if item.get("kind") == "stream/write-granted"]
    assert result[-2]["payload"]["reason"] == "helps"


@pytest.mark.parametrize(("options", "kind"), [((), "stream/close"), (("--as-complete",), "stream/complete")])
def test_a_stream_is_ended(lab: Lab, stream: str, options: tuple[str, ...], kind: str) -> None:
    assert lab.succeeds("stream", "close", stream, *options, "--reason", "done") == f"{stream}: ended"
    ended = lab.sent()[-1]
    assert (ended["kind"], ended["payload"]["stream_id"], ended["payload"]["reason"]) == (kind, stream, "done")


def test_lines_become_stream_data_and_are_read_as_lines(lab: Lab, stream: str) -> None:
    with reading(lab, stream) as reader:
        sent = piped(lab.directory, "stream", "send", stream, "--json", stdin="one\ntwo\r\nümlaut".encode())
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["sent"] == 3
        assert reader.stdout is not None
        lab.succeeds("stream", "close", stream)
        assert reader.stdout.read().decode().splitlines()[-3:] == ["one", "two", "ümlaut"]
        assert reader.wait(SECONDS) == 0


def test_bytes_are_read_unchanged(lab: Lab, stream: str) -> None:
    values = Random(1).randbytes(5000) + b"\n"
    with reading(lab, stream, "--raw") as reader:
        assert reader.stdout is not None
        feed(lab, stream, values, "binary")
        lab.succeeds("stream", "close", stream)
        assert reader.stdout.read().endswith(values)
        assert reader.wait(SECONDS) == 0


def test_a_closed_output_pipe_ends_the_command_even_without_new_data(lab: Lab, stream: str) -> None:
    with reading(lab, stream) as reader:
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.wait(SECONDS) == 0


def test_json_output_has_sender_number_and_content(lab: Lab, stream: str) -> None:
    with reading(lab, stream, "--json") as reader:
        feed(lab, stream, b'{"x":1.0}\n', "json_lines")
        lab.succeeds("stream", "close", stream)
        assert reader.stdout is not None
        *_, line = reader.stdout.read().splitlines()
    result = json.loads(line)
    assert (result["stream_id"], result["from"], result["content"]) == (stream, "alice", {"x": 1})
    assert line.endswith(b'"content":{"x":1.0}}')


def test_raw_frames_of_a_socket_are_read_too(lab: Lab) -> None:
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


def test_sequence_numbers_continue_after_an_earlier_command(lab: Lab, stream: str) -> None:
    assert feed(lab, stream, b"a\nb\n") == {"stream_id": stream, "sent": 2, "last_sequence": 1}
    assert feed(lab, stream, b"c\n") == {"stream_id": stream, "sent": 1, "last_sequence": 2}


def test_a_stream_can_end_with_its_input(lab: Lab, stream: str) -> None:
    assert piped(lab.directory, "stream", "send", stream, "--complete", stdin=b"last\n").returncode == 0
    assert lab.sent()[-1]["kind"] == "stream/complete"


def test_a_participant_that_may_not_write_is_refused(lab: Lab, stream: str) -> None:
    sent = piped(lab.directory, "stream", "send", stream, "--as", "bob", stdin=b"mine\n")
    assert (sent.returncode, sent.stdout) == (4, b"")
    assert sent.stderr.endswith(b"(unauthorized_stream_write)\n")


def test_a_stream_that_does_not_exist_or_excludes_observers_is_reported(lab: Lab) -> None:
    missing = lab.mew("stream", "tail", "stream-99999")
    assert (missing.code, "no stream 'stream-99999'" in missing.err) == (4, True)
    targeted = lab.succeeds("stream", "open", "--target", "watcher")
    ran = lab.mew("stream", "tail", targeted)
    assert (ran.code, ran.err) == (4, f"mew: {targeted} is sent only to watcher: an observer does not receive it\n")
    assert lab.mew("stream", "tail", targeted, "--gateway", "ws://127.0.0.1:1").code == 3


@pytest.mark.parametrize("verb", [("tail", "stream-1"), ("ls",)])
def test_reading_with_the_token_of_a_participant_is_refused_because_it_would_take_over(
    lab: Lab, verb: tuple[str, ...], tmp_path: Path
) -> None:
    values = environment(MEW_GATEWAY=lab.url, MEW_TOKEN=lab.token("bob"))
    ran = subprocess.run(
        command("stream", *verb), cwd=tmp_path, env=values, timeout=SECONDS, check=False, capture_output=True
    )
    assert (ran.returncode, b"the token belongs to participant bob, whose connection" in ran.stderr) == (2, True)


# How the input is divided


def pieces_of(input_bytes: bytes, **options: Any) -> list[Any]:
    reader, writer = os.pipe()
    _pour(writer, input_bytes)
    with os.fdopen(reader, "rb") as source:
        return list(read_pieces(source, ChunkOptions(**options), lambda: None))


def test_lines_and_chunks_and_prefixed_pieces() -> None:
    assert pieces_of(b"a\n\nb\r\nc") == ["a", "", "b", "c"]
    assert pieces_of(b"") == []
    assert pieces_of(b"abcde", binary=True, chunk=2) == [packed(b"ab"), packed(b"cd"), packed(b"e")]
    prefixed = b"".join(struct.pack(">I", len(item)) + item for item in (b"", b"xyz"))
    assert pieces_of(prefixed, length_prefixed=True) == [packed(b""), packed(b"xyz")]


def test_without_input_a_callback_is_called_regularly() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source:
        pieces = read_pieces(source, ChunkOptions(), lambda: _pour(writer, b"at last\n"), idle_seconds=0.01)
        assert list(pieces) == ["at last"]


def test_a_writer_can_renew_its_presence(lab: Lab, stream: str) -> None:
    client, name = client_of(lab)
    with client:
        feeding = Feed(client, name, stream, None)
        feeding.send("a")
        feeding.stay()
        feeding.send("b")
    assert feeding.count == 2


@pytest.mark.parametrize(
    ("input_bytes", "options", "problem"),
    [
        (b"ok\n\xff\n", {}, "line 2 is not UTF-8"),
        (b"1\n{\n", {"json_lines": True}, "line 2 is not JSON"),
        (b"\x00\x00\x00\x05ab", {"length_prefixed": True}, "ended in the middle of a piece"),
        (b"\xff\xff\xff\xff", {"length_prefixed": True}, "a piece has 4294967295 bytes"),
        (b"x", {"binary": True, "chunk": 0}, "--chunk"),
        (b"x", {"binary": True, "json_lines": True}, "give only one of"),
    ],
)
def test_invalid_input_is_a_usage_error(input_bytes: bytes, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        pieces_of(input_bytes, **options)


def test_packed_bytes_are_distinguished_from_other_contents() -> None:
    assert unpacked(json.dumps(packed(b"\x00\xff")).encode()) == b"\x00\xff"
    for other in ('"text"', "5", "{}", '{"encoding":"base64"}', '{"encoding":"text","data":"x"}', '{"data":"eA=="}'):
        assert unpacked(other.encode()) is None


class Answering:
    """A client that returns the given answers, and stores the posted envelopes."""

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
    client: Any = Answering(Unreachable("gone"), out_of_order(0), None)
    feeding = Feed(client, "alice", "s", None)
    feeding.send("a")
    feeding.send("b")
    assert client.posted == [(0, "a"), (0, "a"), (1, "b")]
    assert feeding.sent() == {"stream_id": "s", "sent": 2, "last_sequence": 1}


def test_a_piece_that_never_arrived_is_sent_again_and_a_rate_limited_one_after_a_delay() -> None:
    client: Any = Answering(out_of_order(6), Unreachable("gone"), None, ApiError("rate_limited", "slow", {}), None)
    feeding = Feed(client, "alice", "s", None)
    feeding.send("a")
    feeding.send("b")
    assert client.posted == [(0, "a"), (7, "a"), (7, "a"), (8, "b"), (8, "b")]


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    client: Any = Answering(Unreachable("gone"), Unreachable("gone"))
    with pytest.raises(Unreachable):
        Feed(client, "alice", "s", None).send("a")
