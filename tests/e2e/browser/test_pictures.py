"""Every view can be looked at: it is drawn, and a picture can be taken of it."""

from pathlib import Path
from typing import Final

from playwright.sync_api import Page, ViewportSize, expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import Scene

PHONE: Final[ViewportSize] = {"width": 390, "height": 800}
DESKTOP: Final[ViewportSize] = {"width": 1320, "height": 860}
ENOUGH_BYTES: Final = 8_000


class Album:
    """Where pictures go."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def take(self, page: Page, name: str) -> None:
        """A page that is drawn; an empty one would be smaller."""
        path = self.folder / f"inspector-{name}.png"
        page.screenshot(path=path)
        assert path.stat().st_size > ENOUGH_BYTES


def frames_came(page: Page, at_least: int) -> None:
    page.wait_for_function(
        "least => Number(document.querySelector('.frame-row .num')?.textContent.replaceAll(',', '')) >= least",
        arg=at_least,
    )


def test_every_view_has_its_picture(tab: Tab, cast: Cast, tmp_path: Path) -> None:
    album = Album(tmp_path)
    page = tab.open().page
    album.take(page, "sign-in")
    scene = Scene(cast)
    scene.play()
    cast.begin(scene.run())
    cast.begin(scene.chatter())
    tab.observe("streams/cat")
    frames_came(page, 20)
    cast.do(scene.hand_over())
    frames_came(page, 40)
    expect(page.locator(".ribbon-row.strong .span")).to_have_count(2)
    album.take(page, "stream")
    page.locator("#frames-title").scroll_into_view_if_needed()
    album.take(page, "frames")
    tab.go("space")
    expect(page.get_by_role("link", name="stream-1")).to_be_visible()
    album.take(page, "space")
    tab.go("timeline")
    expect(page.locator(".event-row.refused").first).to_be_visible()
    page.get_by_label("Time shown").select_option("30")
    page.locator(".event-row", has_text="mcp/response").first.click()
    album.take(page, "timeline")
    page.set_viewport_size(PHONE)
    tab.go("space")
    expect(page.get_by_role("link", name="stream-1")).to_be_visible()
    album.take(page, "phone")
    page.set_viewport_size(DESKTOP)
    page.get_by_role("button", name="Sign out").click()
    views_of_those_who_act(tab, album)


def views_of_those_who_act(tab: Tab, album: Album) -> None:
    page = tab.page
    tab.act("dana", "approvals")
    expect(page.get_by_role("button", name="Approve and grant").first).to_be_visible()
    album.take(page, "approvals")
    tab.go("explain/bob")
    page.get_by_label("sent this kind").fill("mcp/request")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Rejected")).to_be_visible()
    album.take(page, "explain")
    page.get_by_label("Theme").select_option("dark")
    tab.go("streams/cat")
    expect(page.get_by_role("button", name="Close the stream…")).to_be_visible()
    album.take(page, "dark")
