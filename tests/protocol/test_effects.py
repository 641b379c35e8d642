"""Effects: a delivery follows its record, and each audience has the recipients of its name."""

import pytest
from hypothesis import given

from mew.protocol import EVERYONE, AllExcept, Audience, Deliver, DeliverFrame, OneConnection, Recipients, Record
from mew.testing import MemorySpace
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples


@given(steps=histories())
@examples(40)
def test_a_record_precedes_the_delivery_of_its_envelope(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        recorded: set[object] = set()
        for effect in lab.effects:
            if isinstance(effect, Record):
                recorded |= {effect.envelope_id, (effect.stream_id, effect.frame_number)}
            elif isinstance(effect, DeliverFrame):
                assert (effect.stream_id, effect.frame_number) in recorded
            elif isinstance(effect, Deliver) and effect.kind != "system/error":
                assert effect.envelope_id in recorded


@given(steps=histories())
@examples(30)
def test_the_positions_of_records_have_no_gaps(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    History(lab).play_all(steps)
    assert [record.position for record in lab.records] == list(range(len(lab.records)))


@pytest.mark.parametrize(
    ("audience", "receivers"),
    [
        (EVERYONE, {"alice", "bob", "onlooker"}),
        (AllExcept("alice"), {"bob", "onlooker"}),
        (AllExcept("nobody"), {"alice", "bob", "onlooker"}),
        (Recipients(("alice", "absent")), {"alice"}),
        (Recipients(()), set()),
        (OneConnection("c3"), {"onlooker"}),
        (OneConnection("c9"), set()),
    ],
)
def test_an_audience_has_the_recipients_of_its_name(audience: Audience, receivers: set[str]) -> None:
    lab = MemorySpace(participants={"alice": None, "bob": None})
    clients = [lab.join("alice"), lab.join("bob"), lab.observe("onlooker")]
    for client in clients:
        client.inbox()
    lab.carry_out([Deliver(audience, "chat", "1", b'{"from":"alice","kind":"chat","payload":{"text":"x"}}')])
    assert {client.participant for client in clients if client.kinds()} == receivers
