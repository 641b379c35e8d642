"""Journals that are damaged, have a gap, or are others: nothing is lost, and other spaces are not delayed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mew.journal.layout import JournalFolder, Segment
from mew.journal.segments import SegmentDamaged
from mew.pipeline.jobs.running import VERSIONS, Batches
from mew.pipeline.jobs.soundness import LakeJournalMismatch
from mew.pipeline.jobs.watching import LOOK_SECONDS, BatchFinished, Told, Watch, WatchError, WatchOptions
from mew.pipeline.lake import BatchPlan, Lake
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import contents, dicts, run_all
from tests.pipeline.jobs.test_refresh import POINTS, _adds_up, _is_whole, same
from tests.pipeline.jobs.watched import Enough
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import Truth, generate

ILL, WELL = "harbour", "orchard"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A journal of two spaces, and its lake, made in one batch."""
    folder = tmp_path_factory.mktemp("made")
    truth = generate(folder / "journal", records=12_000, spaces=2, seed=7, segment_bytes=20_000)
    assert truth.spaces.keys() == {ILL, WELL}
    run_all(folder / "journal", folder / "lake")
    return folder, truth


@pytest.fixture
def folder(made: tuple[Path, Truth], tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(made[0], tmp_path / "made"))


def damage(segment: Segment) -> bytes:
    """What was there before."""
    whole = segment.control.read_bytes()
    spoilt = bytearray(whole)
    spoilt[len(spoilt) // 2] ^= 255
    segment.control.unlink()  # it may be a link
    segment.control.write_bytes(spoilt)
    return whole


def lose(segment: Segment) -> None:
    segment.control.unlink()


@pytest.mark.parametrize("befall", [lose, damage])
def test_a_refresh_keeps_the_rows_of_what_the_journal_has_lost_in_the_middle(
    made: tuple[Path, Truth], folder: Path, befall: Callable[[Segment], object]
) -> None:
    truth, before = made[1], contents(folder / "lake")
    segments = JournalFolder(folder / "journal", ILL).segments()
    befall(segments[len(segments) // 2])
    batches = Batches(folder / "journal", Lake(folder / "lake"), ENGINE)
    done = batches.next(refresh=True)
    assert done is not None
    assert done.positions == {name: space.last for name, space in truth.spaces.items()}
    after = contents(folder / "lake")
    for name in POINTS:
        assert after[name] == before[name], name
    _adds_up(folder / "lake", truth)
    had, has = (dicts(each / "lake", "stream_access") for each in (made[0], folder))
    _is_whole(has, had, ("stream_id", "participant", "role"))
    assert batches.next() is None


def test_a_damaged_space_is_passed_by_and_gone_on_with_when_it_is_mended(
    made: tuple[Path, Truth], tmp_path: Path
) -> None:
    truth = made[1]
    journal = Growing(made[0] / "journal", tmp_path / "journal")
    journal.grow(1000)
    segment = JournalFolder(journal.path, ILL).segments()[3]
    whole = damage(segment)
    batches = Batches(journal.path, Lake(tmp_path / "lake"), ENGINE)
    done = batches.next()
    assert done is not None
    assert done.positions == {ILL: segment.first - 1, WELL: truth.spaces[WELL].last}
    assert isinstance(batches.problems[ILL], SegmentDamaged)
    assert batches.next() is None
    assert list(batches.problems) == [ILL]
    segment.control.write_bytes(whole)
    assert batches.next() is not None
    assert (batches.next(), batches.problems) == (None, {})
    same(tmp_path / "lake", made[0] / "lake")


def test_a_batch_whose_records_were_damaged_since_it_was_begun_is_given_up(
    made: tuple[Path, Truth], tmp_path: Path
) -> None:
    truth, lake = made[1], Lake(tmp_path / "lake")
    journal = Growing(made[0] / "journal", tmp_path / "journal")
    journal.grow(1000)
    last = {name: space.last for name, space in truth.spaces.items()}
    lake.plan(BatchPlan(1, dict.fromkeys(last, 0), last, VERSIONS))
    segment = JournalFolder(journal.path, ILL).segments()[3]
    whole = damage(segment)
    batches = Batches(journal.path, lake, ENGINE)
    done = batches.next()
    assert done is not None
    assert done.positions == {ILL: segment.first - 1, WELL: last[WELL]}
    segment.control.write_bytes(whole)
    while batches.next() is not None:
        pass
    same(lake.path, made[0] / "lake")


# ------------------------------------------------------------------------------------------------ another past


def test_a_journal_that_was_restored_from_before_the_tables_is_told_of(made: tuple[Path, Truth], folder: Path) -> None:
    for segment in JournalFolder(folder / "journal", ILL).segments()[-2:]:
        lose(segment)
    batches = Batches(folder / "journal", Lake(folder / "lake"), ENGINE)
    assert batches.next() is None
    problem = batches.problems[ILL]
    assert isinstance(problem, LakeJournalMismatch)
    last = made[1].spaces[ILL].last
    assert f"they have record {last}, and it ends with " in str(problem)
    assert batches.next(refresh=True) is not None
    assert (batches.next(), batches.problems) == (None, {})


def test_a_journal_that_was_begun_anew_and_has_more_records_than_the_old_one_is_told_of(
    made: tuple[Path, Truth], folder: Path, tmp_path: Path
) -> None:
    later = made[1].start + 86_400_000_000
    generate(tmp_path / "other" / "journal", records=20_000, spaces=2, seed=8, segment_bytes=20_000, start=later)
    lake, before = Lake(folder / "lake"), contents(folder / "lake")
    batches = Batches(tmp_path / "other" / "journal", lake, ENGINE)
    assert batches.next() is None
    assert {space: type(problem) for space, problem in batches.problems.items()} == {
        ILL: LakeJournalMismatch,
        WELL: LakeJournalMismatch,
    }
    assert contents(folder / "lake") == before
    assert batches.next(refresh=True) is not None
    run_all(tmp_path / "other" / "journal", tmp_path / "other" / "lake")
    same(folder / "lake", tmp_path / "other" / "lake")


# ----------------------------------------------------------------------------------------------------- a watch


def watch(journal: Path, lake: Path, enough: Enough) -> Watch:
    return Watch(journal, Lake(lake), ENGINE, enough, WatchOptions(every=0))


def test_a_watch_survives_a_journal_that_is_not_there_for_a_while(
    made: tuple[Path, Truth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mew.pipeline.jobs.watching.AGAIN_SECONDS", LOOK_SECONDS)
    journal, enough = Growing(made[0] / "journal", tmp_path / "journal"), Enough()
    journal.grow(3)
    last = {name: space.last for name, space in made[1].spaces.items()}
    told: list[Told] = []
    for each in watch(journal.path, tmp_path / "lake", enough).run():
        told.append(each)
        if len(told) == 1:
            journal.path.rename(tmp_path / "away")
        elif isinstance(each, WatchError):
            (tmp_path / "away").rename(journal.path)
            journal.grow(1000)
        elif isinstance(each, BatchFinished) and each.progress.positions == last:
            enough.set()
    assert [type(each) for each in told[:2]] == [BatchFinished, WatchError]
    assert "there is no journal here" in str(told[1])
    same(tmp_path / "lake", made[0] / "lake")


def test_a_watch_tells_of_a_journal_with_another_past_once(folder: Path) -> None:
    for segment in JournalFolder(folder / "journal", ILL).segments()[-2:]:
        lose(segment)
    enough, told = Enough(), list[Told]()
    for each in watch(folder / "journal", folder / "lake", enough).run():
        told.append(each)
        enough.set()
    assert [each.space for each in told if isinstance(each, WatchError)] == [ILL]
