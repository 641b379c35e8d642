"""Attacks on a person who approves in the page: what is shown is what is sent, or nothing is."""

import json
from typing import Any, Final

import pytest
from playwright.sync_api import Page, Route, expect

from mew.client import Space
from mew.client.errors import MewError
from tests.e2e.browser.breakable_page import breakable
from tests.e2e.browser.harness import Cast, Tab
from tests.gateway.raw import Running

FRAMES: Final = 60_000
HIDDEN: Final = "notes/\u202ehsab.txt\u200b\u3164\ufe0f\u00ad"
SHOWN: Final = r"notes/\u{202e}hsab.txt\u{200b}\u{3164}\u{fe0f}\u{ad}"
INJECT: Final = "data => window.line.dispatchEvent(new MessageEvent('message', { data }))"
CLICK_WHEN_IT_MOVES: Final = """
() => {
  window.clicked = 0;
  const before = document.querySelectorAll(".card").length;
  new MutationObserver((_, watcher) => {
    const cards = document.querySelectorAll(".card");
    if (cards.length === before) return;
    watcher.disconnect();
    for (const button of cards[0].querySelectorAll(".decide button")) { window.clicked += 1; button.click(); }
  }).observe(document.querySelector("main"), { childList: true, subtree: true });
}
"""


def call(tool: Any, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


READ: Final = call("read_file", path="a")
EXEC: Final = call("exec_file", path="a")


def propose(cast: Cast, space: Space, payload: Any = READ, to: Any = "carol") -> str:
    return cast.do(space.send("mcp/proposal", payload, to=to)).id


def card(page: Page, title: str) -> Any:
    return page.get_by_role("article").filter(has=page.get_by_role("heading", name=title, exact=True))


def approve(page: Page, title: str) -> None:
    card(page, title).get_by_role("button", name="Approve", exact=True).click()


def nothing_was_asked(cast: Cast, carol: Space, requests: Any) -> None:
    """The first request that comes is the one that is sent now."""
    cast.do(carol.send("mcp/request", {"method": "last"}, to="carol"))
    assert cast.do(anext(requests)).payload == {"method": "last"}


def set_late(page: Page, gateway: Running, seconds: int) -> None:
    """Put the gateway's clock forward, and no other, while the page's next message is in flight."""
    hub = gateway.gateway.first_hub
    clock = hub.clock

    def forward(route: Route) -> None:
        hub.clock = lambda: clock() + seconds * 1_000_000
        route.continue_()

    page.route("**/messages*", forward, times=1)


def test_what_timed_out_is_not_approved_14_seconds_later(tab: Tab, cast: Cast, gateway: Running) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = tab.act("alice", "approvals").page
    cast.do(bob.propose("carol", "tools/call", READ["params"], expires_in=30))
    expect(card(page, "read_file").get_by_role("button", name="Approve", exact=True)).to_be_enabled()
    set_late(page, gateway, 44)
    approve(page, "read_file")
    expect(page.get_by_text("expired: no decision in time")).to_be_visible()
    nothing_was_asked(cast, carol, requests)
    tab.complaints = [complaint for complaint in tab.complaints if "409" not in complaint]


def test_buttons_are_inert_in_the_last_two_seconds(tab: Tab, cast: Cast) -> None:
    bob, _ = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    cast.do(bob.propose("carol", "tools/call", READ["params"], expires_in=30))
    button = card(page, "read_file").get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_enabled()
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 28_500; }")
    expect(button).to_be_disabled()


def test_60000_frames_and_520_proposals_hide_nothing(tab: Tab, cast: Cast) -> None:
    bob, carol, dana = cast.join("bob"), cast.join("carol"), cast.join("dana")
    requests = carol.envelopes("mcp/request")
    propose(cast, bob)

    async def noise() -> None:
        for _ in range(520):
            await dana.send("mcp/proposal", EXEC, to="carol")
        stream = await dana.open_stream()
        for _ in range(FRAMES):
            await stream.send(b"x")
        await stream.close()

    cast.do(noise(), 50)
    page = tab.act("alice", "approvals").page
    expect(page.get_by_role("link", name="Approvals")).to_contain_text("65")
    expect(page.get_by_role("article").first).to_contain_text("read_file")
    approve(page, "read_file")
    assert cast.do(anext(requests)).payload == READ


@pytest.mark.parametrize("stamp", [None, {"position": 1, "digest": "0", "expires_at": "2099-01-01T00:00:00.000000Z"}])
def test_a_second_proposal_of_the_same_id_replaces_no_card(tab: Tab, cast: Cast, stamp: Any) -> None:
    """Refused by the gateway; if it were relayed all the same, the page would go by the position."""
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = breakable(tab).act("alice", "approvals").page
    proposal_id = propose(cast, bob)
    button = card(page, "read_file").get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_enabled()
    forged = {"id": proposal_id, "ts": "", "from": "dana", "to": ["carol"], "kind": "mcp/proposal", "payload": EXEC}
    page.evaluate(INJECT, json.dumps(forged if stamp is None else {**forged, "proposal": stamp}))
    button.click()
    assert cast.do(anext(requests)).payload == READ
    tab.complaints = [
        complaint for complaint in tab.complaints if "404" not in complaint
    ]  # there is nothing at that position


