"""Whatever participants announce and send, no run stops, and every record of it is found again."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.layout import HOUR
from mew.journal.reader import is_data_record
from mew.protocol import Checkpoint
from mew.protocol.records import Record
from mew.testing import Client, MemorySpace
from tests.pipeline.jobs.lakes import contents, dicts, run_all
from tools.journal_generator.forged_files import write_forged_journal

CONFIGURATION: dict[str, Any] = {"participants": {"alice": [{"kind": "*"}], "bob": [{"kind": "*"}]}}
NAMES = (
    *("select", "from", "where", "order", "offset", "table", "null", "space", "position", "time", "raw", "v_raw"),
    *("a b", "a-b", "a.b", "A_B", "a_b", "ä_b", "", " ", "%", "'", '"', "`", ";drop table frames", "\n", "\u0000"),
    *("name", "Name", "NAME", "nAmE", "name_2", "name_1", "🙂", "1", "x" * 300, "x" * 301, "__proto__", "$ref"),
)


def announce(client: Client, stream_id: str, *formats: dict[str, Any]) -> None:
    client.send(kind="stream/announce", payload={"formats": list(formats), "desired_id": stream_id})
    client.send(kind="stream/start", payload={"stream_id": stream_id})


def formatted(format_id: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"id": format_id, "mime_type": "application/json", "schema": schema}


def data(client: Client, stream_id: str, sequence: int, content: Any, **more: Any) -> None:
    payload = {"stream_id": stream_id, "sequence": sequence, "content": content, **more}
    client.send(kind="stream/data", payload=payload)


def account(folder: Path, records: list[Record], most: int | None = None) -> Path:
    """Run; every record is in the tables, and what is not right is in quarantine with its bytes."""
    lake = folder / f"lake {most}"
    write_forged_journal(folder / f"journal {most}", "lab", records, most=400)
    run_all(folder / f"journal {most}", lake, most)
    sent = {each.position: each for each in records if is_data_record(each)}
    frames = dicts(lake, "frames")
    assert [row["position"] for row in sorted(frames, key=lambda row: row["position"])] == sorted(sent)
    quarantine = dicts(lake, "quarantine")
    assert {row["position"] for row in quarantine} == {row["position"] for row in frames if row["valid"] is False}
    assert all(row["payload"] == sent[row["position"]].payload for row in quarantine)
    said = [
        each.position
        for each in records
        if each.event in {"envelope", "consumed", "rejected"} and not is_data_record(each)
    ]
    assert sorted(row["position"] for row in dicts(lake, "envelopes")) == said
    wrong = [(row["check"], row["sample"]) for row in dicts(lake, "audit") if row["violations"]]
    assert wrong == []
    return lake


def test_three_hundred_formats(tmp_path: Path) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    for stream in range(10):
        formats = [
            formatted(f"format {number}", **{f"p{stream}_{number}": {"type": "integer"}}) for number in range(30)
        ]
        announce(alice, f"many-{stream}", *formats)
        for number in range(30):
            content: Any = {f"p{stream}_{number}": number if number % 3 else "no number"}
            data(alice, f"many-{stream}", number, content, format_id=f"format {number}")
        alice.frame(f"many-{stream}", json.dumps({"p": 1}))
        lab.advance(1)
    lake = account(tmp_path, lab.records)
    formats = dicts(lake, "formats")
    assert len(formats) == len({row["fingerprint"] for row in formats}) == 300
    assert len(dicts(lake, "quarantine")) == 100
    assert contents(account(tmp_path, lab.records, 97)) == contents(lake)


def test_properties_with_names_that_collide_or_are_words_of_sql(tmp_path: Path) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    announce(alice, "names", formatted("names", **{name: {"type": ["integer", "null"]} for name in NAMES}))
    for number in range(5):
        alice.frame("names", json.dumps(dict.fromkeys(NAMES, number)))
        data(alice, "names", number, dict.fromkeys(NAMES, None))
    alice.frame("names", json.dumps(dict.fromkeys(NAMES, "text")))
    lake = account(tmp_path, lab.records)
    (row,) = dicts(lake, "formats")
    columns = json.loads(row["columns"])
    assert "select" in json.dumps(columns)
    assert [each["reason"] for each in dicts(lake, "quarantine")] == ["schema"]


def test_a_schema_of_sixty_kibibytes(tmp_path: Path) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    properties = {f"property_{number}": {"type": "number", "description": "d" * 100} for number in range(410)}
    large = formatted("large", **properties)
    assert 60_000 < len(json.dumps(large["schema"], separators=(",", ":"))) < 64 * 2**10
    announce(alice, "large", large)
    alice.frame("large", json.dumps(dict.fromkeys(properties, 1.5)))
    alice.frame("large", json.dumps({"property_7": []}))
    lake = account(tmp_path, lab.records)
    assert [row["valid"] for row in sorted(dicts(lake, "frames"), key=lambda row: row["position"])] == [True, False]


def test_numbers_of_any_length_and_contents_of_any_kind(tmp_path: Path) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    numbers = formatted("numbers", n={"type": "integer"}, x={"type": "number"})
    announce(alice, "numbers", numbers)
    announce(alice, "bytes", {"id": "bytes", "mime_type": "application/octet-stream"})
    announce(alice, "words", {"id": "words", "mime_type": "text/plain"})
    alice.send(kind="stream/request", payload={"description": "anything"})
    huge = [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400]
    for number, value in enumerate(huge):
        alice.frame("numbers", f'{{"n":{value},"x":{value}.5}}')
        alice.send_bytes(
            b'{"kind":"stream/data","payload":{"stream_id":"numbers","sequence":%d,"content":{"n":%d}}}'
            % (number, value)
        )
    nasty: list[bytes] = [
        *(b"", b" ", b"\x00", b"\xff\xfe", b"{", b"null", b"NaN", b'{"x":1e999}', b'{"n":1,"n":2}', b"[" * 3000),
        *(
            b'{"n":' + b"9" * 5000 + b"}",
            b'{"n":"\\ud800"}',
            b'"\xed\xa0\x80"',
            b"\xef\xbb\xbf{}",
            b'{"n":1.0}',
            b"1" * 9,
        ),
    ]
    for stream_id in ("numbers", "bytes", "words", "stream-1"):
        for content in nasty:
            alice.send_bytes(b"#" + stream_id.encode() + b"#" + content, text=False)
    lake = account(tmp_path, lab.records)
    assert len(dicts(lake, "frames")) == 2 * len(huge) + 4 * len(nasty)
    kept = {row["position"]: row for row in dicts(lake, "frames")}
    first = next(each for each in lab.records if each.event == "frame")
    for number, value in enumerate(huge):
        at = [each for each in lab.records if each.event == "frame"][number].position
        assert str(value) in (kept[at]["value"] or ""), value
    assert kept[first.position]["valid"] is True
    assert contents(account(tmp_path, lab.records, 23)) == contents(lake)


@pytest.mark.parametrize("back", [600, 5_400, 90_000])
def test_a_clock_that_steps_back_between_two_starts(tmp_path: Path, back: int) -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    announce(alice, "ticks", formatted("tick", n={"type": "integer"}))
    for number in range(50):
        alice.frame("ticks", json.dumps({"n": number}))
        lab.advance(1)
    lab.run(Checkpoint())
    before = len(lab.records)
    lab.now -= back * 1_000_000
    lab.restart()
    alice = lab.join("alice")
    for number in range(50):
        alice.frame("ticks", json.dumps({"n": number}))
        lab.advance(1)
    assert [each.time for each in lab.records] == sorted(each.time for each in lab.records)
    lake = account(tmp_path, lab.records)
    assert contents(account(tmp_path, lab.records, 31)) == contents(lake)
    assert len(lab.records) > before


def test_a_journal_whose_times_step_back(tmp_path: Path) -> None:
    """No writer of ours makes one; but a table is made of it nevertheless."""
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    announce(alice, "ticks", formatted("tick", n={"type": "integer"}))
    for number in range(100):
        alice.frame("ticks", json.dumps({"n": number}))
        lab.advance(1)
    half, hour = len(lab.records) // 2, lab.records[0].time // HOUR
    records = [
        each if index < half else msgspec.structs.replace(each, time=each.time - 40_000_000)
        for index, each in enumerate(lab.records)
    ]
    assert {each.time // HOUR for each in records} == {hour}
    lake = account(tmp_path, records)
    assert contents(account(tmp_path, records, 31))["frames"] == contents(lake)["frames"]
