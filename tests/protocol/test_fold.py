"""The effect of each record on a state. A change of these effects needs a new fold version."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from mew.protocol import FOLD_VERSION, Record, SnapshotVersionError, SpaceState, fold, records, snapshot
from mew.protocol.fold import advance_frame_number
from mew.testing import MemorySpace
from tests.protocol.states import plain, rich_state

JOURNAL = Path(__file__).parent / "golden_journal.jsonl"
"""A small history with every kind of record. Never change it; add another file instead."""
PROPOSALS = JOURNAL.with_name("golden_proposals.jsonl")
"""A history with every end of a proposal and of a grant."""
DIGESTS = {
    1: "76a5a185d75e8bf8d3b1bf55a55291522f323354ddd04de1f54f1de299a576c9",
    2: "c0863d07c1f4ff92329d619352f39124e5dce42dfe3347f2d80d703f702648a0",
}
DIGESTS_OF_PROPOSALS = {2: "e6f5e7292d7cae736b2fdffa9b1d1b862d47c1a911e4e1433395594c526d6404"}
"""Digest of the state of the golden journal, by fold version. Add a line for a new version, and keep the old ones."""
CHECKPOINT_1 = JOURNAL.with_name("golden_checkpoint_1.json")
"""The checkpoint that fold version 1 created from it. Never change it."""
ALL = [{"kind": "*"}]


def golden_journal(file: Path = JOURNAL) -> list[Record]:
    lines = (msgspec.json.decode(line) for line in file.read_bytes().splitlines())
    return [Record(**{**line, "payload": line["payload"].encode()}) for line in lines]


@pytest.mark.parametrize(("file", "digests"), [(JOURNAL, DIGESTS), (PROPOSALS, DIGESTS_OF_PROPOSALS)])
def test_a_changed_fold_has_a_new_version(file: Path, digests: dict[int, str]) -> None:
    state, digest = SpaceState(space_id="golden"), hashlib.sha256()
    for record in golden_journal(file):
        state = fold(state, record)
        digest.update(snapshot(state))
    assert digest.hexdigest() == digests[FOLD_VERSION], "the fold has changed: raise FOLD_VERSION"


def test_the_golden_journals_have_every_record_that_changes_a_state() -> None:
    journal = [*golden_journal(), *golden_journal(PROPOSALS)]
    relayed = {
        (record.participant == "system:gateway", record.kind)
        for record in journal
        if record.event in {"envelope", "consumed"}
    }
    changing = {
        True: "stream/open stream/ready stream/close stream/write-granted stream/write-revoked "
        "stream/ownership-transferred capability/revoke mcp/proposal-closed",
        False: "mcp/proposal mcp/request mcp/response mcp/reject mcp/withdraw mcp/approve "
        "stream/start stream/data stream/close stream/complete stream/error capability/grant capability/revoke "
        "space/invite space/kick participant/pause participant/resume participant/shutdown",
    }
    assert {(by_gateway, kind) for by_gateway, listed in changing.items() for kind in listed.split()} <= relayed
    assert {"start", "join", "leave", "frame"} <= {record.event for record in journal}


@pytest.mark.parametrize(
    "event",
    [
        records.REJECTED,
        records.FRAME_REJECTED,
        records.GAP,
        records.WELCOMED,
        records.ADMIN,
        "an event of a later version",
    ],
)
def test_a_record_without_an_effect_changes_only_position_and_time(event: str) -> None:
    state = rich_state()
    before = plain(state)
    after = plain(
        fold(state, Record(900, before["time"] + 5, event, "alice", kind="stream/close", stream_id="stream-1"))
    )
    assert after == {**before, "position": 900, "time": before["time"] + 5}


def test_a_checkpoint_replaces_the_previous_state() -> None:
    state = rich_state()
    checkpoint = Record(state.position, state.time, records.CHECKPOINT, "system:gateway", payload=snapshot(state))
    elsewhere = SpaceState(space_id="lab", stream_count=99, kicked={"zoe": None})
    assert plain(fold(elsewhere, checkpoint)) == plain(state)


def test_the_position_and_time_of_a_checkpoint_apply() -> None:
    state = rich_state()
    later = Record(state.position + 1, state.time + 7, records.CHECKPOINT, "system:gateway", payload=snapshot(state))
    after = fold(SpaceState(space_id="lab"), later)
    assert (after.position, after.time) == (state.position + 1, state.time + 7)


def checkpoint_of_version_1() -> Record:
    """The checkpoint that a gateway of that version created from the golden journal."""
    text = CHECKPOINT_1.read_bytes().strip()
    return Record(77, 2**52, records.CHECKPOINT, "system:gateway", payload=text)


def test_a_checkpoint_of_the_first_fold_keeps_the_fields_that_it_omits() -> None:
    folded = SpaceState(space_id="golden")
    for record in golden_journal():
        folded = fold(folded, record)
    expected = plain(folded) | {"position": 77, "time": 2**52}
    assert plain(fold(folded, checkpoint_of_version_1())) == expected
    restored = fold(SpaceState(space_id="golden"), checkpoint_of_version_1())
    assert plain(restored) == {**expected, "configuration": ""}


def other_fold() -> Record:
    text = snapshot(rich_state()).replace(b'"fold_version":%d' % FOLD_VERSION, b'"fold_version":0')
    return Record(900, 2**52, records.CHECKPOINT, "system:gateway", payload=text)


def test_a_checkpoint_of_another_fold_is_ignored_within_a_history() -> None:
    state = SpaceState(space_id="lab", position=0, stream_count=99)
    after = fold(state, other_fold())
    assert after is state
    assert (after.position, after.time, after.stream_count, after.streams) == (900, 2**52, 99, {})


def test_a_history_cannot_begin_with_a_checkpoint_of_another_fold() -> None:
    with pytest.raises(SnapshotVersionError):
        fold(SpaceState(space_id="lab"), other_fold())


def test_only_the_gateway_opens_a_stream() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    lab.join("alice").send(kind="stream/open", payload={"stream_id": "stream-1", "owner": "alice", "created": "x"})
    assert lab.records[-1].kind == "stream/open"
    assert lab.state.streams == {}


def test_frames_are_numbered_from_one() -> None:
    state = SpaceState(space_id="lab", frames={"moves": 0})
    assert advance_frame_number(state, "moves", 3) == 1
    assert advance_frame_number(state, "moves", 1) == 4
    assert state.frames == {"moves": 4}


def test_an_ended_stream_leaves_only_its_name() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    alice.send(kind="stream/announce", payload={"formats": [{"id": "x"}], "desired_id": "moves"})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    alice.send(kind="stream/data", payload={"stream_id": "moves", "sequence": 1, "content": 1})
    assert lab.state.sequences == {"moves": {"alice": 1}}
    alice.send(kind="stream/complete", payload={"stream_id": "moves"})
    assert (lab.state.streams, lab.state.frames, lab.state.sequences) == ({}, {}, {})
    assert lab.state.desired_ids == {"moves": None}


def test_the_leave_of_an_anonymous_participant_ends_its_grants() -> None:
    lab = MemorySpace(participants={"alice": ALL}, allow_anonymous=True)
    alice, guest = lab.join("alice"), lab.connect()
    guest.send(type="join", participantId="guest")
    alice.send(kind="capability/grant", payload={"recipient": "guest", "capabilities": [{"kind": "mcp/*"}]})
    alice.send(kind="capability/revoke", payload={"recipient": "guest", "capabilities": [{"kind": "chat"}]})
    alice.send(kind="participant/pause", to=["guest"], payload={})
    assert all("guest" in table for table in (lab.state.grants, lab.state.revoked, lab.state.paused))
    guest.leave()
    tables = (lab.state.grants, lab.state.revoked, lab.state.paused, lab.state.left)
    assert not any("guest" in table for table in tables)


def test_revoking_all_grants_leaves_no_empty_entry() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice = lab.join("alice")
    before = plain(lab.state)
    alice.send(id="g", kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "mcp/*"}]})
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "grant_id": "g"})
    after = plain(lab.state)
    assert (after["grants"], after["revoked"]) == (before["grants"], before["revoked"]) == ({}, {})


def test_revoking_twice_keeps_one_entry() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": [{"kind": "mcp/request"}, {"kind": "mcp/request"}]})
    alice = lab.join("alice")
    for _ in range(2):
        alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "mcp/*"}]})
    assert lab.state.revoked == {"bob": (b'{"kind":"mcp/request"}',)}


def test_a_participant_cannot_end_its_own_pause() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": ALL})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"], payload={})
    bob.send(kind="participant/resume", to=["bob"], payload={})
    assert lab.records[-1].event == "envelope"
    assert lab.state.paused == {"bob": None}
    alice.send(kind="participant/resume", to=["bob"], payload={})
    assert lab.state.paused == {}


def test_an_invitation_after_a_kick_starts_with_new_capabilities() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": [{"kind": "mcp/request"}]})
    alice = lab.join("alice")
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "stream/*"}]})
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "mcp/*"}]})
    alice.send(kind="space/kick", payload={"participant_id": "bob"})
    again = {"participant_id": "bob", "initial_capabilities": [{"kind": "mcp/request"}]}
    alice.send(kind="space/invite", payload=again)
    assert (lab.state.grants, lab.state.revoked, lab.state.kicked) == ({}, {}, {})
    patterns = [capability.pattern for _, capability in lab.state.capabilities("bob").sourced]
    assert patterns == [{"kind": "mcp/request"}, {"kind": "mcp/response"}]


def test_a_second_shutdown_does_not_delay_the_first() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for _ in range(2):
        alice.send(kind="participant/shutdown", to=["bob"], payload={})
        lab.advance(3)
    assert bob.closed == 1000


def test_a_finished_shutdown_does_not_delay_the_next() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for _ in range(2):
        alice.send(kind="participant/shutdown", to=["bob"], payload={})
        lab.now += 5_000_000
    lab.advance(-1)
    assert bob.closed is None
    lab.advance(1)
    assert bob.closed == 1000


def test_a_socket_after_a_shut_down_one_stays_if_the_output_log_never_left() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None}, output_logs=frozenset({"bob"}))
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"], payload={})
    lab.advance(5)
    assert bob.closed == 1000
    again = lab.join("bob")
    lab.advance(60)
    assert again.closed is None
    alice.send(kind="participant/shutdown", to=["bob"], payload={})
    lab.advance(5)
    assert again.closed == 1000
