"""Envelopes keep what their sender wrote, to the byte; formats and streams keep what was announced."""

from typing import Any

import msgspec

from mew.pipeline.kernel.formats import fingerprint, slug
from mew.protocol import StreamSettings
from mew.testing import MemorySpace
from tests.pipeline.control.folded import fold_lab, rows, violations

ANYTHING: dict[str, Any] = {"participants": {"ada": [{"kind": "*"}], "ben": None}}


def test_a_payload_is_the_senders_own_text() -> None:
    lab = MemorySpace(**ANYTHING)
    payload = b'{"text":"\\u00e9\xc3\xa9", "n":1.0,"big":123456789012345678901234567890,"a":1,"a":2}'
    head = b'{"id":"x","kind":"chat","to":["ben"],"context":{"b":1,"a":[1.50]},"correlation_id":"y","payload":'
    lab.join("ada").send_bytes(head + payload + b"}")
    row = next(row for row in rows(fold_lab(lab), "envelopes") if row["kind"] == "chat")
    assert row["payload"] == payload.decode()
    assert row["context"] == '{"b":1,"a":[1.50]}'
    assert (row["to"], row["correlation_id"]) == (["ben"], ["y"])
    assert (row["event"], row["accepted"], row["capability"]) == ("envelope", True, '{"kind":"*"}')
    assert row["envelope_id"] == "x"


def test_what_is_not_said_is_null() -> None:
    lab = MemorySpace(**ANYTHING)
    ada = lab.join("ada")
    ada.send({"kind": "game/move", "context": None})
    ada.send_bytes(b"no envelope")
    ada.send(kind="chat", payload={"text": ""})
    move, nonsense, empty = [row for row in rows(fold_lab(lab), "envelopes") if row["participant"] == "ada"]
    for name in ("to", "correlation_id", "context", "payload"):
        assert move[name] is None
        assert nonsense[name] is None
    assert (nonsense["kind"], nonsense["reason"], nonsense["size"]) == (None, "invalid_envelope", 11)
    assert (empty["accepted"], empty["reason"]) == (False, "invalid_envelope")
    kept = msgspec.json.decode(empty["payload"])  # of a refused payload the journal keeps size, digest and beginning
    assert (kept["bytes"], kept["head"]) == (11, '{"text":""}')


def test_a_format_has_its_schemas_own_text_and_its_columns() -> None:
    lab = MemorySpace(**ANYTHING)
    schema = '{"type":"object", "properties":{"X":{"type":"number"},"x":{"type":"integer","maximum":1e30}}}'
    formats = f'[{{"id":"Pose 3D","description":"where","schema":{schema}}},{{"id":"raw","mime_type":"audio/opus"}}]'
    lab.join("ada").send_bytes(f'{{"kind":"stream/announce","payload":{{"formats":{formats}}}}}'.encode())
    folded = fold_lab(lab)
    assert violations(folded) == {}
    pose, raw = rows(folded, "formats")
    described = msgspec.json.decode(formats)
    assert (pose["schema"], pose["description"], pose["mime_type"]) == (schema, "where", None)
    assert (pose["slug"], pose["fingerprint"]) == (slug("Pose 3D"), fingerprint(described[0]))
    columns = msgspec.json.decode(pose["columns"])
    assert [each["property"] for each in columns] == [["X"], ["x"]]
    assert len({each["column"] for each in columns}) == 2
    assert (raw["schema"], raw["columns"], raw["mime_type"]) == (None, None, "audio/opus")
    assert raw["fingerprint"] == fingerprint(described[1])
    stream = rows(folded, "streams")[0]
    assert stream["formats"] == [pose["fingerprint"], raw["fingerprint"]]
    assert (stream["way"], stream["started_position"]) == ("announce", None)
    assert msgspec.json.decode(stream["request"])["formats"] == described


def test_a_v04_stream_tells_the_kernel_what_it_was_asked_for_with() -> None:
    lab = MemorySpace(**ANYTHING)
    ada = lab.join("ada")
    ada.send(kind="stream/request", payload={"content_type": "application/json", "format": "binary-vector3"})
    ada.send(kind="stream/request", payload={"content_type": 7, "validate": True})
    streams = fold_lab(lab).catalogue.streams
    asked, odd = streams["stream-1"], streams["stream-2"]
    assert (asked.content_type, asked.format, asked.validate) == ("application/json", "binary-vector3", False)
    assert (odd.content_type, odd.format, odd.validate) == (None, None, True)


def test_where_a_stream_does_not_say_the_space_decides_whether_data_is_checked() -> None:
    lab = MemorySpace(**ANYTHING, streams=StreamSettings(validate=True))
    ada = lab.join("ada")
    ada.send(kind="stream/request", payload={})
    ada.send(kind="stream/request", payload={"validate": False})
    assert {name: each.validate for name, each in fold_lab(lab).catalogue.streams.items()} == {
        "stream-1": True,
        "stream-2": False,
    }


def test_access_names_who_let_whom_and_the_gateway_where_nobody_did() -> None:
    lab = MemorySpace(participants={"ada": [{"kind": "*"}], "ben": None, "cleo": None})
    ada, ben = lab.join("ada"), lab.join("ben")
    lab.join("cleo")
    ada.send(kind="stream/request", payload={})
    for other in ("ben", "cleo"):
        ada.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": other})
    ada.send(kind="stream/transfer-ownership", payload={"stream_id": "stream-1", "new_owner": "ben"})
    ben.leave()
    lab.advance(61)
    folded = fold_lab(lab)
    assert violations(folded) == {}
    table = rows(folded, "stream_access")
    told = [(row["participant"], row["role"], row["granted_by"], row["why"], row["ended_why"]) for row in table]
    granted, moved = "stream/write-granted", "stream/ownership-transferred"
    assert told == [
        ("ada", "owner", None, "stream/open", moved),
        ("ben", "writer", "ada", granted, moved),
        ("cleo", "writer", "ada", granted, moved),
        ("ben", "owner", "ada", moved, moved),
        ("cleo", "owner", "system:gateway", moved, None),
    ]
    assert [row["open"] for row in table] == [False, False, False, False, True]
