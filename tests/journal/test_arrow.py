"""Records as Arrow columns: what a block says, and nothing else."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.journal.arrow import SCHEMA, from_arrow, to_arrow, to_batches
from mew.journal.block_format import FrameBatch, decode_block, encode_block, read_block_head
from mew.protocol.records import Record
from tests.journal.entry_strategies import entry_lists, firsts, placed, unplaced
from tests.support.hypothesis_settings import examples

written = entry_lists.map(encode_block)


@given(written)
@examples(300)
def test_the_columns_of_a_block_say_what_its_records_say(block: bytes) -> None:
    batch = to_arrow(block)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert list(from_arrow(batch)) == list(decode_block(block))


@given(st.lists(unplaced, min_size=1, max_size=4), firsts, st.integers(1, 1000))
@examples(200)
def test_blocks_become_as_many_batches_as_their_bytes_need(many: list[list[Any]], first: int, most: int) -> None:
    blocks = []
    for entries in many:
        blocks.append(encode_block(placed(entries, first)))
        first = read_block_head(blocks[-1]).last + 1
    batches = list(to_batches(b"".join(blocks), most))
    records = [record for block in blocks for record in decode_block(block)]
    assert list(from_arrow(pa.Table.from_batches(batches))) == records
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows == 1 or sum(map(len, batch["payload"].to_pylist())) <= most


def test_a_record_has_the_columns_of_the_schema() -> None:
    assert SCHEMA.names == list(Record.__struct_fields__)


@pytest.mark.parametrize("header", [0, 5, 11])
def test_a_message_shorter_than_its_header_has_no_payload(header: int) -> None:
    block = encode_block([FrameBatch(0, 0, "bob", "s", 1, header, [b"#s#", b"", b"#s#abcdefghijkl"])])
    assert list(from_arrow(to_arrow(block))) == list(decode_block(block))


def test_a_block_of_ordinary_size_is_one_batch() -> None:
    block = encode_block([FrameBatch(n * 64, n, f"w-{n}", "s", 1, 3, [b"#s#" + bytes(150)] * 64) for n in range(100)])
    assert [batch.num_rows for batch in to_batches(block)] == [6400]
