"""Plans, state files and the lock: written once, complete, by the first process."""

import threading
from pathlib import Path

import msgspec
import pytest

from mew.pipeline.lake import BatchOutOfOrder, BatchPlan, Lake, LakeBusy, LakeDamaged, LakeError
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import plan


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_the_plan_that_is_there_wins(lake: Lake) -> None:
    assert lake.planned(1) is None
    assert lake.plan(plan(1)) == plan(1)
    assert lake.plan(plan(1, to=7)) == plan(1)
    assert Lake(lake.path).planned(1) == plan(1)


def test_of_many_that_plan_at_once_all_get_the_same(lake: Lake) -> None:
    found: list[BatchPlan] = []
    threads = [threading.Thread(target=lambda to=to: found.append(lake.plan(plan(1, to=to)))) for to in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 8
    assert [path.name for path in (lake.path / "_plan").iterdir()] == ["1.json"]


def test_only_the_next_batch_can_be_planned(lake: Lake) -> None:
    with pytest.raises(BatchOutOfOrder, match="batch 0 is the last, so batch 2 cannot be planned"):
        lake.plan(plan(2))
    batches.run(lake.path, 1)
    with pytest.raises(BatchOutOfOrder):
        lake.plan(plan(3))
    assert lake.plan(plan(2)) == plan(2)


def test_plans_that_nobody_needs_go_and_the_last_ten_stay(lake: Lake) -> None:
    batches.run(lake.path, 12)
    assert sorted(int(path.stem) for path in (lake.path / "_plan").iterdir()) == list(range(3, 13))


def test_a_plan_can_be_read_by_people_and_a_damaged_one_is_named(lake: Lake) -> None:
    lake.plan(plan(1))
    (path,) = (lake.path / "_plan").iterdir()
    assert msgspec.json.decode(path.read_bytes())["to"] == {"lab": 199}
    path.write_bytes(b"{")
    with pytest.raises(LakeDamaged, match=r"1\.json: this is no plan"):
        lake.planned(1)


def test_a_state_is_kept_in_parts_under_a_name_of_its_own(lake: Lake) -> None:
    parts = {"lab": b"\x00\n" * 1000, "007": b"", "ütf": b"x"}
    name, other = lake.save_state(4, parts), lake.save_state(4, {})
    assert name != other
    assert name.startswith("4-")
    assert lake.read_state(name) == parts
    assert lake.read_state(name, ["lab", "nobody"]) == {"lab": parts["lab"]}
    assert lake.read_state(other) == {}
    assert lake.states() == sorted([name, other])


def test_states_are_listed_by_batch(lake: Lake) -> None:
    names = [lake.save_state(batch, {}) for batch in (9, 10, 11)]
    assert lake.states() == names


def test_a_state_that_is_gone_or_damaged_is_named(lake: Lake) -> None:
    with pytest.raises(LakeError, match="1-x: there is no such state file"):
        lake.read_state("1-x")
    name = lake.save_state(1, {"lab": b"something"})
    path = lake.path / "_state" / name
    data = path.read_bytes()
    for damaged in (data[:-1] + bytes([data[-1] ^ 1]), data[:-4], b"nothing", b""):
        path.write_bytes(damaged)
        with pytest.raises(LakeDamaged, match=name):
            lake.read_state(name)


def test_two_are_not_at_work_at_once_and_the_second_is_told_who_is(lake: Lake) -> None:
    with lake.locked("run"), pytest.raises(LakeBusy, match=r"run \(process \d+\) is at work"), lake.locked("compact"):
        pass
    with lake.locked("compact"):
        pass
