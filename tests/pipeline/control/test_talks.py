"""Conversations: who answers whom, how it ends, and when it is over."""

from typing import Any

import pytest
from msgspec.structs import replace as structs_replace

from mew.pipeline.control import talks
from mew.testing import Client, MemorySpace
from tests.pipeline.control.folded import fold_lab, fold_records, rows, violations

EVE: list[dict[str, Any]] = [{"kind": "mcp/reject"}, {"kind": "mcp/response"}]
ANYTHING: dict[str, Any] = {"participants": {name: [{"kind": "*"}] for name in ("ada", "ben", "tool")} | {"eve": EVE}}
SECOND = 1_000_000


@pytest.fixture
def lab() -> MemorySpace:
    return MemorySpace(**ANYTHING)


def say(client: Client, envelope_id: str, kind: str, answers: str | None = None, **payload: Any) -> None:
    """Something, a tenth of a second after what was before."""
    client._lab.now += SECOND // 10
    named = {} if answers is None else {"correlation_id": [answers]}
    client.send({"id": envelope_id, **named}, kind=kind, payload=payload)


def conversations(lab: MemorySpace) -> dict[str, dict[str, Any]]:
    return {row["root"]: row for row in rows(fold_lab(lab), "conversations")}


def test_a_proposal_is_decided_by_a_request_and_fulfilled_by_its_response(lab: MemorySpace) -> None:
    ada, ben, tool = lab.join("ada"), lab.join("ben"), lab.join("tool")
    say(ada, "p", "mcp/proposal", method="tools/call")
    say(ben, "r", "mcp/request", "p", method="tools/call")
    say(tool, "a", "mcp/response", "r", result={})
    row = conversations(lab)["p"]
    assert row["kinds"] == ["mcp/proposal", "mcp/request", "mcp/response"]
    assert row["participants"] == ["ada", "ben", "tool"]
    assert (row["method"], row["outcome"]) == ("tools/call", "fulfilled")
    assert (row["decided_after"], row["answered_after"]) == (SECOND // 10, 2 * SECOND // 10)
    assert row["open"]


@pytest.mark.parametrize(
    ("root", "kind", "payload", "outcome"),
    [
        ("mcp/proposal", "mcp/reject", {"reason": "unsafe"}, "rejected"),
        ("mcp/proposal", "mcp/withdraw", {}, "withdrawn"),
        ("mcp/request", "mcp/response", {"result": 1}, "fulfilled"),
        ("mcp/request", "mcp/response", {"error": {"code": 1}}, "rejected"),
        ("mcp/request", "mcp/response", {"result": 1, "error": None}, "fulfilled"),
        ("chat", "chat", {"text": "yes"}, "fulfilled"),
        ("chat", "chat/cancel", {}, "cancelled"),
        ("chat", "chat/acknowledge", {}, "open"),
        ("mcp/proposal", "chat", {"text": "why?"}, "open"),
        ("mcp/request", "chat/cancel", {}, "open"),
    ],
)
def test_an_outcome_is_what_its_kind_says_of_such_a_beginning(
    lab: MemorySpace, root: str, kind: str, payload: dict[str, Any], outcome: str
) -> None:
    ada, ben = lab.join("ada"), lab.join("ben")
    say(ada, "root", root, method="m", text="t")
    say(ada if kind == "mcp/withdraw" else ben, "answer", kind, "root", **payload)
    row = conversations(lab)["root"]
    assert (row["kinds"], row["outcome"]) == ([root, kind], outcome)
    assert (row["answered_after"] is None) == (outcome == "open")


def test_thoughts_belong_to_the_reasoning_that_is_their_context(lab: MemorySpace) -> None:
    ada = lab.join("ada")
    say(ada, "think", "reasoning/start", message="how?")
    ada.send(kind="reasoning/thought", id="t1", context="think", payload={"message": "so"})
    ada.send(kind="mcp/proposal", id="p", context="think", payload={"method": "m"})
    ada.send(kind="reasoning/thought", id="t2", context={"not": "text"}, payload={})
    ada.send(kind="reasoning/conclusion", id="c", context="think", payload={"message": "thus"})
    found = conversations(lab)
    assert found["think"]["kinds"] == ["reasoning/start", "reasoning/thought", "reasoning/conclusion"]
    assert found["think"]["outcome"] == "fulfilled"
    assert found["p"]["kinds"] == ["mcp/proposal"]


def test_a_refusal_is_overtaken_by_a_fulfilment_and_nothing_else_is_by_anything(lab: MemorySpace) -> None:
    """A request without a stamp is not decided: another answer may follow."""
    ada, ben, tool = lab.join("ada"), lab.join("ben"), lab.join("tool")
    say(ada, "p", "mcp/request", method="m")
    say(ben, "why", "chat", "p", text="is it safe?")
    say(ben, "no", "mcp/response", "p", error={"code": 1})
    say(tool, "yes", "mcp/response", "p", result=1)
    say(tool, "late", "mcp/response", "p", error={"code": 2})
    row = conversations(lab)["p"]
    assert row["outcome"] == "fulfilled"
    assert row["answered_after"] == 3 * SECOND // 10


def test_of_a_kept_proposal_only_stamps_decide(lab: MemorySpace) -> None:
    """An opinion is part of the conversation and no outcome; what closed it stays."""
    ada, ben, eve = lab.join("ada"), lab.join("ben"), lab.join("eve")
    say(ada, "p", "mcp/proposal", method="m")
    say(eve, "opinion", "mcp/reject", "p")
    say(eve, "forged", "mcp/response", "p", result={})
    row = conversations(lab)["p"]
    assert (row["kinds"], row["outcome"]) == (["mcp/proposal", "mcp/reject", "mcp/response"], "open")
    assert row["decided_after"] is None
    say(ben, "no", "mcp/reject", "p")
    say(ben, "late", "mcp/request", "p", method="m")
    row = conversations(lab)["p"]
    assert (row["outcome"], row["decided_after"]) == ("rejected", 3 * SECOND // 10)


def propose(client: Client, envelope_id: str, **fields: Any) -> dict[str, int | str]:
    client.inbox()
    client.send(fields, id=envelope_id, kind="mcp/proposal", payload={"method": "m"})
    stamp: dict[str, Any] = client.take("mcp/proposal")["proposal"]
    return {"position": stamp["position"], "digest": stamp["digest"]}


@pytest.mark.parametrize("kind", ["mcp/request", "mcp/reject", "mcp/withdraw"])
@pytest.mark.parametrize("named", [["p"], ["c", "p"]])
def test_what_is_stamped_ends_the_proposal_at_that_position_whatever_ids_say(
    lab: MemorySpace, kind: str, named: list[str]
) -> None:
    ada, ben, tool = lab.join("ada"), lab.join("ben"), lab.join("tool")
    say(ada, "c", "chat", text="hello")
    claim = propose(ada, "p")
    say(tool, "p", "chat", text="I take the id over")
    sender = ada if kind == "mcp/withdraw" else ben
    sender.send(kind=kind, id="end", correlation_id=named, payload={"method": "m"}, proposal=claim)
    say(ada, "end", "chat", text="I take that over")
    say(tool, "answer", "mcp/response", "end", result={})
    found = [row for row in rows(fold_lab(lab), "conversations") if row["root_kind"] == "mcp/proposal"]
    outcome = {"mcp/request": "fulfilled", "mcp/reject": "rejected", "mcp/withdraw": "withdrawn"}[kind]
    assert [(row["root"], row["outcome"]) for row in found] == [("p", outcome)]
    assert found[0]["kinds"][:2] == ["mcp/proposal", kind]
    assert lab.state.closed_proposals["p"].outcome == outcome


def test_only_an_answer_to_the_request_that_fulfilled_a_proposal_is_its_outcome(lab: MemorySpace) -> None:
    ada, ben, eve = lab.join("ada"), lab.join("ben"), lab.join("eve")
    propose(ada, "p")
    say(eve, "opinion", "mcp/reject", "p")
    say(eve, "forged", "mcp/response", "opinion", result={})
    assert conversations(lab)["p"]["outcome"] == "open"
    say(ben, "r", "mcp/request", "p", method="m")
    say(eve, "late", "mcp/response", "opinion", result={})
    assert conversations(lab)["p"]["outcome"] == "open"
    say(eve, "answer", "mcp/response", "r", error={"code": 1})
    assert conversations(lab)["p"]["outcome"] == "rejected"


def test_a_stamp_of_another_proposal_decides_nothing(lab: MemorySpace) -> None:
    """Its conversation is not in the table: the journal of this part begins later."""
    ada = lab.join("ada")
    claim = propose(ada, "q")
    propose(ada, "p")
    ada.send(kind="mcp/withdraw", id="w", correlation_id=["q"], payload={}, proposal=claim)
    lab.advance(300)
    later = [each for each in lab.records if each.envelope_id != "q"]
    later = [
        each if each.envelope_id != "w" else structs_replace(each, payload=each.payload.replace(b'["q"]', b'["p"]'))
        for each in later
    ]
    found = {row["root"]: row for row in rows(fold_records("lab", later, to=later[-1].position), "conversations")}
    assert found["p"]["outcome"] == "expired"


def test_an_open_proposal_waits_until_it_expires_and_ends_as_the_gateway_says(lab: MemorySpace) -> None:
    ada = lab.join("ada")
    ada.send(kind="mcp/proposal", id="p", payload={"method": "m"}, proposal={"expires_in_seconds": 3_600})
    lab.advance(3_000)
    say(ada, "then", "chat", text="still there?")
    assert (conversations(lab)["p"]["outcome"], conversations(lab)["p"]["open"]) == ("open", True)
    lab.advance(600)
    row = conversations(lab)["p"]
    assert (row["kinds"], row["outcome"]) == (["mcp/proposal", "mcp/proposal-closed"], "expired")


def test_where_no_end_was_told_an_open_proposal_is_over_when_it_has_expired(lab: MemorySpace) -> None:
    """The journal ends while the gateway is down, and continues in a part without that record."""
    ada = lab.join("ada")
    ada.send(kind="mcp/proposal", id="p", payload={"method": "m"}, proposal={"expires_in_seconds": 3_600})
    lab.advance(4_000)
    say(ada, "then", "chat", text="hello?")
    kept = [each for each in lab.records if each.kind != "mcp/proposal-closed"]
    found = {row["root"]: row for row in rows(fold_records("lab", kept, to=kept[-1].position), "conversations")}
    assert (found["p"]["outcome"], found["p"]["open"]) == ("expired", False)


def test_what_the_gateway_refused_or_consumed_or_said_itself_is_no_part_of_it(lab: MemorySpace) -> None:
    ada = lab.join("ada")
    say(ada, "c", "chat", text="hello")
    say(ada, "bad", "chat", "c", text="")
    say(ada, "beat", "system/heartbeat", "c")
    assert conversations(lab)["c"]["kinds"] == ["chat"]


def test_nobody_answers_and_it_expires_by_the_journals_time(lab: MemorySpace) -> None:
    ada = lab.join("ada")
    say(ada, "c", "chat", text="anybody?")
    lab.now += talks.PATIENCE - 1
    ada.send(kind="system/heartbeat", payload={})
    assert (conversations(lab)["c"]["outcome"], conversations(lab)["c"]["open"]) == ("open", True)
    lab.now += 1
    ada.send(kind="system/heartbeat", payload={})
    assert (conversations(lab)["c"]["outcome"], conversations(lab)["c"]["open"]) == ("expired", False)
    say(ada, "too late", "chat", "c", text="me")
    assert conversations(lab)["c"]["kinds"] == ["chat"]
    assert conversations(lab)["too late"]["kinds"] == ["chat"]


def test_late_words_belong_to_it_for_a_minute(lab: MemorySpace) -> None:
    ada, ben = lab.join("ada"), lab.join("ben")
    say(ada, "c", "chat", text="who?")
    say(ben, "me", "chat", "c", text="me")
    lab.now += talks.LINGER - SECOND
    say(ben, "too", "chat", "me", text="and you")
    lab.now += talks.LINGER
    ada.send(kind="system/heartbeat", payload={})
    row = conversations(lab)["c"]
    assert (row["kinds"], row["outcome"], row["open"]) == (["chat"] * 3, "fulfilled", False)
    assert row["answered_after"] == SECOND // 10


def test_of_an_id_that_is_used_again_the_last_use_counts(lab: MemorySpace) -> None:
    ada, ben = lab.join("ada"), lab.join("ben")
    say(ada, "same", "chat", text="one")
    say(ada, "same", "chat", text="two")
    say(ben, "answer", "chat", "same", text="to the second")
    say(ada, "same", "chat", "answer", text="once more in the same")
    found = [row for row in rows(fold_lab(lab), "conversations") if row["root"] == "same"]
    assert [row["kinds"] for row in found] == [["chat"], ["chat", "chat", "chat"]]
    lab.now += talks.LINGER
    ada.send(kind="system/heartbeat", payload={})
    say(ben, "nobody", "chat", "same", text="the second is over")
    found = rows(fold_lab(lab), "conversations")
    assert {row["root"]: row["kinds"] for row in found}["nobody"] == ["chat"]
    lab.now += talks.PATIENCE
    ada.send(kind="system/heartbeat", payload={})
    once = fold_lab(lab)
    assert violations(once) == {}
    assert {row["outcome"] for row in rows(once, "conversations")} == {"expired", "fulfilled"}
    state: bytes | None = None
    over: list[dict[str, Any]] = []
    for record in lab.records:
        part = fold_records("lab", [record], to=record.position, state=state)
        state, over = part.state, [*over, *(row for row in rows(part, "conversations") if not row["open"])]
    assert over == rows(once, "conversations")


def test_there_are_only_so_many_at_once_and_so_long(lab: MemorySpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "MOST", 3)
    monkeypatch.setattr(talks, "LONGEST", 4)
    ada = lab.join("ada")
    for name in "abcde":
        say(ada, name, "chat", text=name)
    found = conversations(lab)
    assert {name: row["open"] for name, row in found.items()} == {
        "a": False,
        "b": False,
        "c": True,
        "d": True,
        "e": True,
    }
    for number in range(5):
        say(ada, f"c{number}", "chat", "c", text="on")
    found = conversations(lab)
    assert len(found["c"]["kinds"]) == 4
    assert not found["c"]["open"]
