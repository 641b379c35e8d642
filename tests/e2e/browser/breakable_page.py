"""A page whose connection breaks and comes back when a test says so, and whose journal says what a test wants."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.harness import Tab

JOURNAL: Final = "**/spaces/*/journal?*"
OWN_WORDS: Final = ("WebSocket", "404", "500")
"""In what the browser itself complains of when a connection breaks or an answer is an error."""
LINE: Final = """
const Real = WebSocket;
window.away = false;
window.told = (data) => data;
window.WebSocket = class extends Real {
  constructor(url) {
    super(url);
    window.line = this;
    if (window.away) this.close();
  }
  set onmessage(heard) {
    super.onmessage = (event) => heard({ data: window.told(event.data) });
  }
};
"""


def breakable(tab: Tab) -> Tab:
    """Before it is opened."""
    tab.page.add_init_script(LINE)
    return tab


@contextmanager
def broken(page: Page) -> Iterator[None]:
    """The page is not connected meanwhile, and is again afterwards."""
    page.evaluate("away = true; line.close()")
    expect(page.get_by_role("status")).to_contain_text("Not connected")
    yield
    page.evaluate("away = false")
    expect(page.get_by_text("Not connected")).to_have_count(0)


def excused(tab: Tab) -> None:
    """Nothing but the browser's own words was complained of."""
    assert [complaint for complaint in tab.complaints if not any(word in complaint for word in OWN_WORDS)] == []
    tab.complaints.clear()


class LongJournal:
    """Chats of a long past, one at every so many positions."""

    def __init__(self, page: Page, last: int, every: int) -> None:
        self.last, self.every = last, every
        self.damaged_from: int | None = None
        page.add_init_script(LINE)
        page.add_init_script(f"""window.told = (data) => data.replace(/"position":\\d+/, '"position":{last}')""")
        page.route(JOURNAL, self._answer)

    def _answer(self, route: Route) -> None:
        query = {name: int(value) for name, value in self._query(route.request.url)}
        start, limit = query["from"], query["limit"]
        if self.damaged_from is not None and self.damaged_from <= start <= self.last:
            route.fulfill(status=500, json={"error": "internal_error", "message": "the journal cannot be read"})
            return
        first = -(-start // self.every) * self.every
        positions = range(first, self.last + 1, self.every)[:limit]
        behind = positions[-1] + 1 if len(positions) == limit else max(start, self.last + 1)
        page = {"first": 0, "last": self.last, "records": [_chat(position) for position in positions], "next": behind}
        route.fulfill(content_type="application/json", body=json.dumps(page))

    @staticmethod
    def _query(url: str) -> list[list[str]]:
        return [pair.split("=") for pair in url.partition("?")[2].split("&") if not pair.startswith("space=")]


def _chat(position: int) -> dict[str, Any]:
    seconds = position // 100
    time = f"2020-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{position % 100:02}0Z"
    envelope = {"id": f"chat-{position}", "ts": time, "from": "alice", "kind": "chat"}
    payload = {**envelope, "payload": {"text": f"number {position}"}}
    return {"position": position, "time": time, "event": "envelope", "participant": "alice", "payload": payload}
