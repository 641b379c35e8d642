"""Charts are drawn when their data changes, and when the page is visible."""

import re
from typing import Final

from playwright.sync_api import expect

from tests.e2e.browser.harness import Cast, Tab

FREEZE: Final = (
    "window.frames_asked = 0; window.requestAnimationFrame = () => { frames_asked += 1; return frames_asked; }"
)
WAIT: Final = "ms => new Promise((done) => setTimeout(done, ms))"
"""By the page's own clock: behind each of its timers that is due sooner."""
HIDE: Final = "Object.defineProperty(document, 'hidden', { configurable: true, value: true })"


def test_a_page_that_is_not_drawn_piles_nothing_up(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.do(alice.open_stream(description="the cat"))
    page = tab.observe("timeline").page
    expect(page.locator(".lane-names li", has_text="alice")).to_have_count(1)  # the journal has been read
    tab.go("space")
    expect(page.get_by_role("link", name="stream-1")).to_be_visible()
    page.evaluate(FREEZE)  # as in a hidden tab: frames are asked for, and do not come
    page.evaluate(WAIT, 1200)
    frames_before = page.evaluate("frames_asked")
    page.evaluate(WAIT, 1200)
    assert page.evaluate("frames_asked") == frames_before


def test_a_hidden_page_asks_for_no_frames(tab: Tab) -> None:
    page = tab.observe("space").page
    expect(page.get_by_text("participants present")).to_be_visible()
    page.evaluate(HIDE)
    page.evaluate(FREEZE)
    page.wait_for_timeout(1500)
    assert page.evaluate("frames_asked") <= 1  # what arrives last


def test_a_theme_reaches_lanes_that_stand_still(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    cast.do(alice.chat("a mark"))
    expect(page.locator(".event-row", has_text="a mark")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    picture = "document.querySelector('.lane-box canvas').toDataURL()"
    light = page.evaluate(picture)
    page.wait_for_timeout(300)
    assert page.evaluate(picture) == light
    page.get_by_label("Theme").select_option("dark")
    page.wait_for_function(f"was => {picture} !== was", arg=light)


def test_the_time_of_absence_grows_in_a_quiet_space(tab: Tab, cast: Cast) -> None:
    bob = cast.join("bob")
    page = tab.observe("space").page
    expect(page.get_by_role("button", name="bob present")).to_be_visible()
    cast.do(bob.close())
    away = page.locator(".person.away")
    expect(away).to_have_text(re.compile(r"bob.*, \d+ s ago"))
    expect(away).not_to_have_text(away.inner_text(), use_inner_text=True)
