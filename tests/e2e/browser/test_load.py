"""Five hundred streams, two thousand frames a second: the page still draws.

95% of animation frames are to come within 32 ms; the limit is three times as wide, for machines with other work.
"""

import asyncio
import math
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from mew.client import Space
from mew.client.streams import Stream
from mew.protocol.settings import Limits
from tests.e2e.browser.harness import Cast, Tab

STREAMS: Final = 500
PER_SECOND: Final = 2000
SECONDS: Final = 3
LIMIT_MS: Final = 32
SLACK: Final = 3
TRIES: Final = 3
"""For each view: another process may have used the machine during the seconds of one attempt."""
TICK: Final = 0.02
ARRIVES: Final = """
least => [...document.querySelectorAll(".figure")]
  .filter((each) => each.textContent.includes("frames a second"))
  .some((each) => Number(each.querySelector("dd").textContent.replaceAll(",", "")) > least)
"""
WATCH: Final = """
(seconds) => new Promise((resolve) => {
  const gaps = [];
  const end = performance.now() + seconds * 1000;
  let last = performance.now();
  const step = (now) => {
    gaps.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(step);
    else resolve(gaps.slice(1).sort((one, two) => one - two));
  };
  requestAnimationFrame(step);
})
"""


@pytest.fixture
def limits() -> Limits:
    return Limits(streams_per_participant=STREAMS)


async def opened(alice: Space) -> list[Stream]:
    return [await alice.open_stream(description=f"stream number {number}") for number in range(STREAMS)]


async def pour(streams: list[Stream], sent: list[int]) -> None:
    """So many frames a second over all streams in turn, as evenly as a timer can; until cancelled."""
    loop = asyncio.get_running_loop()
    last, count, due = loop.time(), 0, 0.0
    while True:
        now = loop.time()
        # What a stalled machine has missed is not made up for in one go.
        due += min(now - last, 5 * TICK) * PER_SECOND
        last = now
        while count < due:
            await streams[count % STREAMS].send({"x": count % 97, "y": -count % 89, "note": "a frame like many others"})
            count += 1
        sent[0] = count
        await asyncio.sleep(TICK)


def worst_of_most(gaps: list[float]) -> float:
    """95% of animation frames come sooner than this after the one before."""
    return gaps[int(len(gaps) * 0.95)] if gaps else math.inf


def measured(tab: Tab, cast: Cast) -> dict[str, Any]:
    """Frame times in the busiest views, and how fast frames really came."""
    streams = cast.do(opened(cast.join("alice")), 60)
    sent = [0]
    page = tab.observe("space").page
    expect(page.get_by_label(f"{STREAMS} streams")).to_be_visible()
    cast.begin(pour(streams, sent))
    figures: dict[str, Any] = {}
    page.wait_for_function(ARRIVES, arg=PER_SECOND / 2, timeout=60_000)
    for view in ("space", "streams/stream-1", "timeline"):
        tab.go(view)
        expect(page.locator(".view")).to_be_visible()
        for _ in range(TRIES):
            before = sent[0]
            gaps = page.evaluate(WATCH, SECONDS)
            figures[view] = {"ms": worst_of_most(gaps), "frames": len(gaps), "per_second": (sent[0] - before) / SECONDS}
            if draws_on(figures[view]):
                break
    return figures


def draws_on(figures: dict[str, Any]) -> bool:
    """Whether a view was drawn often enough while enough came."""
    return bool(figures["per_second"] > PER_SECOND / 2 and figures["ms"] < LIMIT_MS * SLACK)


@pytest.mark.timeout(180)
def test_the_page_draws_on_under_load(tab: Tab, cast: Cast) -> None:
    figures = measured(tab, cast)
    print(figures)
    for view, view_figures in figures.items():
        assert draws_on(view_figures), (view, view_figures)
