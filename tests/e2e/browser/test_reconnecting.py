"""After a break the page knows what it knew, and what it missed as far as the journal tells."""

from pathlib import Path

from playwright.sync_api import Browser, Page, Route, expect

from mew.client import Space
from tests.e2e.browser.breakable_page import JOURNAL, breakable, broken, excused
from tests.e2e.browser.harness import PARTICIPANTS, Cast, Tab, cast_of
from tests.e2e.browser.scenes import POSITION, PROPOSAL
from tests.gateway.raw import running


def row(page: Page, words: str) -> None:
    expect(page.locator(".event-row", has_text=words)).to_be_visible()


def test_without_a_journal_a_break_takes_nothing_away(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, {"participants": PARTICIPANTS}) as gateway, cast_of(gateway) as cast:
        alice, bob = cast.join("alice"), cast.join("bob")
        with browser.new_context() as context:
            tab = breakable(Tab(context.new_page(), gateway)).observe("timeline")
            page = tab.page
            expect(page.get_by_text("This space has no journal")).to_be_visible()
            cast.do(bob.send("mcp/proposal", PROPOSAL, to="carol"))
            cast.do(alice.chat("before the break"))
            row(page, "before the break")
            with broken(page):
                cast.do(alice.chat("lost message"))
            cast.do(alice.chat("after the break"))
            row(page, "after the break")
            row(page, "before the break")
            expect(page.get_by_role("link", name="Approvals")).to_contain_text("1")
            excused(tab)
            tab.is_fine()


def test_a_journal_that_cannot_be_read_takes_nothing_away_and_is_tried_again(tab: Tab, cast: Cast) -> None:
    alice, bob = cast.join("alice"), cast.join("bob")
    cast.do(bob.send("mcp/proposal", PROPOSAL, to="carol"))
    page = breakable(tab).observe("timeline").page
    cast.do(alice.chat("before the break"))
    row(page, "before the break")
    expect(page.get_by_role("link", name="Approvals")).to_contain_text("1")  # the journal has been read

    def damaged(route: Route) -> None:
        route.fulfill(status=500, json={"error": "internal_error", "message": "the journal cannot be read"})

    page.route(JOURNAL, damaged)
    with broken(page):
        cast.do(alice.chat("during the break"))
    expect(page.get_by_role("status")).to_contain_text("could not be read from the journal")
    row(page, "before the break")
    expect(page.get_by_role("link", name="Approvals")).to_contain_text("1")
    cast.do(alice.chat("after the break"))
    page.unroute(JOURNAL, damaged)
    row(page, "during the break")  # by itself
    expect(page.get_by_role("status")).to_have_count(0)
    for words in ("before", "after"):
        row(page, f"{words} the break")
    excused(tab)


def test_what_was_missed_in_a_break_is_not_the_writers_fault(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.do(cast.do(alice.announce_stream([POSITION], desired_id="cat")).start())

    def send(*sequences: int) -> None:
        for sequence in sequences:
            payload = {"stream": {"stream_id": "cat"}, "sequence": sequence, "content": {"x": 1, "y": 2}}
            cast.do(alice.send("stream/data", payload))

    page = breakable(tab).observe("streams/cat").page
    send(1, 2)
    expect(page.locator("#frames-title + .soft")).to_have_text("the last 2")
    with broken(page):
        send(3, 4, 5, 6)
    send(7, 9)
    missed = page.get_by_role("row", name="sequence 3 to 6")
    expect(missed).to_contain_text("missed while this page was not connected")
    expect(page.get_by_role("row", name="sequence 8 to 8")).to_contain_text("skipped by alice")
    excused(tab)


def steer(cast: Cast, alice: Space, what: str, **payload: float) -> None:
    cast.do(alice.send(f"participant/{what}", payload, to="bob"))


def test_a_pause_ends_when_it_ends_and_not_when_one_before_it_would_have(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.join("bob")
    page = tab.observe().page
    bob = page.get_by_role("button", name="bob")
    steer(cast, alice, "pause", timeout_seconds=5)
    expect(bob).to_contain_text("paused")
    steer(cast, alice, "resume")
    expect(bob).to_contain_text("present")
    steer(cast, alice, "pause")
    page.wait_for_timeout(5500)
    expect(bob).to_contain_text("paused")
    steer(cast, alice, "pause", timeout_seconds=1)
    expect(bob).to_contain_text("present")  # by itself


def test_a_resumption_during_a_break_is_seen_afterwards(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.join("bob")
    page = breakable(tab).observe().page
    bob = page.get_by_role("button", name="bob")
    steer(cast, alice, "pause")
    expect(bob).to_contain_text("paused")
    with broken(page):
        steer(cast, alice, "resume")
    expect(bob).to_contain_text("present")
    with broken(page):
        steer(cast, alice, "pause")
    expect(bob).to_contain_text("paused")
    excused(tab)
