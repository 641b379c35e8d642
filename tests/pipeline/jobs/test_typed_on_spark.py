"""Formats with a table of their own, and those without: Spark finds in either what DuckDB and Arrow find."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from mew.pipeline import open_lake
from mew.pipeline.jobs.running import Batches
from mew.pipeline.lake import Lake
from mew.pipeline.lookup.output import plain
from mew.testing import MemorySpace
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.jobs.test_nasty import CONFIGURATION, NAMES, announce, data, formatted
from tests.pipeline.jobs.test_typed import answers, ask, tables
from tests.pipeline.sessions import ENGINE
from tools.journal_generator.forged_files import write_forged_journal


def test_spark_and_arrow_find_the_same_with_and_without_a_table(
    journal: Path, plainly: Path, tmp_path: Path, spark: SparkSession
) -> None:
    assert Batches(journal, Lake(tmp_path / "lake"), ENGINE, typed=["binary-vector3"]).next() is not None
    (name,) = tables(tmp_path / "lake")
    columns, _, expected = ask(plainly, f"select * from {name}")
    assert len(expected) > 100
    for path in (tmp_path / "lake", plainly):
        lake = open_lake(path, session=spark)
        for found in (lake[name].toArrow(), lake.arrow(name)):
            assert tuple(found.column_names) == columns
            assert rows_of(found) == expected


def rows_of(found: pa.Table) -> list[str]:
    """As `ask` has them."""
    return sorted(json.dumps([plain(each) for each in row.values()]) for row in found.to_pylist())


def nasty_records() -> list[Any]:
    """Numbers that no column holds, JSON in odd shapes, names of all sorts, orders and ids that differ."""
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    number: Any = {"type": "number"}
    decimal = {"type": "number", "format": "decimal"}
    both = formatted("price", amount=decimal, rate=number, count={"type": "integer"}, rest={}, many={"items": number})
    announce(alice, "prices", both)
    turned = {**both, "id": "same price", "schema": {"properties": {}, "type": "object"}}
    turned["schema"]["properties"] = dict(reversed(both["schema"]["properties"].items()))
    announce(alice, "turned", turned)
    announce(alice, "names", formatted("names", **{name: {"type": ["integer", "null"]} for name in NAMES}))
    announce(alice, "words", {"id": "words", "mime_type": "text/plain"})
    announce(alice, "sly", {"id": "sly", "mime_type": "application/json", "schema": {"mime_type": "text/plain"}})
    many = {f"property_{index}": {"type": "number", "description": "d" * 100} for index in range(410)}
    large = formatted("large", **many)
    assert 60_000 < len(json.dumps(large["schema"], separators=(",", ":"))) < 64 * 2**10
    announce(alice, "large", large)
    alice.frame("large", json.dumps(dict.fromkeys(many, 1.5)))
    alice.send(kind="stream/request", payload={"description": "v0.4", "content_type": "application/json"})
    texts = (
        '{"amount": 0.10, "rate": 0.1000000000000000055511151231257827, "count": 9223372036854775808, "rest": {"b":1}}',
        '{"amount":1e400,"rate":12345678901234567890123,"count":1.0,"rest":[1, 2.50 ,{"a" : null}],"many":[1,2.5,1e3]}',
        '{"rest":"text","amount":12345678901234567890.12345678901234567890,"many":[]}',
        '{"rest":null}',
        "{}",
    )
    for sequence, text in enumerate(texts):
        for stream_id in ("prices", "turned", "sly", "words", "stream-1"):
            alice.frame(stream_id, text)
        alice.send_bytes(
            b'{"kind":"stream/data","payload":{"stream_id":"prices","sequence":%d,"content":%s}}'
            % (sequence, text.encode())
        )
        alice.frame("names", json.dumps(dict.fromkeys(NAMES, sequence)))
        data(alice, "words", sequence, text)
    lab.advance(1)
    return list(lab.records)


def test_whatever_is_in_the_frames_a_table_and_a_view_say_the_same(tmp_path: Path, spark: SparkSession) -> None:
    write_forged_journal(tmp_path / "journal", "lab", nasty_records(), most=40)
    wanted = ("price", "names", "words", "sly", "large", "application_json")
    lakes = {}
    for way, most, named in (("views", None, ()), ("tables", None, wanted), ("sliced", 7, wanted)):
        lakes[way] = tmp_path / way
        run_all(tmp_path / "journal", lakes[way], most, typed=named)
    expected = answers(lakes["views"])
    assert len(expected) == 7
    assert len(tables(lakes["tables"])) == len(tables(lakes["sliced"])) == 6, "one of them has two names"
    assert answers(lakes["tables"]) == expected
    assert answers(lakes["sliced"]) == expected
    price = next(name for name in expected if name.startswith("frames_price"))
    notes = ask(lakes["tables"], f"select v_amount, notes from {price} where v_amount like '0.1%' limit 1")[2]
    assert notes == [
        json.dumps(["0.10", '{"v_count":"9223372036854775808","v_rate":"0.1000000000000000055511151231257827"}'])
    ]
    for lake in lakes.values():
        found = open_lake(lake, session=spark)[price].toArrow().to_pylist()
        assert (
            sorted(json.dumps([plain(each) for each in row.values()]) for row in found) == ask(lake, f"from {price}")[2]
        )
