"""The audit finds whatever is wrong with a journal, nothing else, and nothing at all in a sound one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.reader import Journal, is_data_record
from mew.pipeline.control.said import SPOKEN
from mew.protocol import kinds
from mew.protocol.fold import fold
from mew.protocol.records import Record
from mew.protocol.state import SpaceState
from tests.pipeline.jobs.lakes import dicts, positions, run_all
from tools.journal_generator import generate
from tools.journal_generator.forged_files import write_forged_journal

SPACE = "harbour"
CHECKS = {
    "positions",
    "welcomes",
    "frame counts in welcomes",
    "authorised writers",
    "frame numbers",
    "owners",
    "refusals",
    "checkpoints",
    "folded",
    "reader gaps",
    "counts",
}
Records = list[Record]
Change = Callable[[Records], object]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """A sound journal, with some of everything."""
    root = tmp_path_factory.mktemp("sound") / "journal"
    generate(root, records=6_000, spaces=1, seed=9)
    return list(Journal(root, SPACE).records())


def violated(
    folder: Path, records: Records, change: Change, most: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """By check what is wrong with a journal that was changed; every record of it is in the tables."""
    changed = list(records)
    change(changed)
    journal = write_forged_journal(folder / "journal", SPACE, changed)
    run_all(journal, folder / "lake", most)
    rows = dicts(folder / "lake", "audit")
    assert {row["check"] for row in rows} == CHECKS
    lake = folder / "lake"
    assert positions(lake, "frames") == sorted(each.position for each in changed if is_data_record(each))
    said = sorted(each.position for each in changed if each.event in SPOKEN and not is_data_record(each))
    assert positions(lake, "envelopes") == said
    return {row["check"]: json.loads(row["sample"]) for row in rows if row["violations"]}


def find(records: Records, nth: int = 0, **fields: Any) -> int:
    """The index of a record with these fields."""
    found = [
        index
        for index, each in enumerate(records)
        if all(getattr(each, name) == value for name, value in fields.items())
    ]
    return found[nth]


def put(records: Records, index: int, **fields: Any) -> None:
    records[index] = msgspec.structs.replace(records[index], **fields)


def rewrite(records: Records, index: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a record says."""
    said = json.loads(records[index].payload)
    change(said)
    put(records, index, payload=json.dumps(said, separators=(",", ":")).encode())


def welcome(records: Records) -> int:
    """One in which a stream has several writers."""
    for index, each in enumerate(records):
        if each.event == "welcome":
            streams = json.loads(each.payload)["payload"]["active_streams"]
            if any(len(stream["authorized_writers"]) > 1 and stream["stream"]["frames"] for stream in streams):
                return index
    raise LookupError("no such welcome")


def of_many_writers(said: dict[str, Any]) -> dict[str, Any]:
    streams = said["payload"]["active_streams"]
    return next(each for each in streams if len(each["authorized_writers"]) > 1 and each["stream"]["frames"])


def state_at(records: Records, index: int) -> SpaceState:
    state = SpaceState(space_id=SPACE)
    for record in records[:index]:
        state = fold(state, record)
    return state


def test_nothing_is_wrong_with_a_sound_journal(records: Records, tmp_path: Path) -> None:
    assert violated(tmp_path, records, lambda _records: None) == {}


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_wrong_with_any_sound_journal(tmp_path: Path, seed: int) -> None:
    generate(tmp_path / "journal", records=2_000, spaces=2, seed=seed)
    run_all(tmp_path / "journal", tmp_path / "lake", most=500)
    rows = dicts(tmp_path / "lake", "audit")
    assert {row["check"] for row in rows} == CHECKS
    assert [row for row in rows if row["violations"]] == []


def test_a_forged_frame_is_found(records: Records, tmp_path: Path) -> None:
    index = find(records, 40, event="frame")
    found = violated(tmp_path, records, lambda these: put(these, index, participant="mallory"))
    assert list(found) == ["authorised writers"]
    (forged,) = found["authorised writers"]
    assert (forged["position"], forged["writer"]) == (records[index].position, "mallory")


