"""A journal whose beginning is gone is folded from the checkpoint at its floor."""

from typing import Any

import msgspec
import pytest

from mew.pipeline.control.folding import Folded
from mew.protocol import Checkpoint
from mew.testing import MemorySpace
from tests.pipeline.control.folded import Told, control, fold_lab, fold_records, rows, tell, violations
from tests.support.histories import CONFIGURATION


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell(tmp_path_factory.mktemp("journals"), records=40_000, seed=3)[0]


def space_of(folded: Folded) -> Any:
    return msgspec.json.decode(folded.state)["state"]


def still_open(folded: Folded, table: str, *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows(folded, table) if row["open"]}


@pytest.mark.parametrize("before", [0, 500])
def test_from_a_checkpoint_on_the_space_becomes_what_it_became(told: Told, before: int) -> None:
    for floor in told.truth.checkpoints[1:4]:
        kept = [each for each in told.control if each.position >= floor - before]
        whole, seeded = told.fold(), fold_records(told.truth.space, kept, to=told.truth.last)
        assert space_of(seeded) == space_of(whole)
        assert violations(seeded) == {}
        assert seeded.checks.unseeded == sum(each.position < floor for each in kept)
        for table, names in {
            "participants": ("participant", "transport", "anonymous"),
            "streams": ("stream_id", "owner", "namespace", "creator", "request"),
            "stream_access": ("stream_id", "participant", "role"),
            "capabilities": ("participant", "source", "capability"),
        }.items():
            assert still_open(seeded, table, *names) == still_open(whole, table, *names), table
        later = [
            row if row["position"] >= floor else {**row, "capability_fits": None, "grant_covered": None}
            for row in rows(whole, "envelopes")
            if row["position"] >= floor - before
        ]
        assert rows(seeded, "envelopes") == later


def test_what_was_there_at_the_floor_begins_with_the_checkpoint(told: Told) -> None:
    floor = told.truth.checkpoints[2]
    kept = [each for each in told.control if each.position >= floor]
    seeded = fold_records(told.truth.space, kept, to=told.truth.last)
    here = {stay.participant for stay in told.truth.stays if stay.position < floor and (stay.left or 10**9) > floor}
    begun = [row for row in rows(seeded, "participants") if row["joined_position"] == floor]
    assert {row["participant"] for row in begun} == here
    there = {
        each.stream_id
        for each in told.truth.streams.values()
        if each.position < floor and (each.ended is None or each.ended.position > floor)
    }
    assert {row["stream_id"] for row in rows(seeded, "streams") if row["position"] == floor} == there
    access = [row for row in rows(seeded, "stream_access") if row["from_position"] == floor]
    assert {row["stream_id"] for row in access} == there
    assert {row["why"] for row in access} == {"checkpoint"}
    assert there <= seeded.catalogue.streams.keys()


def test_a_checkpoint_of_another_fold_seeds_nothing_and_stops_nothing(told: Told) -> None:
    first, second = told.truth.checkpoints[1:3]
    kept = [each for each in told.control if each.position >= first]
    strange = kept[0].payload.replace(b'"fold_version":2', b'"fold_version":99', 1)
    assert strange != kept[0].payload
    kept[0] = msgspec.structs.replace(kept[0], payload=strange)
    seeded = fold_records(told.truth.space, kept, to=told.truth.last)
    assert seeded.checks.unseeded == sum(each.position < second for each in kept)
    assert space_of(seeded) == space_of(told.fold())
    assert violations(seeded) == {}


def test_a_checkpoint_behind_a_hole_ends_and_begins_rows() -> None:
    """The gateway went on unrecorded: what happened meanwhile is known by its result."""
    lab = MemorySpace(**CONFIGURATION)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/request", payload={"description": "first"})
    alice.send(kind="stream/request", payload={"description": "second"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    lost_from = len(lab.records)
    alice.send(kind="stream/close", payload={"stream_id": "stream-2"})
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": "stream-1", "new_owner": "bob"})
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "mcp/*"}]})
    lab.join("carol")
    bob.send(kind="stream/request", payload={"description": "third"})
    alice.leave()
    lost_to = len(lab.records)
    lab.run(Checkpoint())
    bob.send(kind="chat", payload={"text": "we are back"})
    at = lab.records[lost_to].position
    kept = control([*lab.records[:lost_from], *lab.records[lost_to:]])
    folded = fold_records("lab", kept, to=lab.records[-1].position)
    assert list(violations(folded)) == ["checkpoints"]
    assert space_of(folded) == space_of(fold_lab(lab))
    stays = {row["participant"]: row for row in rows(folded, "participants")}
    assert (stays["alice"]["left_position"], stays["alice"]["reason"]) == (at, "checkpoint")
    assert (stays["carol"]["joined_position"], stays["carol"]["open"]) == (at, True)
    streams = {row["stream_id"]: row for row in rows(folded, "streams")}
    assert (streams["stream-2"]["ended_position"], streams["stream-2"]["reason"]) == (at, "checkpoint")
    assert [each["owner"] for each in streams["stream-1"]["owners"]] == ["alice", "bob"]
    assert (streams["stream-3"]["position"], streams["stream-3"]["open"]) == (at, True)
    granted = [row for row in rows(folded, "capabilities") if row["capability"] == '{"kind":"mcp/*"}']
    assert [(row["participant"], row["granted_by"], row["from_position"]) for row in granted] == [("bob", "alice", at)]
