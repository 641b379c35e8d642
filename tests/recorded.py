"""A journal that a test can look at: what a hub gives to be recorded, as records."""

from mew.gateway.hub import NoJournal
from mew.journal.block_format import Frames, decode, encode
from mew.protocol import Record


class Collected(NoJournal):
    """Keeps everything in a list, each frame as a record."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def add(self, record: Record) -> None:
        self.records.append(record)

    def add_frames(self, frames: Frames) -> None:
        self.records += decode(encode([frames]))
