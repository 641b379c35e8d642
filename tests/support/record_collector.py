"""A recorder for tests: it collects what a hub records."""

from mew.gateway.hub import NullRecorder
from mew.journal.block_format import FrameBatch, decode_block, encode_block
from mew.protocol import Record


class Collected(NullRecorder):
    """Collects everything in a list, each frame as a record."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def add(self, record: Record) -> None:
        self.records.append(record)

    def add_frames(self, frames: FrameBatch) -> None:
        self.records += decode_block(encode_block([frames]))
