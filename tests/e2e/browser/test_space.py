"""The space as it is: who is here, what they may do, which streams are open, and everything live."""

from playwright.sync_api import expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import POSITION, Scene


def test_streams_appear_flow_and_go_while_one_looks(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    page = tab.observe().page
    expect(page.get_by_text("No open streams")).to_be_visible()
    stream = cast.do(alice.announce_stream([POSITION], description="The cat", desired_id="cat"))
    row = page.get_by_role("row", name="cat")
    expect(row).to_contain_text("ready")
    expect(row).to_contain_text("The cat")
    expect(row).to_contain_text("position")
    cast.do(stream.start())
    expect(row).to_contain_text("live")
    for step in range(20):
        cast.do(stream.send({"x": step, "y": 0}))
    expect(row).to_contain_text(" B")
    with cast.meanwhile(lambda: stream.send({"x": 0, "y": 0})):
        expect(row).to_contain_text("/s")
    cast.do(stream.close())
    expect(page.get_by_text("No open streams")).to_be_visible()


def test_streams_opened_before_are_shown_immediately(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe().page
    row = page.get_by_role("row", name="cat")
    expect(row).to_contain_text("alice")
    expect(row).to_contain_text("and 2 writers")
    expect(page.get_by_role("row", name="stream-1")).to_contain_text("text/plain")


def test_participants_come_and_go_with_what_they_may_do(tab: Tab, cast: Cast) -> None:
    page = tab.observe().page
    people = page.get_by_role("region", name="Participants")
    expect(people).to_contain_text("No participants")
    bob = cast.join("bob")
    expect(people.get_by_role("button", name="bob present")).to_be_visible()
    people.get_by_role("button", name="bob").click()
    expect(people.get_by_label("What bob may send")).to_contain_text(
        '{"kind":"mcp/*","payload":{"method":"tools/list"}}'
    )
    cast.do(bob.close())
    expect(people.get_by_role("button", name="bob left")).to_be_visible()


def test_numbers_in_capabilities_are_as_they_were_written(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.join("bob")
    page = tab.observe().page
    page.get_by_role("button", name="bob present").click()
    granted = {"kind": "mcp/request", "payload": {"id": 9007199254740993, "share": 1.0}}
    cast.do(alice.send("capability/grant", {"recipient": "bob", "capabilities": [granted]}))
    written = '{"id":9007199254740993,"share":1.0}'
    expect(page.get_by_label("What bob may send")).to_contain_text(written)
    page = tab.observe().page
    page.get_by_role("button", name="bob present").click()
    expect(page.get_by_label("What bob may send")).to_contain_text(written)


def test_streams_are_found_by_words(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe("streams").page
    expect(page.get_by_role("row")).to_have_count(5)  # and the head
    page.get_by_label("Filter streams").fill("carol depth")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_label("Filter streams").fill("nothing like it")
    expect(page.get_by_text("No stream matches the filter")).to_be_visible()
