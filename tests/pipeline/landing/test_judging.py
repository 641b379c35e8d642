"""Which blocks are landed: each record once, whatever came twice; and nothing behind a hole."""

from random import Random

import msgspec
import pytest

from mew.journal.layout import HOUR
from mew.pipeline.landing.judging import Judged, select_messages
from mew.pipeline.landing.values import IngestPosition, IngestStopped, LandingPlan, Offsets, TopicMessage

PLAN = LandingPlan(1, "cluster", "topic", {0: Offsets(0, 100)}, records=100, bytes=10_000)


def message(first: int, last: int, offset: int = 0, **fields: object) -> TopicMessage:
    usual = {"epoch": "e1", "after": first - 1, "size": 10, "file": "f"}
    return TopicMessage(0, offset, "lab", first=first, last=last, **{**usual, **fields})  # type: ignore[arg-type]


def ranges(judged: Judged) -> list[tuple[int, int]]:
    return [(piece.first, piece.last) for piece in judged.pieces]


def test_blocks_that_follow_each_other_become_one_segment() -> None:
    judged = select_messages(PLAN, {}, [message(0, 9, 0), message(10, 19, 1)])
    assert ranges(judged) == [(0, 19)]
    assert [block.start for block in judged.pieces[0].blocks] == [0, 10]
    assert judged.spaces == {"lab": IngestPosition(19, 0, ("e1",))}


def test_what_came_twice_is_landed_once() -> None:
    judged = select_messages(
        PLAN, {}, [message(0, 9), message(10, 19), message(0, 9, 2), message(5, 14, 3), message(10, 29, 4)]
    )
    assert ranges(judged) == [(0, 29)]
    starts = [block.start for block in judged.pieces[0].blocks]
    assert starts == sorted(set(starts))
    assert judged.repeats >= 2
    again = select_messages(PLAN, judged.spaces, [message(0, 9), message(10, 29)])
    assert ranges(again) == []
    assert again.spaces == judged.spaces
    assert again.repeats == 2


def test_an_overlap_is_cut_off() -> None:
    judged = select_messages(PLAN, {"lab": IngestPosition(14, epochs=("e1",))}, [message(10, 19)])
    assert ranges(judged) == [(15, 19)]
    assert judged.pieces[0].blocks[0].start == 15


@pytest.mark.parametrize("seed", range(20))
def test_however_blocks_are_cut_repeated_and_mixed_each_record_is_landed_once(seed: int) -> None:
    chance = Random(seed)
    messages: list[TopicMessage] = []
    at = 0
    while at < 300:
        first = max(0, at - chance.choice([0, 0, 0, 5, 40]))
        last = at + chance.randrange(1, 30)
        messages += [message(first, last, len(messages))] * chance.choice([1, 1, 2])
        at = last + 1
    chance.shuffle(messages)
    judged = select_messages(PLAN, {}, messages)
    covered: list[int] = []
    for piece in judged.pieces:
        ends = [block.start for block in piece.blocks[1:]] + [piece.last + 1]
        for block, end in zip(piece.blocks, ends, strict=True):
            covered += range(block.start, end)
    assert covered == list(range(at))
    assert judged.spaces["lab"].stopped is None


def test_a_hole_stops_the_space_and_no_other() -> None:
    other = msgspec.structs.replace(message(0, 9), space="den")
    judged = select_messages(PLAN, {}, [message(0, 9), message(20, 29), other])
    assert [(piece.space, piece.first, piece.last) for piece in judged.pieces] == [("den", 0, 9), ("lab", 0, 9)]
    assert judged.spaces["lab"].stopped == IngestStopped(10, "record 10 did not come, and later ones did")
    assert judged.spaces["den"].stopped is None


def test_a_space_that_stopped_goes_on_when_the_missing_records_come() -> None:
    stopped = select_messages(PLAN, {}, [message(0, 9), message(20, 29)]).spaces
    still = select_messages(PLAN, stopped, [message(30, 39)])
    assert still.spaces == stopped
    assert ranges(still) == []
    on = select_messages(PLAN, still.spaces, [message(10, 19), message(20, 29), message(30, 39)])
    assert ranges(on) == [(10, 39)]
    assert on.spaces["lab"].stopped is None


def test_the_first_block_of_all_must_be_the_first_of_the_journal() -> None:
    assert select_messages(PLAN, {}, [message(20, 29)]).spaces["lab"].stopped is not None
    begun = select_messages(PLAN, {}, [message(20, 29, after=-1)])
    assert ranges(begun) == [(20, 29)]


def test_a_hole_that_the_journal_itself_has_is_passed_and_ends_a_segment() -> None:
    judged = select_messages(PLAN, {}, [message(0, 9), message(20, 29, after=9)])
    assert ranges(judged) == [(0, 9), (20, 29)]
    lost = select_messages(PLAN, {}, [message(0, 4), message(20, 29, after=9)])
    assert lost.spaces["lab"].stopped is not None
    cut = select_messages(PLAN, {"lab": IngestPosition(4, epochs=("e1",))}, [message(20, 29, after=-1)])
    assert cut.spaces["lab"].stopped is not None


def test_another_journal_under_the_same_name_stops_the_space() -> None:
    known = {"lab": IngestPosition(99, epochs=("e1", "e2"))}
    for first, last in ((0, 9), (50, 149)):
        judged = select_messages(PLAN, known, [message(first, last, epoch="e9")])
        assert ranges(judged) == []
        stopped = judged.spaces["lab"].stopped
        assert stopped is not None
        assert "another journal" in stopped.what
    assert select_messages(PLAN, known, [message(0, 9, epoch="")]).spaces["lab"].stopped is None
    assert select_messages(PLAN, known, [message(100, 109, epoch="e9")]).spaces["lab"].epochs == ("e1", "e2", "e9")


def test_a_segment_has_one_hour_and_not_too_much() -> None:
    hours = select_messages(PLAN, {}, [message(0, 9, time=HOUR - 1), message(10, 19, time=HOUR)])
    assert ranges(hours) == [(0, 9), (10, 19)]
    many = select_messages(PLAN, {}, [message(60 * n, 60 * n + 59, n) for n in range(5)])
    assert ranges(many) == [(0, 119), (120, 239), (240, 299)]
    large = select_messages(PLAN, {}, [message(n, n, n, size=6_000) for n in range(4)])
    assert ranges(large) == [(0, 1), (2, 3)]


def test_what_is_no_block_is_told_and_stops_nobody() -> None:
    stranger = TopicMessage(0, 7, "lab", 3, problem="no block begins here")
    judged = select_messages(PLAN, {}, [stranger, message(0, 9)])
    assert judged.strangers == [stranger]
    assert ranges(judged) == [(0, 9)]
