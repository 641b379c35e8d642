"""Signing in: whose token it is, what follows from that, and where the token is kept."""

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.browser.harness import Cast, Tab
from tests.gateway.http_requests import tokens_of
from tests.gateway.raw import Running


def test_an_observer_signs_in_without_a_message_to_others(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    tab.observe()
    expect(tab.page.get_by_role("heading", name="Space", exact=True)).to_be_visible()
    expect(tab.page.get_by_text("observer, read only")).to_be_visible()
    assert alice.view.participants == {}


def test_two_tabs_may_observe_with_one_token(tab: Tab, context: BrowserContext, gateway: Running) -> None:
    other = Tab(context.new_page(), gateway).observe()
    tab.observe()
    expect(tab.page.get_by_role("heading", name="Space", exact=True)).to_be_visible()
    expect(other.page.get_by_role("heading", name="Space", exact=True)).to_be_visible()
    other.is_fine()


def test_an_unknown_token_is_an_error_and_another_can_be_tried(tab: Tab, gateway: Running) -> None:
    tab.open()
    tab.offer("no token of anybody")
    expect(tab.page.get_by_role("alert")).to_contain_text("This is not a valid token")
    tab.offer("no-token-of-anybody")
    expect(tab.page.get_by_role("alert")).to_have_text("The gateway does not know this token.")
    assert all("403" in complaint for complaint in tab.complaints)  # the browser's own word for the answer
    tab.complaints.clear()
    tab.offer(tokens_of(gateway).issue("lab", "onlooker", observer=True))
    expect(tab.page.get_by_role("heading", name="Space", exact=True)).to_be_visible()


def test_what_is_typed_before_the_page_is_painted_is_not_lost(tab: Tab, context: BrowserContext) -> None:
    slow = context.new_cdp_session(tab.page)
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 20})
    tab.open()
    tab.page.keyboard.type("a-token")
    expect(tab.page.get_by_label("Token")).to_have_value("a-token")
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 1})


def test_an_empty_token_is_an_error(tab: Tab) -> None:
    tab.open()
    tab.offer("  ")
    expect(tab.page.get_by_role("alert")).to_have_text("Paste a token first.")


@pytest.mark.parametrize("space", ["elsewhere"])
def test_a_missing_space_is_an_error(tab: Tab, gateway: Running, space: str) -> None:
    tab.open()
    tab.page.get_by_text("Another space").click()
    tab.page.get_by_label("Space", exact=True).fill(space)
    tab.offer(gateway.token("alice"))
    expect(tab.page.get_by_role("alert")).to_have_text("The gateway has no such space.")
    tab.complaints.clear()


def test_the_page_asks_before_it_takes_a_connection_over(tab: Tab, cast: Cast, gateway: Running) -> None:
    cast.join("alice")
    seat = gateway.ask(lambda gateway: gateway.first_hub.space.connections["alice"])
    tab.open()
    tab.offer(gateway.token("alice"))
    expect(tab.page.get_by_text("alice is connected now.")).to_be_visible()
    expect(tab.page.get_by_text("takes over its connection")).to_be_visible()
    assert gateway.ask(lambda gateway: gateway.first_hub.space.connections["alice"]) == seat
    tab.page.get_by_role("button", name="Take over and sign in as alice").click()
    expect(tab.page.get_by_text("acts as this participant")).to_be_visible()
    gateway.until(lambda gateway: gateway.first_hub.space.connections["alice"] != seat)


def test_a_taken_over_connection_ends_the_page(tab: Tab, cast: Cast) -> None:
    tab.act("alice")
    cast.join("alice")
    expect(tab.page.get_by_role("status")).to_contain_text("Another connection took over")
    expect(tab.page.get_by_label("Token")).to_have_value("")


def test_the_token_is_in_memory_only(tab: Tab, gateway: Running) -> None:
    tab.observe()
    token = tokens_of(gateway).issue("lab", "onlooker", observer=True)
    stored = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, document.body.outerHTML])"
    assert token not in tab.page.evaluate(stored)
    tab.page.reload()
    expect(tab.page.get_by_label("Token")).to_have_value("")


def test_signing_out_forgets_everything(tab: Tab) -> None:
    tab.observe()
    tab.page.get_by_role("button", name="Sign out").click()
    expect(tab.page.get_by_label("Token")).to_have_value("")
