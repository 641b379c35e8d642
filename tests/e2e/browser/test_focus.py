"""A dialog takes the focus and gives it back: it is never lost."""

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import Scene

AT_ONCE: Final = """
async () => {
  document.querySelector("dialog [aria-label=Close]").click();
  for (let turn = 0; turn < 20; turn += 1) await null;  // no task of the browser's own comes in between
  [...document.querySelectorAll("button")].find((each) => each.textContent === "Grant…").click();
}
"""


@pytest.mark.parametrize("way", ["Escape", "the button", "what it is for"])
def test_a_dialog_gives_the_focus_back(tab: Tab, cast: Cast, way: str) -> None:
    cast.join("bob")
    page = tab.act("alice").page
    page.get_by_role("button", name="bob present").click()
    opener = page.get_by_role("button", name="Grant…")
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    if way == "Escape":
        page.keyboard.press("Escape")
    elif way == "the button":
        dialog.get_by_role("button", name="Close").click()
    else:
        dialog.get_by_label("Capabilities").fill('[{"kind": "reasoning/*"}]')
        dialog.get_by_role("button", name="Grant").click()
    expect(dialog).to_have_count(0)
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")  # and again
    expect(dialog).to_be_visible()


def test_a_dialog_that_is_reopened_immediately_stays_open(tab: Tab, cast: Cast) -> None:
    cast.join("bob")
    page = tab.act("alice").page
    page.get_by_role("button", name="bob present").click()
    page.get_by_role("button", name="Grant…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.evaluate(AT_ONCE)
    page.wait_for_timeout(200)
    expect(dialog).to_be_visible()


def test_where_the_opener_is_gone_the_focus_is_in_the_view(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.act("dana", "streams/cat").page
    page.get_by_role("button", name="Close the stream…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Close the stream").click()
    expect(page.locator(".view-head")).to_contain_text("ended")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("main")).to_be_focused()
