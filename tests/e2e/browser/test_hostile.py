"""Whatever participants write stays text: in every field, in every view. Nothing runs, nothing is loaded."""

from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.harness import Cast, Tab

EVIL: Final = '"><img src=x onerror="window.broken=1"><script>window.broken=1</script><svg onload=window.broken=1>'
LINK: Final = "javascript:window.broken=1"
MARKED: Final = "<img src=x onerror="
FORMAT: Final[dict[str, Any]] = {
    "id": EVIL,
    "description": EVIL,
    "mime_type": f"application/json;{EVIL}",
    "schema": {
        "type": "object",
        "description": EVIL,
        "properties": {
            EVIL: {"type": "string", "description": EVIL, "enum": [EVIL, LINK]},
            "__proto__": {"title": EVIL},
        },
    },
}
VIEWS: Final = ("space", "streams", "timeline", "approvals", "explain")


async def attack(alice: Any) -> None:
    """In every field that a participant may fill."""
    stream = await alice.announce_stream([FORMAT], description=EVIL, intent=EVIL, metadata={EVIL: EVIL}, scope=[EVIL])
    await stream.start()
    await stream.send({EVIL: EVIL, "x": 1, "__proto__": {"polluted": EVIL}, "link": LINK})
    await stream.send({EVIL: EVIL, "x": 2, "link": LINK})
    raw = await alice.open_stream(description=EVIL, content_type=EVIL, name=EVIL, direction=EVIL)
    await raw.send(f"{EVIL} is what a text may be")
    await raw.send(f"<html><body>{EVIL}</body></html>".encode())
    await alice.send("chat", {"text": EVIL, "format": LINK}, to=EVIL, correlation_id=EVIL)
    await alice.send(EVIL, {EVIL: EVIL}, context=EVIL)
    call = {"method": EVIL, "params": {"name": EVIL, "arguments": {EVIL: EVIL}}, "reason": EVIL}
    await alice.send("mcp/proposal", call, to=EVIL)
    rejected = await alice.send("mcp/proposal", call)
    await alice.send("mcp/reject", {"reason": EVIL}, correlation_id=rejected.id)
    grant = {"recipient": "bob", "capabilities": [{"kind": EVIL, "payload": {EVIL: EVIL}}], "reason": EVIL}
    await alice.send("capability/grant", grant)
    await stream.grant("bob", EVIL)
    ended = await alice.open_stream(description=EVIL)
    await ended.close(EVIL)


def harmless(page: Page) -> None:
    """Nothing has run, and nothing is there that could."""
    assert page.evaluate("window.broken") is None
    assert page.locator("main :is(img, script, iframe, object, [onerror], [onload])").count() == 0
    assert page.locator("a[href^='javascript:' i]").count() == 0


@pytest.mark.parametrize("who", ["observer", "dana"])
def test_whatever_is_written_stays_text_in_every_view(tab: Tab, cast: Cast, who: str) -> None:
    alice = cast.join("alice")
    cast.join("bob")
    page = (tab.observe() if who == "observer" else tab.act(who)).page
    cast.do(attack(alice))
    for view in (
        *VIEWS,
        "streams/stream-1",
        "streams/stream-2",
        "streams/stream-3",
        f"streams/{EVIL}",
        f"explain/{EVIL}",
    ):
        tab.go(view)
        expect(page.locator(".view")).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        if view == "timeline":
            page.get_by_role("listbox").focus()
            for _ in range(20):
                page.keyboard.press("ArrowDown")
                harmless(page)
        harmless(page)
        if not view.startswith("explain"):
            expect(page.locator("main")).to_contain_text(MARKED, use_inner_text=True)
    assert page.evaluate("({}).polluted") is None


def test_a_name_in_the_address_cannot_lead_elsewhere(tab: Tab) -> None:
    page = tab.observe().page
    for odd in ("streams/%E0%A4%A", "streams/..%2f..%2f", "__proto__", "constructor/x", "streams/" + "a" * 5000):
        page.evaluate("where => { location.hash = where }", f"#/{odd}")
        expect(page.locator(".view")).to_be_visible()
