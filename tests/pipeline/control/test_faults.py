"""Whatever is wrong with a journal is found, and stops nothing."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.pipeline.control.checks import SAMPLE
from mew.pipeline.control.folding import Folded
from mew.protocol import Checkpoint, Record
from mew.testing import MemorySpace
from tests.pipeline.control.folded import control, fold_records, rows, violations
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples


@pytest.fixture
def lab() -> MemorySpace:
    """Two streams, three participants, some of everything."""
    lab = MemorySpace(**CONFIGURATION)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request", payload={"description": "first"})
    alice.send(kind="stream/announce", payload={"formats": [{"id": "plain"}], "desired_id": "moves"})
    alice.send(kind="stream/start", payload={"stream_id": "moves"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    bob.send(kind="space/kick", payload={"participant_id": "alice"})
    bob.frame("moves", "not mine")
    lab.join("carol")
    alice.send(kind="stream/close", payload={"stream_id": "moves"})
    return lab


def fold_changed(lab: MemorySpace, change: Callable[[list[Record]], object]) -> Folded:
    records = control(lab.records)
    change(records)
    return fold_records("lab", records, to=lab.records[-1].position)


def index(records: list[Record], **fields: str) -> int:
    return next(
        number
        for number, each in enumerate(records)
        if all(getattr(each, name) == value for name, value in fields.items())
    )


def replaced(records: list[Record], number: int, **fields: object) -> None:
    records[number] = msgspec.structs.replace(records[number], **fields)


def rewritten(records: list[Record], number: int, old: bytes, new: bytes) -> None:
    payload = records[number].payload
    assert old in payload
    replaced(records, number, payload=payload.replace(old, new))


def test_nothing_is_wrong_with_what_a_gateway_wrote(lab: MemorySpace) -> None:
    assert violations(fold_changed(lab, lambda _records: None)) == {}


def test_a_welcome_with_a_stale_writer_is_found(lab: MemorySpace) -> None:
    def change(records: list[Record]) -> None:
        number = index(records, event="welcome", participant="carol")
        rewritten(records, number, b'"authorized_writers":["alice","bob"]', b'"authorized_writers":["alice"]')

    found = violations(fold_changed(lab, change))
    assert list(found) == ["welcomes"]
    assert [each["what"] for each in found["welcomes"]] == ["not what was folded: active_streams"]
    assert found["welcomes"][0]["participant"] == "carol"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b'"position":', b'"position":1', "position"),
        (b'{"id":"alice"', b'{"id":"malice"', "participants"),
        (b'"you":{"id":"carol","capabilities":[', b'"you":{"id":"carol","capabilities":[{"kind":"*"},', "you"),
    ],
)
def test_whatever_else_a_welcome_gets_wrong_is_named(lab: MemorySpace, old: bytes, new: bytes, what: str) -> None:
    def change(records: list[Record]) -> None:
        rewritten(records, index(records, event="welcome", participant="carol"), old, new)

    found = violations(fold_changed(lab, change))
    assert [each["what"] for each in found["welcomes"]] == [f"not what was folded: {what}"]


def test_a_wrong_count_of_frames_is_no_fault_here_but_a_claim(lab: MemorySpace) -> None:
    def change(records: list[Record]) -> None:
        rewritten(records, index(records, event="welcome", participant="carol"), b'"frames":0', b'"frames":41')

    folded = fold_changed(lab, change)
    assert violations(folded) == {}
    last = folded.catalogue.probes[-1]
    assert [claim for claim in folded.checks.welcomes.claims if claim[0] == last] == [
        (last, "stream-1", 41),
        (last, "moves", 41),
    ]


def test_a_record_that_is_there_twice_is_found_and_folded_once(lab: MemorySpace) -> None:
    clean = fold_changed(lab, lambda _records: None)
    for event in ("envelope", "join", "welcome", "consumed", "rejected", "frame_rejected"):
        records = control(lab.records)
        twice = index(records, event=event)
        records.insert(twice, records[twice])
        found = fold_records("lab", records, to=lab.records[-1].position)
        assert list(violations(found)) == ["positions"], event
        assert found.checks.positions.violations == 1
        assert found.state == clean.state


def test_what_was_refused_without_a_reason_is_found(lab: MemorySpace) -> None:
    for event in ("rejected", "frame_rejected"):
        records = control(lab.records)
        replaced(records, index(records, event=event), reason=None)
        found = violations(fold_records("lab", records, to=lab.records[-1].position))
        assert list(found) == ["refusals"], event
        assert found["refusals"][0]["participant"] == "bob"


def test_an_owner_who_may_not_write_is_found(lab: MemorySpace) -> None:
    def change(records: list[Record]) -> None:
        rewritten(records, index(records, kind="stream/write-granted"), b'["alice","bob"]', b'["bob"]')

    found = violations(fold_changed(lab, change))
    assert set(found) == {"owners", "welcomes"}
    assert found["owners"][0]["stream_id"] == "stream-1"
    assert found["owners"][0]["what"] == "its owner 'alice' is not once among its writers ['bob']"


def test_a_missing_record_is_found_by_what_follows_it(lab: MemorySpace) -> None:
    for fields in ({"kind": "stream/open"}, {"event": "join", "participant": "bob"}, {"kind": "stream/write-granted"}):
        records = control(lab.records)
        records.pop(index(records, **fields))
        found = fold_records("lab", records, to=lab.records[-1].position)
        assert set(violations(found)) & {"folded", "welcomes"}, fields


def test_a_checkpoint_that_says_something_else_is_found(lab: MemorySpace) -> None:
    lab.run(Checkpoint())

    def change(records: list[Record]) -> None:
        rewritten(records, index(records, event="checkpoint"), b'"kicked":[]', b'"kicked":["bob"]')

    found = fold_changed(lab, change)
    assert list(violations(found)) == ["checkpoints"]
    assert {row["participant"] for row in rows(found, "capabilities") if row["open"]} == {"alice", "carol"}
    assert violations(fold_changed(lab, lambda _records: None)) == {}


def test_of_many_faults_some_are_told_and_all_are_counted(lab: MemorySpace) -> None:
    bob = lab.join("bob")
    for _ in range(3 * SAMPLE):
        bob.send(kind="space/kick", payload={"participant_id": "alice"})

    def change(records: list[Record]) -> None:
        for number, record in enumerate(records):
            if record.event == "rejected":
                replaced(records, number, reason=None)

    refusals = fold_changed(lab, change).checks.refusals
    assert refusals.violations == 3 * SAMPLE + 1
    assert len(refusals.sample) == SAMPLE


_DAMAGES = st.sampled_from(
    [b"", b"{", b"null", b"[]", b"{}", b'{"payload":7}', b'{"payload":{"stream_id":3}}', b"\xff\xfe", b"[" * 5000,
     b'{"payload":{"formats":[{"id":{}}],"stream_id":"x","owner":"a","created":"b","stream":{}}}']
)  # fmt: skip


@examples(80)
@given(steps=histories(size=25), damages=st.lists(st.tuples(st.floats(0, 0.999), _DAMAGES), min_size=1, max_size=6))
def test_no_payload_stops_the_fold_and_every_envelope_keeps_its_row(
    steps: list[Step], damages: list[tuple[float, bytes]]
) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    lab.run(Checkpoint())
    lab.join("alice")
    records = control(lab.records)
    for where, payload in damages:
        replaced(records, int(where * len(records)), payload=payload)
    folded = fold_records("lab", records, to=lab.records[-1].position)
    said = [each.position for each in records if each.event in {"envelope", "consumed", "rejected"}]
    assert [row["position"] for row in rows(folded, "envelopes")] == said
    again = fold_records("lab", [], to=lab.records[-1].position + 1, state=folded.state)
    assert again.checks.positions.checked == 0


@examples(60)
@given(steps=histories(size=25), lost=st.sets(st.floats(0, 0.999), min_size=1, max_size=5))
def test_no_missing_record_stops_the_fold(steps: list[Step], lost: set[float]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    records = control(lab.records)
    gone = {int(where * len(records)) for where in lost}
    kept = [each for number, each in enumerate(records) if number not in gone]
    folded = fold_records("lab", kept, to=lab.records[-1].position)
    assert folded.checks.positions.checked == len(kept)
