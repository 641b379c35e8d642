"""Records as Arrow columns: what a block says, and nothing else."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mew.journal.blocks import EVENTS, Entry, Frames, decode, encode, read_head
from mew.journal.tables import SCHEMA, from_arrow, to_arrow, to_batches
from mew.protocol.records import Record

texts = st.none() | st.text(max_size=20)
numbers = st.none() | st.integers(0, 2**53 - 1)
frames = st.builds(
    lambda participant, stream_id, time, first, payloads: Frames(
        0, time, participant, stream_id, first, len(f"#{stream_id}#".encode()), payloads
    ),
    st.text(max_size=10),
    st.text(max_size=10),
    st.integers(0, 2**60),
    st.integers(1, 2**40),
    st.lists(st.binary(max_size=40), min_size=1, max_size=20),
)
singles = st.builds(
    Record,
    position=st.just(0),
    time=st.integers(0, 2**60),
    event=st.sampled_from(EVENTS),
    participant=st.text(max_size=10),
    kind=texts,
    envelope_id=texts,
    stream_id=texts,
    frame_number=numbers,
    sequence=numbers,
    reason=texts,
    size=st.integers(0, 2**40),
    payload=st.binary(max_size=60),
    capability=texts,
)


def placed(entries: list[Any], first: int) -> list[Entry]:
    """The same entries at positions that follow each other; each frame gets its header."""
    found: list[Entry] = []
    for entry in entries:
        changes = {name: getattr(entry, name) for name in entry.__struct_fields__} | {"position": first}
        if isinstance(entry, Frames):
            changes["messages"] = [f"#{entry.stream_id}#".encode() + payload for payload in entry.messages]
        found.append(type(entry)(**changes))
        first += len(entry.messages) if isinstance(entry, Frames) else 1
    return found


lists = st.lists(frames | singles, min_size=1, max_size=10)
firsts = st.integers(0, 2**62)
written = st.builds(placed, lists, firsts).map(encode)


@given(written)
@settings(max_examples=300, deadline=None)
def test_the_columns_of_a_block_say_what_its_records_say(block: bytes) -> None:
    batch = to_arrow(block)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert list(from_arrow(batch)) == list(decode(block))


@given(st.lists(lists, min_size=1, max_size=4), firsts, st.integers(1, 1000))
@settings(max_examples=200, deadline=None)
def test_blocks_become_as_many_batches_as_their_bytes_need(many: list[list[Any]], first: int, most: int) -> None:
    found = []
    for entries in many:
        found.append(encode(placed(entries, first)))
        first = read_head(found[-1]).last + 1
    batches = list(to_batches(b"".join(found), most))
    records = [record for block in found for record in decode(block)]
    assert list(from_arrow(pa.Table.from_batches(batches))) == records
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows == 1 or sum(map(len, batch["payload"].to_pylist())) <= most


def test_a_record_has_the_columns_of_the_schema() -> None:
    assert SCHEMA.names == list(Record.__struct_fields__)


@pytest.mark.parametrize("header", [0, 5, 11])
def test_a_message_shorter_than_its_header_has_no_payload(header: int) -> None:
    block = encode([Frames(0, 0, "bob", "s", 1, header, [b"#s#", b"", b"#s#abcdefghijkl"])])
    assert list(from_arrow(to_arrow(block))) == list(decode(block))


def test_a_block_of_ordinary_size_is_one_batch() -> None:
    block = encode([Frames(n * 64, n, f"w-{n}", "s", 1, 3, [b"#s#" + bytes(150)] * 64) for n in range(100)])
    assert [batch.num_rows for batch in to_batches(block)] == [6400]
