"""Accessibility: axe-core finds nothing serious in any view, light and dark, wide and narrow; keys reach everything."""

from typing import Any, Final

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import Scene
from tests.inspector.building import installed

PHONE: Final[ViewportSize] = {"width": 390, "height": 800}
VIEWS: Final = ("space", "streams", "streams/cat", "timeline", "approvals", "explain/bob")
SERIOUS: Final = {"serious", "critical"}


def findings(page: Page) -> list[str]:
    """What axe-core has against a page, of what is serious."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((installed() / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    violations: list[dict[str, Any]] = page.evaluate("axe.run().then((told) => told.violations)")
    return [
        f"{violation['id']}: {node['html'][:120]} {node['failureSummary']}"
        for violation in violations
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(tab: Tab, cast: Cast, theme: str) -> None:
    page = tab.open().page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    assert findings(page) == []
    scene = Scene(cast)
    scene.play()
    cast.begin(scene.run())
    tab.act("dana")
    for view in VIEWS:
        tab.go(view)
        expect(page.locator(".view")).to_be_visible()
        if view == "timeline":
            page.locator(".event-row.refused").first.click()
        if view.startswith("explain"):
            page.get_by_role("button", name="Explain").click()
            expect(page.locator(".verdict")).to_be_visible()
        assert (view, findings(page)) == (view, [])
    page.set_viewport_size(PHONE)
    for view in ("space", "streams/cat", "timeline"):
        tab.go(view)
        expect(page.locator(".view")).to_be_visible()
        assert (view, findings(page)) == (view, [])


def test_nothing_is_wider_than_a_phone(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    tab.page.set_viewport_size(PHONE)
    page = tab.observe().page
    wide = "(() => { const main = document.querySelector('main'); return main.scrollWidth - main.clientWidth; })()"
    for view in VIEWS:
        tab.go(view)
        expect(page.locator(".view")).to_be_visible()
        assert (view, page.evaluate(wide) > 0) == (view, False)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_one_comes_in_and_around_by_keys_alone(tab: Tab, cast: Cast, gateway: Any) -> None:
    scene = Scene(cast)
    scene.play()
    page = tab.open().page
    page.keyboard.type(gateway.token("dana"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign in as dana")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Timeline").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.get_by_role("listbox").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".event-row[aria-selected=true]")).to_have_count(1)
    expect(page.get_by_role("complementary", name="The envelope")).to_be_visible()
    tab.go("streams")
    page.get_by_role("link", name="cat", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="cat", level=1)).to_be_visible()
    page.get_by_role("button", name="Close the stream…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
