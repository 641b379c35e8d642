"""Proposals: they wait, they are decided here, and all participants see the decision."""

from typing import Any

import pytest
from playwright.sync_api import expect

from mew.client import Space
from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import PROPOSAL


def proposed(cast: Cast, bob: Space, **more: Any) -> str:
    return cast.do(bob.send("mcp/proposal", PROPOSAL, to="carol", **more)).id


def test_a_proposal_is_approved_from_the_page(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    earlier = proposed(cast, bob)  # before the page is opened: the journal knows it
    page = tab.act("alice", "approvals").page
    expect(page.get_by_role("heading", name="delete_file")).to_be_visible()
    expect(page.get_by_role("link", name="Approvals")).to_contain_text("1")
    page.get_by_role("button", name="Approve", exact=True).click()
    request = cast.do(anext(requests))
    assert (request.sender, request.correlation_id, request.payload) == ("alice", (earlier,), PROPOSAL)
    expect(page.get_by_role("row", name="delete_file")).to_contain_text("approved by alice")
    expect(page.get_by_text("No open proposals")).to_be_visible()


def test_nothing_is_sent_that_no_digest_covers(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    proposal = {**PROPOSAL, "jsonrpc": "2.0", "id": 7}
    page = tab.act("alice", "approvals").page
    for beside, sent in (
        ({"cwd": "/root", "jsonrpc": 2, "id": ["x"]}, PROPOSAL),
        ({**proposal, "_meta": {}}, proposal),
    ):
        cast.do(bob.send("mcp/proposal", {**PROPOSAL, **beside}, to="carol"))
        page.get_by_role("button", name="Approve", exact=True).click()
        assert cast.do(anext(requests)).payload == sent


def test_approve_and_grant_lets_the_proposer_ask_by_itself(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = tab.act("alice", "approvals").page
    proposed(cast, bob)
    page.get_by_role("button", name="Approve and grant").click()
    assert cast.do(anext(requests)).sender == "alice"
    cast.do(bob.wait_until(lambda view: any(capability.get("to") == ["carol"] for capability in view.you.capabilities)))
    cast.do(bob.send("mcp/request", PROPOSAL, to="carol"))
    assert cast.do(anext(requests)).sender == "bob"


def test_a_rejection_goes_to_the_proposer_with_its_reason(tab: Tab, cast: Cast) -> None:
    bob = cast.join("bob")
    answers = bob.envelopes("mcp/reject")
    cast.join("carol")
    page = tab.act("alice", "approvals").page
    proposal = proposed(cast, bob)
    page.get_by_label("Reason").fill("it is not empty")
    page.get_by_role("button", name="Reject").click()
    answer = cast.do(anext(answers))
    assert (answer.correlation_id, answer.payload) == ((proposal,), {"reason": "it is not empty"})
    expect(page.get_by_role("row", name="delete_file")).to_contain_text("rejected by alice · it is not empty")


def test_a_participant_that_may_not_decide_sees_the_reason(tab: Tab, cast: Cast) -> None:
    carol = cast.join("carol")
    page = tab.act("bob", "approvals").page
    cast.do(carol.send("mcp/proposal", PROPOSAL, to="alice"))
    expect(page.get_by_text("You may neither approve nor reject this.")).to_be_visible()
    cast.do(carol.send("mcp/withdraw", {}, correlation_id=cast.do(carol.send("mcp/proposal", PROPOSAL)).id))
    expect(page.get_by_text("withdrawn by carol")).to_be_visible()


def test_who_may_ask_only_some_picks_one_of_them(tab: Tab, cast: Cast) -> None:
    alice, carol = cast.join("alice"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    right = {"kind": "mcp/request", "payload": {"method": "tools/call"}, "to": ["carol"]}
    page = tab.act("bob", "approvals").page
    cast.do(alice.send("capability/grant", {"recipient": "bob", "capabilities": [right]}))
    cast.do(alice.send("mcp/proposal", PROPOSAL))  # without a recipient
    page.get_by_label("Recipient").select_option("alice")
    expect(page.get_by_text("You may not send this request to alice.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    page.get_by_label("Recipient").select_option("carol")
    page.get_by_role("button", name="Approve").click()
    request = cast.do(anext(requests))
    assert (request.sender, request.to, request.payload) == ("bob", ("carol",), PROPOSAL)


@pytest.mark.parametrize("when", ["before", "while"])
def test_what_is_approved_has_the_numbers_that_were_proposed(tab: Tab, cast: Cast, when: str) -> None:
    """A double holds neither the first, nor that the second was written with a point; nor may the journal lose that."""
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    call = {"method": "tools/call", "params": {"name": "pay", "arguments": {"account": 9007199254740993, "sum": 1.0}}}
    if when == "before":
        cast.do(bob.send("mcp/proposal", call, to="carol"))
    page = tab.act("alice", "approvals").page
    if when == "while":
        cast.do(bob.send("mcp/proposal", call, to="carol"))
    expect(page.locator(".card .number")).to_have_text(["9007199254740993", "1.0"])
    page.get_by_role("button", name="Approve", exact=True).click()
    assert repr(cast.do(anext(requests)).payload) == repr(call)
