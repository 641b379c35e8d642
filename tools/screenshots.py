"""Takes the pictures of the documents: `make screenshots` plays the demo's stories and looks on with a real browser.

Must not show anything that was not played: what is on a picture went through a gateway, and the report through Spark.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, ViewportSize, async_playwright, expect

from mew.errors import MewError
from tools.demo.playing import play
from tools.demo.stage import ROOT, Stage, command, stage
from tools.demo.stories import RECEIVED, Pace, Part, Story, stories

IMAGES: Final = ROOT / "docs" / "images"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 860}
PHONE: Final[ViewportSize] = {"width": 390, "height": 800}
PATIENCE: Final = 90.0
LARGEST: Final = 300_000
"""Bytes of a picture: every clone has them."""
SLOWLY: Final = Pace(seconds=16, frames=240, tokens=6, words=2, thoughts=1)
LONG: Final = ("movement", "tokens", "transcript")
"""Stories that play first, and together: their streams are on one picture."""
HUMAN: Final = "human"
DELETE: Final = '{"method": "tools/call", "params": {"name": "delete_file", "arguments": {"name": "old.log"}}}'
GO: Final = """
where => new Promise((drawn) => {
  location.hash = where;
  requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(drawn)));
})
"""
NUMBER: Final = "Number(document.querySelector('.frame-row .num')?.textContent.replaceAll(',', ''))"
"""Of the newest frame that the page shows."""
SOME_FLOWED: Final = "() => /([5-9]|[0-9]{2})[.][0-9]+ kB/.test(document.body.innerText)"
"""Five kilobytes or more were seen of a stream."""
A_WHILE: Final = 300
"""Frames, which is five seconds."""


class NoPicture(MewError):
    """A picture could not be taken."""


class Quiet:
    """Ignores the progress of the stories, because the browser shows it."""

    def begins(self, story: Story) -> None:
        """A story begins."""

    def says(self, story: Story, part: Part, line: str) -> None:
        """One of its processes says something."""

    def ends(self, story: Story, *, well: bool) -> None:
        """It is over."""


class Camera:
    """A page of the browser, and where its pictures go."""

    def __init__(self, page: Page, stage: Stage, folder: Path) -> None:
        """Nothing is on it yet."""
        self.page = page
        self._stage = stage
        self._folder = folder

    async def open(self) -> None:
        """The inspector, where one signs in."""
        await self.page.goto(self._stage.url)

    async def sign_in(self, token: str, who: str | None = None) -> None:
        """As an observer, or as a participant."""
        await self.open()
        await self.page.get_by_label("Token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        if who is not None:
            await self.page.get_by_role("button", name=f"sign in as {who}").click()
        await expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()
        await expect(self.page.get_by_text("Joining the space")).to_have_count(0)

    async def go(self, view: str) -> None:
        """To another view; it is drawn when this returns."""
        await self.page.evaluate(GO, f"#/{view}")

    async def take(self, name: str) -> None:
        """What is on the page now."""
        path = self._folder / f"{name}.png"
        await self.page.screenshot(path=path, animations="disabled")
        size = path.stat().st_size
        print(f"{path.name:<26}{size / 1000:>6.0f} kB", flush=True)
        if size > LARGEST:
            raise NoPicture(f"{path.name} has {size:,} bytes, which is more than {LARGEST:,}")


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A page of the machine's own Chromium."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise NoPicture("there is no Chromium here: apt-get install chromium")
    async with async_playwright() as playwright:
        # Who is root has no sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            page = await browser.new_page(viewport=DESKTOP, reduced_motion="reduce", color_scheme="light")
            page.set_default_timeout(PATIENCE * 1000)
            expect.set_options(timeout=PATIENCE * 1000)
            yield page
        finally:
            await browser.close()


async def of_those_who_look(camera: Camera, token: str) -> None:
    """What an observer sees while the stories play."""
    page = camera.page
    await camera.sign_in(token)
    await camera.go("space")
    for name in ("cat", "stream-1", "call"):
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    await page.wait_for_function(SOME_FLOWED)
    await camera.take("inspector-space")
    await page.set_viewport_size(PHONE)
    await camera.take("inspector-phone")
    await page.set_viewport_size(DESKTOP)
    await camera.go("timeline")
    await page.get_by_label("Time shown").select_option("30")
    await page.locator(".event-row", has_text="mcp/response").first.click()
    await camera.take("inspector-timeline")
    await camera.go("streams/cat")
    await expect(page.locator(".ribbon-row.strong .span")).to_have_count(2)
    begun = await page.evaluate(f"() => {NUMBER}")
    await page.wait_for_function(f"least => {NUMBER} >= least", arg=begun + A_WHILE)
    await camera.take("inspector-stream")
    await page.get_by_label("Theme").select_option("dark")
    await camera.take("inspector-dark")
    await page.get_by_label("Theme").select_option("light")
    await page.locator("#frames-title").scroll_into_view_if_needed()
    await camera.take("inspector-frames")


async def of_those_who_act(camera: Camera, token: str) -> None:
    """What a human sees who is asked; then it says yes, and the agent is done."""
    page = camera.page
    await camera.sign_in(token, HUMAN)
    await camera.go("approvals")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_visible()
    await camera.take("inspector-approvals")
    await approve.click()
    await camera.go("explain/cleaner")
    await page.get_by_label("sent this kind").fill("mcp/request")
    await page.get_by_label("to (optional)").fill("file-tools")
    await page.get_by_label("with this payload").fill(DELETE)
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("heading", name="Rejected")).to_be_visible()
    await camera.take("inspector-explain")


def without_the_human(approval: Story) -> Story:
    """The story in which the one who decides sits at the browser."""
    parts = [
        msgspec.structs.replace(part, cues=tuple(cue for cue in part.cues if cue.part != HUMAN))
        for part in approval.parts
        if part.participant != HUMAN
    ]
    return msgspec.structs.replace(approval, parts=tuple(parts))


async def beside(playing: Sequence[Story], running_stage: Stage, looking: Coroutine[None, None, None]) -> None:
    """Play, and look on; what goes wrong with either ends both."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(play(running_stage, playing, Quiet()), name="stories")
        tasks.create_task(looking, name="camera")


