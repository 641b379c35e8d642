"""What is chosen in a list is seen, by whatever it was chosen."""

from typing import Final

from playwright.sync_api import Locator, Page, expect

from mew.client import Space
from tests.e2e.browser.harness import Cast, Tab

SEEN: Final = """
list => {
  const row = document.getElementById(list.getAttribute("aria-activedescendant"));
  if (!row || row.getAttribute("aria-selected") !== "true") return null;
  const [inner, outer] = [row.getBoundingClientRect(), list.getBoundingClientRect()];
  return inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1 ? row.textContent : null;
}
"""


def seen(box: Locator, words: str) -> None:
    """The chosen row is drawn, and not beyond an edge of the list."""
    expect(box.locator("[aria-selected=true]")).to_contain_text(words)
    assert words in (box.evaluate(SEEN) or "")


async def talk(alice: Space, count: int) -> None:
    for number in range(count):
        await alice.chat(f"line {number:03}{' five' if number % 10 == 5 else ''}")


def talked(tab: Tab, cast: Cast, count: int = 120) -> tuple[Page, Locator]:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    cast.do(talk(alice, count))
    page.get_by_label("Filter envelopes").fill("line")
    expect(page.locator(".view-head")).to_contain_text(f"{count} of")
    return page, page.get_by_role("listbox")


def test_the_timeline_follows_the_page_keys(tab: Tab, cast: Cast) -> None:
    page, box = talked(tab, cast)
    box.focus()
    page.keyboard.press("ArrowDown")
    seen(box, "line 119")
    for number in (109, 99, 89, 79, 69):
        page.keyboard.press("PageDown")
        seen(box, f"line {number:03}")
    page.keyboard.press("ArrowUp")
    seen(box, "line 070")
    for _ in range(6):
        page.keyboard.press("PageUp")
    seen(box, "line 119")


def test_a_key_that_leads_nowhere_else_shows_what_is_chosen(tab: Tab, cast: Cast) -> None:
    page, box = talked(tab, cast)
    box.focus()
    page.keyboard.press("ArrowDown")
    seen(box, "line 119")
    box.evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(box.locator("[aria-selected=true]")).to_have_count(0)
    page.keyboard.press("ArrowUp")
    seen(box, "line 119")


def test_what_is_chosen_elsewhere_is_seen_in_the_list(tab: Tab, cast: Cast) -> None:
    alice, bob = cast.join("alice"), cast.join("bob")
    page = tab.observe("timeline").page
    proposal = cast.do(bob.send("mcp/proposal", {"method": "tools/list"}))
    cast.do(talk(alice, 80))
    cast.do(alice.send("mcp/reject", {"reason": "later"}, correlation_id=proposal.id))
    page.locator(".event-row", has_text="mcp/reject").click()
    page.get_by_role("complementary", name="The envelope").get_by_role("button", name="mcp/proposal bob").click()
    seen(page.get_by_role("listbox"), "mcp/proposal")


def test_from_one_that_is_gone_keys_lead_to_the_nearest(tab: Tab, cast: Cast) -> None:
    page, box = talked(tab, cast)
    box.focus()
    for _ in range(8):
        page.keyboard.press("PageDown")
    seen(box, "line 040")
    page.get_by_label("Filter envelopes").fill("five")
    expect(page.locator(".view-head")).to_contain_text("12 of")
    box.focus()
    page.keyboard.press("ArrowDown")
    seen(box, "line 035")
    page.keyboard.press("ArrowUp")
    seen(box, "line 045")


def test_the_list_of_frames_follows_the_page_keys(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    stream = cast.do(alice.open_stream(description="counts"))
    page = tab.observe(f"streams/{stream.stream_id}").page
    expect(page.get_by_text("No frames yet")).to_be_visible()

    async def count() -> None:
        for number in range(60):
            await stream.send(f"frame {number:03}")

    cast.do(count())
    box = page.get_by_role("listbox")
    expect(page.locator("#frames-title + .soft")).to_have_text("the last 60")
    box.focus()
    for number in (49, 39, 29):
        page.keyboard.press("PageDown")
        seen(box, f"frame {number:03}")
    page.keyboard.press("ArrowDown")
    seen(box, "frame 028")


def test_a_frame_that_was_let_go_leads_to_the_oldest(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    stream = cast.do(alice.open_stream(description="counts"))
    page = tab.observe(f"streams/{stream.stream_id}").page
    cast.do(stream.send("the first"))
    page.locator(".frame-row", has_text="the first").click()

    async def count() -> None:
        for _ in range(1600):
            await stream.send("another")

    cast.do(count(), 60)
    box = page.get_by_role("listbox")
    expect(box.locator(".frame-row").first).to_contain_text("1,601")
    expect(box.locator("[aria-selected=true]")).to_have_count(0)
    box.focus()
    page.keyboard.press("ArrowDown")
    expect(box.locator("[aria-selected=true]")).to_have_count(1)
    assert page.evaluate("document.querySelector('.frame-list').scrollTop") > 10_000
