"""The welcome of any moment is the one that a joiner was sent then."""

import subprocess
import sys

import msgspec
import pytest

from mew.pipeline.control import folding
from mew.pipeline.control.memory import FoldStateVersionError
from mew.pipeline.control.moment import NotWelcome, state_at
from mew.protocol import Record, parse
from mew.protocol.raw_json import split_json
from mew.testing import MemorySpace
from tests.pipeline.control.folded import Told, control, fold_records, tell
from tests.support.histories import CONFIGURATION


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return tell(tmp_path_factory.mktemp("journals"), records=30_000, seed=11)[0]


def payload(record: Record) -> bytes:
    return split_json(record.payload)["payload"]


def counted(records: list[Record], position: int) -> dict[str, int]:
    """How many frames and data each stream had, up to a position."""
    frames = [each for each in records if each.frame_number is not None and each.position <= position]
    return {str(each.stream_id): int(each.frame_number or 0) for each in frames}


def test_every_welcome_that_was_sent_is_made_again(told: Told) -> None:
    space = told.truth.space
    half = fold_records(space, told.control, to=told.truth.last // 2)
    sent = [each for each in told.control if each.event == "welcome" and each.reason != "observer"]
    assert len(sent) > 50
    for record in sent:
        at = record.position - 1
        state = half.state if at >= told.truth.last // 2 else None
        made = state_at(space, state, told.control, at, record.participant, counted(told.records, at))
        assert made == payload(record)


def test_every_observers_welcome_is_made_again_but_for_its_name(told: Told) -> None:
    sent = [each for each in told.control if each.event == "welcome" and each.reason == "observer"]
    assert sent
    for record in sent:
        at = record.position - 1
        made = state_at(told.truth.space, None, told.control, at, None, counted(told.records, at))
        assert split_json(made)["you"] == b'{"id":"observer","capabilities":[]}'
        assert {**split_json(made), "you": b""} == {**split_json(payload(record)), "you": b""}


def test_whoever_is_absent_joins_as_the_next_record() -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    alice.send(kind="stream/request", payload={"on_owner_disconnect": "keep"})
    alice.leave()
    for name in ("bob", "alice"):
        made = state_at("lab", None, control(lab.records), lab.records[-1].position, name, {})
        client = lab.join(name)
        assert made == split_json(client.take("system/welcome").raw)["payload"]
        client.leave()


def test_a_stranger_joins_without_a_token_and_a_kicked_one_not_at_all() -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    alice.send(kind="space/kick", payload={"participant_id": "bob"})
    at, records = lab.records[-1].position, control(lab.records)
    welcome = msgspec.json.decode(state_at("lab", None, records, at, "nobody", {}))
    assert welcome["you"] == {"id": "nobody", "capabilities": [{"kind": "chat"}, {"kind": "mcp/response"}]}
    assert [each["id"] for each in welcome["participants"]] == ["alice"]
    with pytest.raises(NotWelcome, match="'bob' had been removed from 'lab' at"):
        state_at("lab", None, records, at, "bob", {})


def test_the_counts_of_frames_are_the_given_ones_and_none_where_none_is_given() -> None:
    lab = MemorySpace(**CONFIGURATION)
    alice = lab.join("alice")
    for _ in range(2):
        alice.send(kind="stream/request", payload={})
    made = state_at("lab", None, control(lab.records), lab.records[-1].position, None, {"stream-2": 7, "gone": 9})
    streams = msgspec.json.decode(made)["active_streams"]
    assert {each["stream_id"]: each["stream"]["frames"] for each in streams} == {"stream-1": 0, "stream-2": 7}


def test_snapshots_in_between_are_as_good_as_the_beginning(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "SNAPSHOT_RECORDS", 200)
    folded = told.fold()
    assert len(folded.snapshots) == len(told.control) // 200 > 2
    for position, state in folded.snapshots:
        assert msgspec.json.decode(state)["position"] == position
        for at in (position, position + 40):
            frames = counted(told.records, at)
            arguments = (told.control, at, "ada", frames)
            assert state_at(told.truth.space, state, *arguments) == state_at(told.truth.space, None, *arguments)


def test_what_the_state_has_folded_is_not_looked_at_again(told: Told) -> None:
    middle = told.truth.last // 2
    state = fold_records(told.truth.space, told.control, to=middle).state
    later = [each for each in told.control if each.position > middle]
    unreadable = [msgspec.structs.replace(each, payload=b"{") for each in told.control if each.position <= middle]
    made = [
        state_at(told.truth.space, state, records, told.truth.last, "host", {})
        for records in (later, [*unreadable, *later])
    ]
    assert made[0] == made[1]


def test_a_moment_before_the_state_or_before_anything_is_known_is_refused(told: Told) -> None:
    space, folded = told.truth.space, told.fold()
    with pytest.raises(FoldStateVersionError, match=f"is that after {told.truth.last}, which is behind 10"):
        state_at(space, folded.state, told.control, 10, None, {})
    headless = [each for each in told.control if each.position > 0]
    with pytest.raises(FoldStateVersionError, match="no start and no checkpoint stands before it"):
        state_at(space, None, headless, 100, None, {})


def test_from_the_floor_a_moment_is_found_by_its_checkpoint(told: Told) -> None:
    floor = told.truth.checkpoints[1]
    at = floor + 500
    kept = [each for each in told.control if each.position > floor - 200]
    frames = counted(told.records, at)
    made = state_at(told.truth.space, None, kept, at, "host", frames)
    assert made == state_at(told.truth.space, None, told.control, at, "host", frames)
    assert parse(b'{"kind":"system/welcome","payload":' + made + b"}").payload["position"] == at


def test_looking_at_a_moment_loads_no_arrow_and_folding_no_spark() -> None:
    for module, unwanted in (
        ("moment", ("pyarrow", "pandas", "pyspark", "duckdb", "deltalake")),
        ("folding", ("pyspark", "deltalake", "duckdb")),
    ):
        code = f"import sys, mew.pipeline.control.{module}; print([name for name in {unwanted} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
        assert done.stdout == "[]\n"
