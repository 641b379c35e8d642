"""Who may see a record, if the record alone does not show it."""

from pathlib import Path

import msgspec
import pytest

from mew.gateway.journal_access import JournalAccess, StreamAudiences
from mew.journal.block_format import encode_block
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter
from mew.protocol import GATEWAY, Identity, Record, SpaceCore, Start, records
from mew.protocol.state import snapshot
from mew.protocol.timestamps import SECOND
from mew.testing import MemoryTokens, settings

NOON = 1_763_208_000 * SECOND
BOB, CAROL = Identity("lab", "bob"), Identity("lab", "carol")
OBSERVER = Identity("lab", "bob", observer=True)


def opened(position: int, stream_id: str, *target: str) -> Record:
    envelope = msgspec.json.encode({"payload": {"stream_id": stream_id, **({"target": target} if target else {})}})
    return Record(
        position, NOON, "envelope", GATEWAY, "stream/open", "x", stream_id, size=len(envelope), payload=envelope
    )


def framed(position: int, stream_id: str) -> Record:
    return Record(position, NOON, "frame", "alice", stream_id=stream_id, frame_number=1, size=1, payload=b"x")


def checkpoint(position: int, *fields: tuple[str, bytes]) -> Record:
    """The state of a space with streams that were requested with these fields."""
    space = SpaceCore(settings(), MemoryTokens())
    space.handle(Start("e"), NOON)
    state = msgspec.json.decode(snapshot(space.state))
    shape = {"namespace": "", "creator": "", "owner": "", "writers": [], "status": "live", "created": "", "frames": 0}
    state["streams"] = [
        {"stream_id": name, **shape, "direction": 1, "encoding": 1, "sequences": {}, "fields": msgspec.Raw(text)}
        for name, text in fields
    ]
    text = msgspec.json.encode(state)
    return Record(position, NOON, "checkpoint", GATEWAY, size=len(text), payload=text)


def journal(path: Path, *blocks: list[Record], sealed: int = 0) -> Journal:
    """A journal with one log per block, of which the first ones are sealed."""
    folder = JournalFolder(path, "lab")
    folder.log.mkdir(parents=True)
    for number, block in enumerate(blocks):
        log = LogWriter(folder.log_file(block[0].position))
        assert log.append(block) == len(encode_block(block))
        log.close()
        if number < sealed:
            seal_log(folder, log.path)
    return Journal(path, "lab")


def viewers(read: Journal, record: Record) -> list[str]:
    """Which of bob, carol and an observer called bob see a record, if it is the first record that they read."""
    identities = {"bob": BOB, "carol": CAROL, "observer": OBSERVER}
    return [
        name for name, identity in identities.items() if JournalAccess(identity, StreamAudiences(), read).sees(record)
    ]


@pytest.mark.parametrize("sealed", [0, 1, 2, 3])
def test_the_targets_of_a_stream_are_read_from_earlier_records_or_the_checkpoint(tmp_path: Path, sealed: int) -> None:
    read = journal(
        tmp_path,
        [opened(0, "first", "carol"), opened(1, "old")],
        [checkpoint(2, ("for-bob", b'{"target":["bob"]}'), ("for-all", b"{}")), opened(3, "new", "bob", "carol")],
        [framed(4, "for-bob"), checkpoint(5, ("for-bob", b'{"target":["carol"]}')), opened(6, "later", "bob")],
        sealed=sealed,
    )
    assert viewers(read, framed(2, "first")) == ["carol"]
    assert viewers(read, framed(2, "old")) == ["bob", "carol", "observer"]
    for position in (4, 5):
        assert viewers(read, framed(position, "for-bob")) == ["bob"]
    assert viewers(read, framed(4, "for-all")) == ["bob", "carol", "observer"]
    assert viewers(read, framed(4, "new")) == ["bob", "carol"]
    assert viewers(read, framed(4, "later")) == []
    assert viewers(read, framed(7, "for-bob")) == ["carol"]


def test_a_stream_without_its_first_record_is_shown_to_no_one(tmp_path: Path) -> None:
    assert viewers(journal(tmp_path, [framed(0, "unheard-of")]), framed(0, "unheard-of")) == []


def test_the_cache_of_streams_is_bounded_and_filled_again(tmp_path: Path) -> None:
    streams = [opened(n, f"s{n}", "bob") for n in range(10)]
    read = journal(tmp_path, streams)
    targets = StreamAudiences(max_streams=3)
    for record in streams:
        targets.observe(record)
    for n in range(10):
        assert targets.of(f"s{n}", read, 10) == frozenset({"bob"})


@pytest.mark.parametrize(
    ("event", "reason", "seen_by"),
    [
        (records.WELCOMED, None, ["bob"]),
        (records.WELCOMED, "observer", []),
        (records.CONSUMED, None, ["bob"]),
        (records.REJECTED, "paused", ["bob"]),
        (records.FRAME_REJECTED, "paused", ["bob"]),
        (records.GAP, "disconnected", ["bob"]),
        (records.JOINED, "takeover", ["bob"]),
        (records.JOINED, None, ["bob", "carol", "observer"]),
        (records.LEFT, "kicked", ["bob", "carol", "observer"]),
        (records.START, None, ["bob", "carol", "observer"]),
        (records.CHECKPOINT, None, []),
        ("something new", None, []),
    ],
)
def test_a_record_for_one_participant_is_not_shown_to_an_observer_of_that_name(
    tmp_path: Path, event: str, reason: str | None, seen_by: list[str]
) -> None:
    record = Record(0, NOON, event, "bob", reason=reason, payload=b"{}")
    assert viewers(Journal(tmp_path, "lab"), record) == seen_by
