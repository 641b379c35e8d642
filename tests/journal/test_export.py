"""Exports: every record as a line of JSON, and as messages of an MCAP file, read back with the libraries of others."""

import base64
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader
from mcap.records import Channel, Message, Schema

from mew.journal import export_mcap
from mew.journal.export import JournalExportError, RecordFilter, complete_file, record_to_json, write_jsonl
from mew.journal.export_mcap import write_mcap
from mew.journal.reader import Journal
from mew.protocol.records import Record
from mew.protocol.state import snapshot
from mew.protocol.timestamps import rfc3339
from mew.testing import NOON, MemorySpace
from tests.journal.journal_fixture import JournalFixture, varied

MOVE = {"type": "object", "required": ["entity"], "properties": {"entity": {"type": "string"}}}
TURN = {"type": "object", "required": ["degrees"]}


def journal(fixture: JournalFixture) -> Journal:
    return Journal(fixture.folder.root, fixture.folder.space)


def lines(fixture: JournalFixture, record_filter: RecordFilter) -> list[dict[str, Any]]:
    file = io.BytesIO()
    count = write_jsonl(record_filter.select(journal(fixture)), file)
    decoded = [json.loads(line) for line in file.getvalue().splitlines()]
    assert len(decoded) == count
    return decoded


def positions(fixture: JournalFixture, **record_filter: Any) -> list[int]:
    return [line["position"] for line in lines(fixture, RecordFilter(**record_filter))]


# Lines of JSON


def test_a_line_has_every_column_of_its_record(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    for line, record in zip(lines(fixture, RecordFilter()), fixture.records, strict=True):
        payload = base64.b64decode(line["payload_base64"]) if "payload_base64" in line else line["payload"]
        expected = record.payload if "payload_base64" in line else json.loads(record.payload)
        assert payload == expected
        columns = {name: getattr(record, name) for name in Record.__struct_fields__ if name != "payload"}
        columns_of_line = {name: value for name, value in line.items() if not name.startswith("payload")}
        assert columns_of_line == {**columns, "time": rfc3339(record.time)}
        assert ("payload" in line) is (record.event == "envelope")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            b'{"a":1.50,\r\n "b":[123456789012345678901234567890]}',
            b'{"a":1.50,   "b":[123456789012345678901234567890]}',
        ),
        (b'{"a":1,"a":2}', b'{"a":1,"a":2}'),
        (b"", b"null"),
    ],
)
def test_an_envelope_stands_in_its_line_as_it_was_sent(payload: bytes, expected: bytes) -> None:
    line = record_to_json(Record(7, NOON, "envelope", "alice", "chat", "a", size=len(payload), payload=payload))
    assert b'"payload":' + expected in line
    assert b"\n" not in line
    assert json.loads(line)["position"] == 7


@pytest.mark.parametrize("payload", [b"{", b"\xff\xfe", b'{"a":NaN}', b"[" * 5000 + b"]" * 5000])
def test_a_payload_that_is_no_json_is_exported_in_base64(payload: bytes) -> None:
    line = json.loads(record_to_json(Record(7, NOON, "rejected", "alice", size=len(payload), payload=payload)))
    assert base64.b64decode(line["payload_base64"]) == payload
    assert "payload" not in line