@pytest.mark.parametrize("most", [None, 700])
@pytest.mark.parametrize(
    ("fields", "checks"),
    [
        ({"event": "frame"}, {"positions", "frame numbers"}),
        ({"event": "envelope", "kind": "chat"}, {"positions"}),
        ({"event": "rejected"}, {"positions"}),
    ],
)
def test_a_missing_record_is_found(
    records: Records, tmp_path: Path, fields: dict[str, Any], checks: set[str], most: int | None
) -> None:
    index = find(records, 2, **fields)
    found = violated(tmp_path, records, lambda these: these.pop(index), most)
    assert set(found) == checks
    assert "records where there are" in found["positions"][0]["what"]


@pytest.mark.parametrize(
    ("fields", "checks"),
    [
        ({"event": "frame"}, {"positions", "frame numbers"}),
        ({"event": "envelope", "kind": "chat"}, {"positions"}),
        ({"event": "join"}, {"positions"}),
    ],
)
def test_a_record_that_is_there_twice_is_found(
    records: Records, tmp_path: Path, fields: dict[str, Any], checks: set[str]
) -> None:
    index = find(records, 2, **fields)
    found = violated(tmp_path, records, lambda these: these.insert(index, these[index]))
    assert set(found) == checks


def test_a_record_in_the_place_of_another_is_found(records: Records, tmp_path: Path) -> None:
    """As many as there should be, but one twice and one not at all."""
    index = find(records, 2, event="envelope", kind="chat")

    def change(these: Records) -> None:
        these[index] = these[find(these, 1, event="envelope", kind="chat")]
        these.sort(key=lambda each: each.position)

    assert set(violated(tmp_path, records, change)) == {"positions"}


def test_a_welcome_with_a_stale_writer_is_found(records: Records, tmp_path: Path) -> None:
    index = welcome(records)

    def change(said: dict[str, Any]) -> None:
        of_many_writers(said)["authorized_writers"].pop()

    found = violated(tmp_path, records, lambda these: rewrite(these, index, change))
    assert set(found) == {"welcomes"}
    assert [each["position"] for each in found["welcomes"]] == [records[index].position]


def test_a_welcome_with_somebody_who_is_not_there_is_found(records: Records, tmp_path: Path) -> None:
    index = welcome(records)

    def change(said: dict[str, Any]) -> None:
        said["payload"]["participants"][0]["id"] = "mallory"

    found = violated(tmp_path, records, lambda these: rewrite(these, index, change))
    assert set(found) == {"welcomes"}
    assert found["welcomes"][0]["what"] == "not what was folded: participants"


def test_a_welcome_that_counts_frames_wrong_is_found(records: Records, tmp_path: Path) -> None:
    index = welcome(records)

    def change(said: dict[str, Any]) -> None:
        of_many_writers(said)["stream"]["frames"] += 1

    found = violated(tmp_path, records, lambda these: rewrite(these, index, change))
    assert set(found) == {"frame counts in welcomes"}


def test_frames_that_are_numbered_out_of_order_are_found(records: Records, tmp_path: Path) -> None:
    first = find(records, 30, event="frame")
    stream_id, number = records[first].stream_id, records[first].frame_number or 0
    second = find(records, event="frame", stream_id=stream_id, frame_number=number + 1)

    def change(these: Records) -> None:
        put(these, first, frame_number=records[second].frame_number)
        put(these, second, frame_number=records[first].frame_number)

    found = violated(tmp_path, records, change)
    assert set(found) <= {"frame numbers", "frame counts in welcomes"}
    assert {each["position"] for each in found["frame numbers"]} >= {records[first].position, records[second].position}


