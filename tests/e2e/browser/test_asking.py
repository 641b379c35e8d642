"""What one may do is asked of the gateway: one question at a time, and again when the space has changed."""

import asyncio
from threading import Event
from typing import Final

from playwright.sync_api import Route, expect

from mew.client import Space
from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import PROPOSAL

LONGER_THAN_IT_ASKS_AGAIN: Final = 2500
QUESTIONS: Final = 4
"""For each card: whether one may send the request, grant it, vote for it, reject it."""
SLOW: Final = """
const soon = window.setTimeout;
window.setTimeout = (work, ms, ...more) => soon(work, ms === 50 ? 500 : ms, ...more);
"""
"""The shortest wait is so long that something happens in it for certain."""
TO_THE_END: Final = """
() => {
  const main = document.getElementById("main");
  main.scrollTo(0, main.scrollHeight);
  return [...document.querySelectorAll(".card")].at(-1).textContent.includes("Approve and grant");
}
"""


async def resume_for_ever(alice: Space) -> None:
    """The space changes at every animation frame."""
    while True:
        await alice.send("participant/resume", {}, to="carol")
        await asyncio.sleep(0.01)


def test_nothing_is_asked_while_an_answer_is_awaited(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    page = tab.act("alice", "approvals").page
    held_routes: list[Route] = []
    free = Event()
    page.route("**/explain*", lambda route: route.continue_() if free.is_set() else held_routes.append(route))
    cast.do(bob.send("mcp/proposal", PROPOSAL, to="carol"))
    expect(page.get_by_role("heading", name="delete_file")).to_be_visible()
    while len(held_routes) < QUESTIONS:
        page.wait_for_timeout(50)
    for _ in range(3):
        cast.do(carol.send("participant/resume", {}, to="bob"))
        page.wait_for_timeout(LONGER_THAN_IT_ASKS_AGAIN / 3)
    assert len(held_routes) == QUESTIONS
    free.set()
    for route in held_routes:
        route.continue_()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def test_a_space_that_never_rests_is_asked_about_all_the_same(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.join("carol")
    tab.page.add_init_script(SLOW)
    page = tab.act("bob").page
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    cast.begin(resume_for_ever(alice))
    cast.do(alice.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "space/invite"}]}))
    expect(page.get_by_role("button", name="Invite…")).to_be_visible()


def test_what_is_not_in_view_is_not_asked_about(tab: Tab, cast: Cast) -> None:
    bob = cast.join("bob")
    cast.join("carol")
    for _ in range(20):
        cast.do(bob.send("mcp/proposal", PROPOSAL, to="carol"))
    questions: list[str] = []
    tab.page.on("request", lambda request: questions.append(request.url) if "/explain" in request.url else None)
    page = tab.act("alice", "approvals").page
    expect(page.locator(".card")).to_have_count(20)
    expect(page.get_by_role("button", name="Approve", exact=True).first).to_be_visible()
    assert page.locator(".card .key").count() < 20 * 4
    assert len(questions) < 20 * (QUESTIONS - 1)
    page.wait_for_function(TO_THE_END, polling=200)
    expect(page.locator(".card").last).to_contain_text("notes/old.md")