def test_positions_times_and_names_say_what_is_wanted(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    everything = [record.position for record in fixture.records]

    def those(condition: Any) -> list[int]:
        return [record.position for record in fixture.records if condition(record)]

    assert positions(fixture) == everything
    assert positions(fixture, first=7, last=40) == everything[7:41]
    middle = fixture.records[33].time
    assert positions(fixture, since=middle) == those(lambda record: record.time >= middle)
    assert positions(fixture, until=middle) == those(lambda record: record.time < middle)
    assert positions(fixture, control=True) == [record.position for record in fixture.control]
    assert positions(fixture, participants=frozenset({"bob"})) == those(lambda record: record.participant == "bob")
    assert positions(fixture, streams=frozenset({"moves"})) == those(lambda record: record.stream_id == "moves")
    assert positions(fixture, streams=frozenset({"none"})) == []
    assert positions(fixture, events=frozenset({"frame"})) == those(lambda record: record.event == "frame")
    both = frozenset({"frame_rejected", "join"})
    assert positions(fixture, events=both, first=20) == those(
        lambda record: record.event in both and record.position >= 20
    )


def test_what_is_only_about_control_opens_no_frames_file(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    for path in fixture.folder.root.rglob("*.frames.parquet"):
        path.unlink()
    assert positions(fixture, events=frozenset({"frame_rejected"})) == list(range(5, fixture.next, 6))
    assert positions(fixture, control=True) == [record.position for record in fixture.control]


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), complete_file(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text(encoding="utf-8") == "before"
        raise KeyboardInterrupt
    assert [record.name for record in tmp_path.iterdir()] == ["out.jsonl"]
    with complete_file(path) as file:
        file.write(b"all")
    assert path.read_text(encoding="utf-8") == "all"
    with (
        pytest.raises(JournalExportError, match="nowhere/out"),
        complete_file(tmp_path / "nowhere/out"),
    ):
        pass


# MCAP


@pytest.fixture
def lab() -> MemorySpace:
    return MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "*"}]})


def kept_of(path: Path, lab: MemorySpace) -> JournalFixture:
    """What a space has recorded, half of it sealed."""
    fixture = JournalFixture(path)
    half = len(lab.records) // 2
    fixture.write(list(lab.records[:half]))
    fixture.seal()
    fixture.write(list(lab.records[half:]))
    return fixture


def exported(fixture: JournalFixture, record_filter: RecordFilter | None = None) -> Any:
    record_filter = record_filter or RecordFilter()
    file = io.BytesIO()
    count = write_mcap(journal(fixture), record_filter, record_filter.candidates(journal(fixture)), file)
    reader = make_reader(io.BytesIO(file.getvalue()), validate_crcs=True)
    assert len(list(reader.iter_messages())) == count
    return reader


def messages(reader: Any, topic: str) -> Iterator[tuple[Schema | None, Channel, Message]]:
    return iter(reader.iter_messages(topics=[topic]))


def play(lab: MemorySpace) -> None:
    alice, bob = lab.join("alice"), lab.join("bob")
    formats = [{"id": "move", "schema": MOVE}]
    alice.send(kind="stream/announce", payload={"intent": "moves", "desired_id": "moves", "formats": formats})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "moves", "participant_id": "bob"})
    for number in range(3):
        lab.advance(1)
        data = {"stream_id": "moves", "sequence": number, "format_id": "move", "content": {"entity": "cat", "x": 1.50}}
        alice.send(kind="stream/data", payload=data)
        bob.frame("moves", '{"entity":"dog"}')
    bob.frame("moves", b"\x00\x01", text=False)
    alice.send(kind="stream/request", payload={"direction": "upload", "content_type": "image/png"})
    alice.frame("stream-1", b"\x89PNG", text=False)
    alice.send(kind="stream/request", payload={"direction": "upload"})
    alice.frame("stream-2", "x=1")
    alice.send(kind="chat", payload={"text": "hello"})
    alice.send(kind="stream/ready", payload={})  # the gateway's word
    bob.leave()