def taken(records: Records, index: int, **more: Any) -> Record:
    """The gateway transfers the stream of a present owner without a reason, in the place of another record."""
    state = state_at(records, index)
    stream = next(each for each in state.streams.values() if each.owner in state.present)
    heir = next(each for each in state.present if each != stream.owner)
    payload = {
        "stream_id": stream.stream_id,
        "previous_owner": stream.owner,
        "new_owner": heir,
        "authorized_writers": [heir],
        "stream": {"stream_id": stream.stream_id, "namespace": stream.namespace},
        **more,
    }
    said = {"protocol": "mew/v0.4", "id": "forged", "ts": "2026-01-05T10:00:00Z", "from": kinds.GATEWAY}
    envelope = {**said, "kind": kinds.OWNERSHIP_TRANSFERRED, "payload": payload}
    return msgspec.structs.replace(
        records[index],
        participant=kinds.GATEWAY,
        kind=kinds.OWNERSHIP_TRANSFERRED,
        envelope_id="forged",
        stream_id=stream.stream_id,
        payload=json.dumps(envelope, separators=(",", ":")).encode(),
    )


CONSEQUENCES = {"welcomes", "authorised writers", "checkpoints", "folded"}
"""What comes after a change of who may write that never was is wrong as well."""


def test_an_ownership_that_nobody_asked_to_transfer_is_found(records: Records, tmp_path: Path) -> None:
    index = find(records, -1, event="envelope", kind="chat")
    forged = taken(records, index)
    found = violated(tmp_path, records, lambda these: these.__setitem__(index, forged))
    assert found.keys() - CONSEQUENCES == {"owners"}
    assert "no request asked for that" in found["owners"][0]["what"]
    assert found["owners"][0]["position"] == forged.position


def test_two_owners_are_found(records: Records, tmp_path: Path) -> None:
    index = find(records, -1, event="envelope", kind="chat")
    forged = taken(records, index, authorized_writers=[])
    found = violated(tmp_path, records, lambda these: these.__setitem__(index, forged))
    assert found.keys() - CONSEQUENCES == {"owners"}
    assert any("is not once among its writers" in each["what"] for each in found["owners"])


@pytest.mark.parametrize("event", ["rejected", "frame_rejected"])
def test_a_refusal_without_a_reason_is_found(records: Records, tmp_path: Path, event: str) -> None:
    index = find(records, event=event)
    found = violated(tmp_path, records, lambda these: put(these, index, reason=None))
    assert list(found) == ["refusals"]
    assert found["refusals"][0]["position"] == records[index].position


def test_an_altered_checkpoint_is_found(records: Records, tmp_path: Path) -> None:
    index = find(records, -1, event="checkpoint")
    found = violated(
        tmp_path, records, lambda these: rewrite(these, index, lambda said: said["kicked"].append("mallory"))
    )
    assert list(found) == ["checkpoints"]
    assert [each["position"] for each in found["checkpoints"]] == [records[index].position]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"to": 10**9, "dropped": 1}, "there were"),
        ({"dropped": 10**6}, "cannot be"),
        ({"dropped": 0}, "cannot be"),
        ({"from": 9, "to": 8}, "are none"),
    ],
)
def test_a_loss_that_cannot_be_is_found(records: Records, tmp_path: Path, fields: dict[str, int], what: str) -> None:
    index = next(at for at, each in enumerate(records) if each.event == "gap" and each.reason != "skipped")
    found = violated(
        tmp_path, records, lambda these: rewrite(these, index, lambda said: said["payload"].update(fields))
    )
    assert list(found) == ["reader gaps"]
    assert what in found["reader gaps"][0]["what"]


def test_a_frame_that_is_lost_to_a_reader_twice_is_found(records: Records, tmp_path: Path) -> None:
    index = next(at for at, each in enumerate(records) if each.event == "gap" and each.reason != "skipped")
    later = find(records, -1, event="envelope", kind="chat")

    def change(these: Records) -> None:
        these[later] = msgspec.structs.replace(
            records[index], position=records[later].position, time=records[later].time
        )

    found = violated(tmp_path, records, change)
    assert list(found) == ["reader gaps"]
    assert found["reader gaps"][0]["position"] == records[later].position


def test_a_record_of_which_no_row_can_be_made_is_counted(records: Records, tmp_path: Path) -> None:
    index = next(at for at, each in enumerate(records) if each.event == "gap" and each.reason != "skipped")
    found = violated(tmp_path, records, lambda these: put(these, index, payload=b"{}"))
    assert set(found) == {"folded", "counts"}
    assert "rows of reader_gaps, there should be" in found["counts"][0]["what"]
