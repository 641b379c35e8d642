"""A participant writes megabytes: the page still draws, shows a part, and says how much there is."""

import math
from typing import Any, Final

from playwright.sync_api import Page, expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.test_load import WATCH

WIDE: Final[Any] = [[list(range(30)) for _ in range(100)] for _ in range(100)]
LARGEST: Final[Any] = WIDE[:15]
"""About as many values as a proposal may hold."""
"""Three hundred thousand numbers, none deeper than five levels."""
MOST_NODES: Final = 1500
MOST_MS: Final = 1500
NODES: Final = "document.querySelectorAll('.leaf, .branch').length"


def assert_draws_smoothly(page: Page) -> None:
    """At best of three looks: a page that is held up by what it shows is held up in each."""
    assert page.evaluate(NODES) < MOST_NODES
    assert any(max(page.evaluate(WATCH, 1.5), default=math.inf) < MOST_MS for _ in range(3))


def test_a_large_proposal_is_shown_in_part_and_approved_in_full(tab: Tab, cast: Cast) -> None:
    bob, carol = cast.join("bob"), cast.join("carol")
    requests = carol.envelopes("mcp/request")
    page = tab.act("alice", "approvals").page
    call = {"method": "paint", "params": {"all": LARGEST, "text": "x" * 300_000, "y" * 300_000: 1}}
    cast.do(bob.send("mcp/proposal", call, to="carol"))
    card = page.get_by_role("article")
    expect(card).to_contain_text("(300,000 characters in all)")
    expect(card).to_contain_text("This is large: ")
    assert_draws_smoothly(page)
    folded = card.get_by_role("button", name="0 : [ 30 ]", exact=True)
    some = folded.count()
    card.get_by_role("button", name="14 : [ 100 ]").click()
    expect(folded).to_have_count(some + 1)
    card.get_by_role("button", name="Show all of it as text").click()
    expect(card.locator("pre")).to_contain_text("x" * 300_000)
    page.get_by_role("button", name="Approve", exact=True).click()
    assert cast.do(anext(requests)).payload == call


def test_a_large_envelope_is_shown_in_part(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    cast.do(alice.send("chat", {"text": "much", "all": WIDE, "more": "z" * 1_000_000}))
    page.locator(".event-row", has_text="much").click()
    details = page.get_by_role("complementary", name="The envelope")
    expect(details.locator("pre")).to_contain_text("characters in all)")
    assert len(details.inner_text()) < 300_000
    assert_draws_smoothly(page)


def test_a_wide_envelope_is_opened_as_far_as_it_can_be_drawn(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    page = tab.observe("timeline").page
    cast.do(alice.send("chat", {"text": "wide"} | {f"row {row}": WIDE[row] for row in range(90)}))
    page.locator(".event-row", has_text="wide").click()
    details = page.get_by_role("complementary", name="The envelope")
    expect(details.get_by_role("button", name="row 89 : [ 100 ]")).to_be_visible()
    assert_draws_smoothly(page)


def test_large_frames_are_shown_in_part(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    stream = cast.do(alice.open_stream(description="large"))
    page = tab.observe(f"streams/{stream.stream_id}").page
    cast.do(stream.send(WIDE[:2]))
    expect(page.get_by_role("region", name="The frame")).to_contain_text("[ 30 ]")
    assert_draws_smoothly(page)
    cast.do(stream.send("w" * 400_000))
    expect(page.get_by_label("Text of the frame")).to_contain_text("(400,000 characters in all)")
    cast.do(stream.send(b"\x00" * 400_000))
    expect(page.get_by_label("Bytes of the frame")).to_contain_text("… 398976 more bytes")
