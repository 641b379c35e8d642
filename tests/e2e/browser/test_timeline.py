"""The timeline: what was said before and now, refusals in red, what answers what."""

from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.harness import PARTICIPANTS, Cast, Tab, cast_of
from tests.e2e.browser.scenes import Scene
from tests.gateway.raw import Running, running


def said(page: Page, words: str) -> None:
    """Somewhere in the list, of which only what is seen exists."""
    page.get_by_label("Filter envelopes").fill(words)
    expect(page.locator(".event-row")).to_have_count(1)
    page.get_by_label("Filter envelopes").fill("")


def test_what_was_before_is_read_from_the_journal_refusals_included(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe("timeline").page
    said(page, "Good morning")
    refused = page.locator(".event-row.refused")
    expect(refused).to_have_count(1)
    expect(refused).to_contain_text("mcp/request")
    expect(refused).to_contain_text("capability_violation")
    expect(page.locator(".lane-names li")).to_have_text(["system:gateway", "alice", "bob", "carol"])


def test_refusals_of_others_are_seen_as_they_happen(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    page = tab.observe("timeline").page
    scene.play()
    said(page, "Good morning")
    page.get_by_role("button", name="rejections only").click()
    expect(page.locator(".event-row.refused")).to_contain_text("capability_violation")


def test_an_envelope_is_shown_in_full_with_what_it_answers(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe("timeline").page
    page.locator(".event-row", has_text="mcp/response").first.click()
    details = page.get_by_role("complementary", name="The envelope")
    expect(details).to_contain_text("correlation_id")
    details.get_by_role("button", name="mcp/request bob").click()
    expect(details.get_by_role("heading", level=2)).to_have_text("mcp/request")
    expect(details).to_contain_text('method: "tools/list"')


def test_numbers_from_before_are_as_they_were_written(tab: Tab, cast: Cast) -> None:
    bob = cast.join("bob")
    cast.do(bob.send("mcp/proposal", {"method": "tools/call", "params": {"id": 9007199254740993, "grams": 1.0}}))
    page = tab.observe("timeline").page
    page.locator(".event-row", has_text="mcp/proposal").click()
    details = page.get_by_role("complementary", name="The envelope")
    expect(details).to_contain_text("id: 9007199254740993")
    expect(details).to_contain_text("grams: 1.0")


def test_marks_can_be_pointed_at_and_clicked(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    cast.do(alice.chat("a single mark"))
    row = page.locator(".event-row", has_text="a single mark")
    expect(row).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    canvas = page.locator(".lane-box canvas")
    box = canvas.bounding_box()
    assert box is not None
    lanes = page.locator(".lane-names li").all_inner_texts()
    y = lanes.index("alice") * 30 + 15
    tip = page.locator(".lane-tip", has_text="a single mark")
    for x in range(int(box["width"]) - 4, 0, -6):
        canvas.hover(position={"x": x, "y": y})
        if tip.count():
            canvas.click(position={"x": x, "y": y})
            break
    expect(page.get_by_role("complementary", name="The envelope")).to_contain_text("a single mark")


def test_filters_and_pause(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    scene.play()
    page = tab.observe("timeline").page
    page.get_by_role("button", name="rejections only").click()
    expect(page.locator(".event-row")).to_have_count(1)
    page.get_by_role("button", name="rejections only").click()
    page.get_by_label("Filter envelopes").fill("bob proposal")
    expect(page.locator(".event-row")).to_have_count(2)
    page.get_by_role("button", name="mcp", exact=True).click()
    expect(page.get_by_text("No envelopes")).to_be_visible()
    page.get_by_role("button", name="mcp", exact=True).click()
    page.get_by_label("Filter envelopes").fill("")
    page.get_by_role("button", name="Pause").click()
    cast.do(scene.alice.chat("while it stands still"))
    expect(page.get_by_role("link", name="Approvals")).to_contain_text("2")
    expect(page.locator(".event-row", has_text="while it stands still")).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".event-row", has_text="while it stands still")).to_be_visible()


NOTICE: Final = """
words => new MutationObserver(() => { window.noticed ||= document.body.innerText.includes(words); })
  .observe(document.body, { childList: true, subtree: true, characterData: true })
"""
"""What is there for a moment only is not missed between two looks."""


def test_the_page_comes_back_after_a_break_and_reads_what_it_missed(tab: Tab, cast: Cast, gateway: Running) -> None:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    expect(page.locator(".event-row").first).to_be_visible()

    async def hang_up() -> None:
        for socket in list(gateway.gateway.sockets):
            socket.close(1001, "a test")

    page.evaluate(NOTICE, "Not connected")
    gateway.do(hang_up())
    page.wait_for_function("() => window.noticed")  # an expression alone is nothing a strict page evaluates later
    expect(page.get_by_role("status")).to_have_count(0)
    again = cast.join("alice")
    cast.do(again.chat("are you back?"))
    expect(page.locator(".event-row", has_text="are you back?")).to_be_visible()
    assert alice.connection is None


def test_a_space_without_a_journal_is_seen_from_now_on(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, {"participants": PARTICIPANTS}) as gateway, cast_of(gateway) as cast:
        alice = cast.join("alice")
        cast.do(alice.chat("lost message"))
        with browser.new_context() as context:
            tab = Tab(context.new_page(), gateway).observe("timeline")
            expect(tab.page.get_by_text("This space has no journal")).to_be_visible()
            cast.do(alice.chat("but this is heard"))
            expect(tab.page.locator(".event-row", has_text="but this is heard")).to_be_visible()
            expect(tab.page.locator(".event-row", has_text="lost message")).to_have_count(0)
            assert all("404" in complaint for complaint in tab.complaints)  # the browser's own word for the answer
            tab.complaints.clear()
            tab.is_fine()
