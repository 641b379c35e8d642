"""Where the inspector is tried: a real gateway with a journal, participants of the SDK, and a real Chromium.

Decides nothing: what came of it is for the test to look at. A page that complains, breaks its policy or asks anybody
but its gateway fails whatever test it is in.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, expect

import mew
from mew.client import Space
from mew.journal import JournalSettings
from tests.gateway.http_requests import tokens_of
from tests.gateway.raw import ANYTHING, Running

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
PATIENCE: Final = 20.0
INSTALL_SECONDS: Final = 240
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
ALONE: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--metrics-recording-only",
    "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication",
)
"""A browser that talks only to the gateway."""
KEPT: Final = JournalSettings()
PARTICIPANTS: Final[dict[str, Any]] = {
    "alice": ANYTHING,
    "bob": [{"kind": "chat"}, {"kind": "mcp/*", "payload": {"method": "tools/list"}}, {"kind": "mcp/proposal"}],
    "carol": ANYTHING,
    "dana": ANYTHING,
}
GO: Final = """
where => new Promise((drawn) => {
  const later = () => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  if (new URL(where, location.href).hash === location.hash) return later();
  addEventListener("hashchange", later, { once: true });  // after the page's own listener
  location.hash = where;
})
"""
VIOLATIONS: Final = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


def browser_path() -> str | None:
    """The machine's Chromium; Debian's package is installed where there is none and the user may."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and shutil.which("apt-get") and os.geteuid() == 0:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        subprocess.run(command, capture_output=True, check=False, timeout=INSTALL_SECONDS)
        path = next(filter(None, map(shutil.which, NAMES)), None)
    return path


def launched(playwright: Playwright, path: str) -> Browser:
    """The browser itself; who is root has no sandbox."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=path, args=[*ALONE, *sandbox])


class Cast:
    """Participants of the SDK, on a loop in a thread of its own: the browser has the test's."""

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self._spaces: dict[str, Space] = {}
        self._works: list[Future[Any]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cast", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T], seconds: float = PATIENCE) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs beside the test; an error in it is seen when the cast leaves."""
        self._works.append(asyncio.run_coroutine_threadsafe(work, self._loop))

    @contextmanager
    def meanwhile(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> Iterator[None]:
        """Does something again and again, as long as the test is at something else."""
        over = asyncio.Event()

        async def acting() -> None:
            while not over.is_set():
                await act()
                await asyncio.sleep(0.05)

        done = asyncio.run_coroutine_threadsafe(acting(), self._loop)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(over.set)
            done.result(PATIENCE)

    def join(self, who: str) -> Space:
        async def joined() -> Space:
            return await mew.connect(
                f"ws://127.0.0.1:{self._gateway.port}", space="lab", token=self._gateway.token(who), reconnect=False
            )

        self._spaces[who] = self.do(joined())
        return self._spaces[who]

    def leave(self) -> None:
        for work in self._works:
            if work.done():
                work.result()  # it should have gone on
            work.cancel()
        for space in self._spaces.values():
            self.do(space.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Tab:
    """A page of the inspector, and everything that was wrong with it."""

    def __init__(self, page: Page, gateway: Running) -> None:
        self.page = page
        self.base = f"http://127.0.0.1:{gateway.port}/"
        self._gateway = gateway
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        page.set_default_timeout(PATIENCE * 1000)
        page.add_init_script(VIOLATIONS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.base):
            self.strangers.append(request.url)

    def open(self) -> "Tab":
        self.page.goto(self.base)
        return self

    def offer(self, token: str) -> None:
        """Sign in as far as one comes with a token alone."""
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def observe(self, view: str = "") -> "Tab":
        """Signed in with an observer's token."""
        self.open()
        self.offer(tokens_of(self._gateway).issue("lab", "onlooker", observer=True))
        return self.at(view)

    def act(self, who: str, view: str = "") -> "Tab":
        """Signed in with a participant's token."""
        self.open()
        self.offer(self._gateway.token(who))
        self.page.get_by_role("button", name=f"sign in as {who}").click()
        return self.at(view)

    def at(self, view: str) -> "Tab":
        expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()
        expect(self.page.get_by_text("Joining the space")).to_have_count(0)
        if view:
            self.go(view)
        return self

    def go(self, view: str) -> None:
        """Within the page, as a link would; the view is drawn when this returns."""
        self.page.evaluate(GO, f"#/{view}")

    def is_fine(self) -> None:
        """The console has no errors, and no other host was contacted."""
        assert self.complaints == []
        assert self.strangers == []
        assert self.page.evaluate("window.violations") == []


@contextmanager
def cast_of(gateway: Running) -> Iterator[Cast]:
    cast = Cast(gateway)
    try:
        yield cast
    finally:
        cast.leave()
