"""Plays stories: starts each part at its cue, listens to all, and stops at the first that fails.

Must not know how it is shown, nor what the parts do.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Protocol

from tools.demo.children import Child, Children, Failed, Surroundings
from tools.demo.stage import EXAMPLES, Stage
from tools.demo.stories import Cue, Part, Story

AT_ONCE: Final = 3
"""Stories that play at the same time; the others wait for their turn."""
LONGEST: Final = 150.0
"""Seconds that a story may take."""


class Audience(Protocol):
    """Receives the progress of the stories."""

    def begins(self, story: Story) -> None:
        """A story begins."""

    def says(self, story: Story, part: Part, line: str) -> None:
        """One of its processes says something."""

    def ends(self, story: Story, *, well: bool) -> None:
        """It is over."""


async def play(stage: Stage, stories: Sequence[Story], audience: Audience) -> None:
    """Play them all; `Failed` with the last lines of the first process that failed, the gateway included."""
    problem: Failed | None = None
    turns = asyncio.Semaphore(AT_ONCE)
    try:
        async with Children() as cast, asyncio.TaskGroup() as tasks:
            gateway = tasks.create_task(_fail_when_it_ends(stage.gateway), name="the gateway keeps running")
            played = [
                tasks.create_task(_in_turn(_Playing(stage, story, cast, audience), turns), name=story.name)
                for story in stories
            ]
            await asyncio.wait(played)
            gateway.cancel()
    except* Failed as failures:
        problem = _first(failures)
    if problem is not None:
        raise problem


def _first(failures: BaseExceptionGroup[Failed]) -> Failed:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _fail_when_it_ends(gateway: Child) -> None:
    code = await gateway.code()
    raise gateway.failure(f"ended with {code} in the middle")


async def _in_turn(playing: "_Playing", turns: asyncio.Semaphore) -> None:
    async with turns:
        await playing.play()


class _Playing:
    """One story while it plays."""

    def __init__(self, stage: Stage, story: Story, cast: Children, audience: Audience) -> None:
        self._stage = stage
        self._story = story
        self._cast = cast
        self._audience = audience
        self._given: defaultdict[Cue, asyncio.Event] = defaultdict(asyncio.Event)
        for part in story.parts:
            self._given.update((cue, asyncio.Event()) for cue in part.cues)

    async def play(self) -> None:
        """To its end."""
        self._audience.begins(self._story)
        well = False
        try:
            async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as tasks:
                for part in self._story.parts:
                    tasks.create_task(self._part(part), name=part.called)
            well = True
        except TimeoutError:
            raise Failed(f"{self._story.title!r} took more than {LONGEST:.0f} seconds") from None
        finally:
            self._audience.ends(self._story, well=well)

    async def _part(self, part: Part) -> None:
        for cue in part.cues:
            await self._given[cue].wait()
        stage = self._stage
        log = stage.folder / "logs" / f"{self._story.name}-{part.called.replace(' ', '-')}.log"
        place = Surroundings(stage.folder, stage.environment(part.participant), log)
        command = [sys.executable, str(EXAMPLES / part.program), *part.words]
        name = f"{part.called} in {self._story.title!r}"
        child = await self._cast.start(name, command, place, lambda line: self._heard(part, line))
        await child.succeeded()
        self._given[Cue(part.called)].set()

    def _heard(self, part: Part, line: str) -> None:
        self._audience.says(self._story, part, line)
        for cue, event in self._given.items():
            if cue.part == part.called and cue.words is not None and cue.words in line:
                event.set()