def test_a_card_that_moves_under_the_pointer_takes_no_click(tab: Tab, cast: Cast) -> None:
    bob, carol, dana = cast.join("bob"), cast.join("carol"), cast.join("dana")
    requests, rejected = carol.envelopes("mcp/request"), carol.envelopes("mcp/reject")
    page = tab.act("alice", "approvals").page
    first = propose(cast, bob)
    propose(cast, dana, EXEC)
    for title in ("read_file", "exec_file"):
        expect(card(page, title).get_by_role("button", name="Approve", exact=True)).to_be_enabled()
    page.evaluate(CLICK_WHEN_IT_MOVES)
    cast.do(bob.send("mcp/withdraw", correlation_id=first))
    expect(page.get_by_role("article")).to_have_count(1)
    assert page.evaluate("window.clicked") == 3  # approve, approve and grant, reject
    nothing_was_asked(cast, carol, requests)
    approve(page, "exec_file")  # half a second later it is meant
    assert cast.do(anext(requests)).payload == EXEC
    cast.do(carol.send("mcp/reject", {"reason": "mine"}, correlation_id="nothing"))
    assert cast.do(anext(rejected)).payload == {"reason": "mine"}


@pytest.mark.parametrize("tool", ["*", "!nothing", "read*", 7, ["read_file"]], ids=repr)
def test_the_page_grants_no_pattern(tab: Tab, cast: Cast, tool: Any) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = tab.act("alice", "approvals").page
    propose(cast, bob, call(tool))
    expect(page.get_by_text("This cannot be granted: ")).to_be_visible()
    expect(page.get_by_role("button", name="Approve and grant")).to_have_count(0)
    page.get_by_role("button", name="Approve", exact=True).click()
    assert cast.do(anext(requests)).payload == call(tool)


def test_a_grant_names_the_recipients_and_ends_after_an_hour(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    grants = carol.envelopes("capability/grant")
    page = tab.act("alice", "approvals").page
    propose(cast, bob)
    words = "lets bob call the tool “read_file” of carol by itself, with any arguments"
    expect(page.get_by_role("article")).to_contain_text(words)
    page.get_by_role("button", name="Approve and grant").click()
    granted = cast.do(anext(grants)).payload
    capability = {"kind": "mcp/request", "to": ["carol"], "payload": {**READ, "params": {"name": "read_file"}}}
    assert (granted["capabilities"], granted["timeout_seconds"]) == ([capability], 3600)
    for to, payload in (("dana", READ), ("carol", EXEC)):
        with pytest.raises(MewError):
            cast.do(bob.send("mcp/request", payload, to=to))


def test_what_is_refused_is_not_granted_either(tab: Tab, cast: Cast, gateway: Running) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    grants = carol.envelopes("capability/grant")
    page = tab.act("alice", "approvals").page
    cast.do(bob.propose("carol", "tools/call", READ["params"], expires_in=30))
    expect(page.get_by_role("button", name="Approve and grant")).to_be_enabled()
    set_late(page, gateway, 44)
    page.get_by_role("button", name="Approve and grant").click()
    expect(page.get_by_text("expired: no decision in time")).to_be_visible()
    cast.do(carol.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "chat"}]}))
    assert cast.do(anext(grants)).sender == "carol"
    tab.complaints = [complaint for complaint in tab.complaints if "409" not in complaint]


def test_hidden_characters_are_shown_as_numbers(tab: Tab, cast: Cast) -> None:
    bob, _ = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    propose(cast, bob, call(HIDDEN, path=HIDDEN, **{HIDDEN: 1}))
    expect(page.get_by_role("heading", name=SHOWN)).to_be_visible()
    expect(page.locator(".card .string", has_text=SHOWN)).to_have_count(2)
    expect(page.locator(".card .key", has_text=SHOWN)).to_have_count(1)
    page.get_by_role("button", name="Show all of it as text").click()
    expect(page.locator(".card pre")).to_contain_text(SHOWN)
    assert not any(character in page.inner_text("main") for character in HIDDEN if ord(character) > 0x7F)


def test_a_method_is_not_shown_as_the_tool_that_it_names(tab: Tab, cast: Cast) -> None:
    bob, _ = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    propose(cast, bob, {"method": "resources/delete", "params": {"name": "read_file"}})
    expect(page.get_by_role("heading", name="resources/delete")).to_be_visible()


@pytest.mark.parametrize("arguments", [{"__proto__": {"name": "x"}}, {"constructor": 1, "toString": 2}], ids=str)
def test_names_of_the_language_are_shown_and_sent_as_they_are(tab: Tab, cast: Cast, arguments: Any) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = tab.act("alice", "approvals").page
    asks = {"method": "tools/call", "params": {"name": "read_file", "arguments": arguments, "__proto__": {"name": "y"}}}
    propose(cast, bob, asks)
    expect(page.locator(".card .key", has_text="__proto__").first).to_be_visible()
    approve(page, "read_file")
    assert cast.do(anext(requests)).payload == asks


def test_forged_ends_close_no_card(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = breakable(tab).act("alice", "approvals").page
    proposal_id = propose(cast, bob)
    expect(card(page, "read_file")).to_be_visible()
    for kind in ("mcp/request", "mcp/response", "mcp/reject", "mcp/withdraw", "mcp/proposal-closed"):
        payload = {"position": 3, "proposal": proposal_id, "outcome": "expired"}
        forged = {
            "id": kind,
            "ts": "",
            "from": "dana",
            "kind": kind,
            "correlation_id": [proposal_id],
            "payload": payload,
        }
        page.evaluate(INJECT, json.dumps(forged))
    approve(page, "read_file")
    assert cast.do(anext(requests)).payload == READ


def test_a_removed_proposers_card_goes(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    propose(cast, bob)
    expect(card(page, "read_file")).to_be_visible()
    cast.do(carol.send("space/kick", {"participant_id": "bob"}))
    expect(page.get_by_text("closed: its proposer was removed")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(0)


def test_a_proposer_that_has_left_is_shown_so(tab: Tab, cast: Cast) -> None:
    bob, _ = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    propose(cast, bob)
    cast.do(bob.close())
    expect(card(page, "read_file")).to_contain_text("bob (not present)")
