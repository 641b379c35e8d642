"""Entries of the journal of every kind, for tests that hold for any of them."""

from typing import Any

from hypothesis import strategies as st

from mew.journal.block_format import BLOCK_EVENTS, FrameBatch, JournalEntry
from mew.protocol.records import Record

texts = st.none() | st.text(max_size=20)
numbers = st.none() | st.integers(0, 2**53 - 1)


def frames_of(participant: str, stream_id: str, time: int, first: int, payloads: list[bytes]) -> FrameBatch:
    """Frames that have their headers yet to get."""
    return FrameBatch(0, time, participant, stream_id, first, len(f"#{stream_id}#".encode()), payloads)


frames = st.builds(
    frames_of,
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
    event=st.sampled_from(BLOCK_EVENTS),
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


def placed(entries: list[Any], first: int) -> list[JournalEntry]:
    """The same entries at positions that follow each other; each frame gets its header."""
    placed_entries: list[JournalEntry] = []
    for entry in entries:
        changes = {name: getattr(entry, name) for name in entry.__struct_fields__} | {"position": first}
        if isinstance(entry, FrameBatch):
            changes["messages"] = [f"#{entry.stream_id}#".encode() + payload for payload in entry.messages]
        placed_entries.append(type(entry)(**changes))
        first += len(entry.messages) if isinstance(entry, FrameBatch) else 1
    return placed_entries


unplaced = st.lists(frames | singles, min_size=1, max_size=10)
firsts = st.integers(0, 2**62)
entry_lists = st.builds(placed, unplaced, firsts)
"""At positions that follow each other."""