async def take_all(folder: Path, images: Path) -> None:
    """Every picture, once; they come to the others when all were taken."""
    (folder / RECEIVED).mkdir()
    (taken := folder / "taken").mkdir()
    score = sorted(stories(SLOWLY, folder), key=lambda story: story.name not in LONG)
    async with browsing() as page:
        async with stage(folder) as running_stage:
            camera = Camera(page, running_stage, taken)
            await camera.open()
            await camera.take("inspector-sign-in")
            await beside(score, running_stage, of_those_who_look(camera, running_stage.token))
            (approval,) = (story for story in score if story.name == "approval")
            token = running_stage.environment(HUMAN)["MEW_TOKEN"]
            await beside([without_the_human(approval)], running_stage, of_those_who_act(camera, token))
        await command(folder, "pipeline", "run")
        await command(folder, "pipeline", "report", "--output", "report.html")
        await page.goto((folder / "report.html").as_uri())
        await camera.take("report")
    for picture in taken.iterdir():
        shutil.move(picture, images / picture.name)


def main() -> int:
    """Take them: 0, or 1 and why not."""
    why_not: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mew-screenshots-") as folder:
        try:
            asyncio.run(take_all(Path(folder), IMAGES))
        except* (MewError, PlaywrightError, AssertionError) as problems:
            why_not = [str(error) for error in leaves(problems)]
    for reason in why_not:
        print(f"screenshots: {reason}", file=sys.stderr)
    return int(bool(why_not))


def leaves(problems: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """What went wrong, whichever task it went wrong in."""
    for error in problems.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