def test_each_stream_and_writer_has_a_channel_with_the_schema_that_was_announced(
    tmp_path: Path, lab: MemorySpace
) -> None:
    play(lab)
    reader = exported(kept_of(tmp_path, lab))
    data = [record for record in lab.records if record.kind == "stream/data"]
    exported_messages = list(messages(reader, "lab/moves/alice"))
    for (schema, channel, message), record in zip(exported_messages, data, strict=True):
        assert schema is not None
        assert (schema.name, schema.encoding, json.loads(schema.data)) == ("move", "jsonschema", MOVE)
        assert channel.message_encoding == "json"
        about = {"space": "lab", "stream_id": "moves", "writer": "alice", "format_id": "move"}
        assert channel.metadata == about
        assert json.loads(message.data) == {"entity": "cat", "x": 1.5}
        assert message.log_time == message.publish_time == record.time * 1000
        assert message.sequence == record.frame_number
    assert len({channel.id for _, channel, _ in exported_messages}) == 1
    assert [message.sequence for _, _, message in exported_messages] == [1, 3, 5]


def test_frames_are_json_with_a_schema_as_long_as_they_are_json(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    exported_messages = list(messages(exported(kept_of(tmp_path, lab)), "lab/moves/bob"))
    assert [
        (message.data, channel.message_encoding, schema and schema.name)
        for schema, channel, message in exported_messages
    ] == [
        *[(b'{"entity":"dog"}', "json", "move")] * 3,
        (b"\x00\x01", "application/octet-stream", None),
    ]
    assert [message.sequence for _, _, message in exported_messages] == [2, 4, 6, 7]


def test_streams_without_a_schema_are_named_by_what_they_hold(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    reader = exported(kept_of(tmp_path, lab))
    for topic, data, encoding in (
        ("lab/stream-1/alice", b"\x89PNG", "image/png"),
        ("lab/stream-2/alice", b"x=1", "application/octet-stream"),
    ):
        ((schema, channel, message),) = messages(reader, topic)
        assert (schema, channel.message_encoding, message.data) == (None, encoding, data)


def test_envelopes_are_on_the_control_channel_and_other_records_are_events(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    reader = exported(kept_of(tmp_path, lab))
    control = [(channel.message_encoding, message) for _, channel, message in messages(reader, "lab/control")]
    assert {encoding for encoding, _ in control} == {"json"}
    expected = [
        record
        for record in lab.records
        if record.frame_number is None and record.event in ("envelope", "consumed", "welcome")
    ]
    assert [message.data for _, message in control] == [record.payload for record in expected]
    assert "chat" in [json.loads(message.data)["kind"] for _, message in control]
    events = Counter(json.loads(message.data)["event"] for _, _, message in messages(reader, "lab/events"))
    assert events == {"start": 1, "join": 2, "rejected": 1, "leave": 1}


def test_a_file_says_whose_records_it_has_and_which(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    fixture = kept_of(tmp_path, lab)
    last = len(lab.records) - 1
    (metadata,) = exported(fixture).iter_metadata()
    everything = {"space": "lab", "records": str(last + 1), "first": "0", "last": str(last)}
    assert (metadata.name, metadata.metadata) == ("mew.journal", everything)
    (metadata,) = exported(fixture, RecordFilter(first=3, last=5)).iter_metadata()
    assert metadata.metadata == {"space": "lab", "records": "3", "first": "3", "last": "5"}
    (metadata,) = exported(fixture, RecordFilter(streams=frozenset({"none"}))).iter_metadata()
    assert metadata.metadata == {"space": "lab", "records": "0"}


def test_formats_are_known_however_late_an_export_begins(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    first = next(record.position for record in lab.records if record.frame_number == 2)
    record_filter = RecordFilter(first=first, streams=frozenset({"moves"}))
    ((schema, *_), *rest) = messages(exported(kept_of(tmp_path, lab), record_filter), "lab/moves/alice")
    assert schema is not None and schema.name == "move"
    assert len(rest) == 1


def test_behind_retentions_cut_formats_are_known_by_the_checkpoint(tmp_path: Path, lab: MemorySpace) -> None:
    play(lab)
    state = lab.folded()
    fixture = JournalFixture(tmp_path)
    fixture.next = state.position + 1
    payload = snapshot(state)
    fixture.write(
        [Record(fixture.next, fixture.time, "checkpoint", "system:gateway", size=len(payload), payload=payload)]
    )
    frame = Record(fixture.next, fixture.time, "frame", "bob", stream_id="moves", frame_number=8, size=2, payload=b"{}")
    fixture.write([frame])
    ((schema, *_),) = messages(exported(fixture), "lab/moves/bob")
    assert schema is not None and json.loads(schema.data) == MOVE


def test_where_a_writer_uses_several_formats_each_has_its_channel(tmp_path: Path, lab: MemorySpace) -> None:
    alice = lab.join("alice")
    formats = [
        {"id": "move", "schema": MOVE},
        {"id": "turn", "schema": TURN},
        {"id": "note", "mime_type": "text/plain"},
    ]
    alice.send(kind="stream/announce", payload={"intent": "x", "desired_id": "moves", "formats": formats})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    for number, (format_id, content) in enumerate(
        [("move", {"entity": "cat"}), ("turn", {"degrees": 5}), ("move", {"entity": "dog"}), ("note", "hi")]
    ):
        data = {"stream_id": "moves", "sequence": number, "format_id": format_id, "content": content}
        alice.send(kind="stream/data", payload=data)
    exported_messages = list(messages(exported(kept_of(tmp_path, lab)), "lab/moves/alice"))
    assert [(schema and schema.name, channel.metadata["format_id"]) for schema, channel, _ in exported_messages] == [
        ("move", "move"),
        ("turn", "turn"),
        ("move", "move"),
        (None, "note"),
    ]
    assert {channel.message_encoding for _, channel, _ in exported_messages} == {"json"}
    assert len({channel.id for _, channel, _ in exported_messages}) == 3


def test_a_stream_that_is_opened_again_with_another_format_has_another_schema_from_there_on(
    tmp_path: Path, lab: MemorySpace
) -> None:
    fixture = JournalFixture(tmp_path)

    def opened(schema: Any) -> None:
        payload = {"payload": {"stream_id": "moves", "formats": [{"id": "move", "schema": schema}]}}
        text = json.dumps(payload).encode()
        fixture.write(
            [
                Record(
                    fixture.next,
                    fixture.time,
                    "envelope",
                    "system:gateway",
                    "stream/ready",
                    None,
                    "moves",
                    payload=text,
                )
            ]
        )
        fixture.write(
            [Record(fixture.next, fixture.time, "frame", "bob", stream_id="moves", frame_number=1, payload=b"{}")]
        )

    for schema in (MOVE, TURN, MOVE):
        opened(schema)
    exported_messages = [
        json.loads(schema.data) for schema, *_ in messages(exported(fixture), "lab/moves/bob") if schema is not None
    ]
    assert exported_messages == [MOVE, TURN, MOVE]


@pytest.mark.parametrize(
    ("request_fields", "encoding"),
    [
        ({"content_type": "application/json; charset=utf-8"}, "json"),
        ({"content_type": "application/geo+json"}, "json"),
        ({"content_type": "Application/CBOR"}, "cbor"),
        ({"format": "application/x-msgpack"}, "msgpack"),
        ({"content_type": 7}, "application/octet-stream"),
    ],
)
def test_what_a_stream_says_of_its_frames_is_put_in_mcaps_words(
    tmp_path: Path, lab: MemorySpace, request_fields: Any, encoding: str
) -> None:
    alice = lab.join("alice")
    alice.send(kind="stream/request", payload={"direction": "upload", **request_fields})
    alice.frame("stream-1", '{"x":1}')
    ((_, channel, message),) = messages(exported(kept_of(tmp_path, lab)), "lab/stream-1/alice")
    assert (channel.message_encoding, message.data) == (encoding, b'{"x":1}')


def test_more_channels_than_a_file_can_have_are_refused(
    tmp_path: Path, lab: MemorySpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_mcap, "MOST_CHANNELS", 3)
    play(lab)
    with pytest.raises(JournalExportError, match=r"\b3\b"):
        exported(kept_of(tmp_path, lab))
