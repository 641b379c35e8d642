"""Explain: the gateway's answer, about anybody, for any token of the space."""

from playwright.sync_api import Route, expect

from tests.e2e.browser.harness import Cast, Tab


def test_who_may_what_and_why_not(tab: Tab, cast: Cast) -> None:
    cast.join("bob")
    page = tab.observe("explain/bob").page
    expect(page.get_by_label("If this participant")).to_have_value("bob")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Allowed")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text('{"kind":"chat"}')
    expect(page.locator(".verdict")).to_contain_text("configured in the space’s file")
    page.get_by_label("sent this kind").fill("mcp/request")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Rejected")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("capability_violation")
    expect(page.locator(".verdict")).to_contain_text("payload.method: 'tools/call' is not 'tools/list'")


def test_an_invalid_payload_is_an_error_before_a_request_is_sent(tab: Tab, cast: Cast) -> None:
    cast.join("bob")
    page = tab.observe("explain/bob").page
    page.get_by_label("with this payload").fill("{not json")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert")).to_have_text("The payload is not valid JSON.")


def test_a_late_answer_does_not_take_the_place_of_a_newer(tab: Tab, cast: Cast) -> None:
    cast.join("bob")
    page = tab.observe("explain/bob").page
    held_routes: list[Route] = []
    page.route("**/explain*", lambda route: held_routes.append(route) if not held_routes else route.continue_())
    page.get_by_role("button", name="Explain").click()  # chat, which Bob may; the answer is slow
    while not held_routes:
        page.wait_for_timeout(20)
    page.get_by_label("sent this kind").fill("mcp/request")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Rejected")).to_be_visible()
    with page.expect_response("**/explain*"):
        held_routes[0].continue_()
    tab.go("explain/bob")  # drawn meanwhile
    expect(page.get_by_role("heading", name="Rejected")).to_be_visible()
