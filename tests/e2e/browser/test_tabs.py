"""Any number of tabs: browsers have six connections to a host for all of them together."""

from playwright.sync_api import BrowserContext, expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import Scene
from tests.gateway.raw import Running

TABS = 7


def test_more_tabs_than_connections_observe_and_ask_with_one_token(
    context: BrowserContext, cast: Cast, gateway: Running
) -> None:
    scene = Scene(cast)
    tabs = [Tab(context.new_page(), gateway).observe("timeline") for _ in range(TABS)]
    scene.play()
    for tab in tabs:
        tab.page.get_by_role("button", name="rejections only").click()
        expect(tab.page.locator(".event-row.refused")).to_contain_text("capability_violation")
    page = tabs[-1].page
    tabs[-1].go("explain/bob")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Allowed")).to_be_visible()
    for tab in tabs:
        tab.is_fine()


def test_a_hidden_tab_asks_nothing_and_catches_up_when_it_is_shown(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    page = tab.observe("timeline").page
    expect(page.get_by_text("Reading the journal")).to_have_count(0)
    turn = """
    state => {
      Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }
    """
    page.evaluate(turn, "hidden")
    page.wait_for_timeout(300)  # what was asked already is answered
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    scene.play()
    expect(page.locator(".event-row", has_text="to help")).to_have_count(1)
    page.wait_for_timeout(2500)
    assert requests == []
    page.evaluate(turn, "visible")
    page.get_by_role("button", name="rejections only").click()
    expect(page.locator(".event-row.refused")).to_contain_text("capability_violation")
