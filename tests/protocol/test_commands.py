"""Commands: each one is carried out, and none can be modified."""

from typing import get_args

import pytest

from mew.protocol import (
    Administer,
    AttachOutputLog,
    Checkpoint,
    Command,
    HttpAnswer,
    Join,
    Leave,
    Poll,
    Post,
    Receive,
    RefuseConnection,
    ReportLoss,
    Start,
    Tick,
)
from mew.testing import MemorySpace

EXAMPLES: list[Command] = [
    Start("epoch2"),
    Join(connection="c1", participant="alice"),
    AttachOutputLog("alice"),
    Leave("c1"),
    Receive("c1", b"{}"),
    Post("alice", b"{}"),
    Poll("alice"),
    ReportLoss(participant="alice", stream_id="stream-1", first=1, last=2, dropped=2),
    Tick(),
    Checkpoint(),
    RefuseConnection(error="unauthorized", peer="10.0.0.1:99", transport="websocket"),
    Administer(action="token_created", participant="alice"),
]


def test_every_command_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(Command))


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_a_space_carries_out_every_command_at_any_time(command: Command) -> None:
    MemorySpace().run(command)
    lab = MemorySpace(participants={"alice": None})
    lab.join("alice")
    lab.run(command)


@pytest.mark.parametrize("command", [Start("epoch2"), Poll("alice")])
def test_a_command_cannot_be_modified(command: Command) -> None:
    with pytest.raises(AttributeError):
        command.epoch = "another"  # type: ignore[union-attr,misc]


def test_a_message_is_text_by_default() -> None:
    assert Receive("c1", b"#s#data").text


@pytest.mark.parametrize("command", [Post("alice", b"{"), Post("alice", b'{"kind":"chat","to":1}'), Poll("alice")])
def test_an_answer_keeps_no_traceback_of_its_refusal(command: Command) -> None:
    lab = MemorySpace(participants={"alice": None, "bob": [{"kind": "*"}]})
    lab.join("bob").send(kind="space/kick", payload={"participant_id": "alice"})
    answers = [effect for effect in lab.space.handle(command, lab.now) if isinstance(effect, HttpAnswer)]
    (refusal,) = [answer.refusal for answer in answers]
    assert refusal is not None
    assert (refusal.__traceback__, refusal.__context__, refusal.__cause__) == (None, None, None)
