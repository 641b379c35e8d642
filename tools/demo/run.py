"""One run of the demo from beginning to end: the stage, the stories, the tables, the report.

Says what happens in which order; how, is said elsewhere.
"""

import json
import shlex
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from tools.demo.children import Failed
from tools.demo.playing import play
from tools.demo.showing import Show
from tools.demo.stage import MEW, Stage, command, stage
from tools.demo.stories import QUICK, RECEIVED, Pace, stories

REPORT: Final = "report.html"
STORIES: Final = "the stories: real clients, each a process of its own"
PIPELINE: Final = "the pipeline: Spark makes tables of everything that happened"


class Options(msgspec.Struct, frozen=True):
    """What was asked for."""

    keep: bool = False
    """The gateway keeps running when the demo has ended."""
    endless: bool = False
    """The stories repeat until they are stopped, and there is no pipeline."""
    quick: bool = False


class Demo:
    """One run, in a folder of its own."""

    def __init__(self, folder: Path, options: Options, console: Console) -> None:
        """Nothing runs yet."""
        self._folder = folder
        self._options = options
        self._console = console
        self._show = Show(console)
        self._stories = stories(QUICK if options.quick else Pace(), folder)
        self._began = time.monotonic()

    async def run(self) -> None:
        """All of it."""
        running_stage = await self._on_stage()
        if not self._options.keep:
            await self._look_back()
            return
        try:
            port = await self._leave_running(running_stage)
            await self._look_back(msgspec.structs.replace(running_stage, port=port))
        except BaseException:  # no user has learned how to stop it
            await command(self._folder, "space", "down")
            raise

    async def _on_stage(self) -> Stage:
        """The stories, from the gateway's start to its stop."""
        async with AsyncExitStack() as stack:
            with self._show.busy("A gateway starts"):
                running_stage = await stack.enter_async_context(stage(self._folder))
            self._show.address(running_stage)
            await self._play(running_stage)
            while self._options.endless:
                await self._play(running_stage)
            with self._show.busy("The gateway stops, and seals its journal"):
                await stack.aclose()
        return running_stage

    async def _play(self, running_stage: Stage) -> None:
        """One round of the stories."""
        self._show.heading(STORIES + ("; again and again, Ctrl-C ends it" if self._options.endless else ""))
        shutil.rmtree(self._folder / RECEIVED, ignore_errors=True)
        (self._folder / RECEIVED).mkdir()
        with self._show.playing(self._stories):
            await play(running_stage, self._stories, self._show)
        self._console.print()

    async def _leave_running(self, running_stage: Stage) -> int:
        """Start an independent gateway instead of ours. Returns its port: ours, unless another process has it."""
        with self._show.busy("An independent gateway continues"):
            lines = await command(self._folder, "space", "up", "--detach", "--port", str(running_stage.port), "--json")
        status: dict[str, Any] = json.loads("\n".join(lines))
        return int(status["port"])

    async def _look_back(self, running_stage: Stage | None = None) -> None:
        """What the journal has to tell; the path of the report is the last that is said."""
        await self._pipeline()
        self._tables()
        with self._show.busy("The report is written"):
            await command(self._folder, "pipeline", "report", "--output", REPORT)
        if running_stage is not None:
            self._show.address(running_stage)
            self._show.note(
                f"The gateway keeps running. This stops it:\n{shlex.join((*MEW, 'down', '-d', str(self._folder)))}"
            )
        took = time.monotonic() - self._began
        self._show.note(f"All of that took {took:.0f} s and is in {self._folder}. What happened, as a page:")
        self._show.path(self._folder / REPORT)

    async def _pipeline(self) -> None:
        """The tables, by Spark; it shows its own progress on a terminal."""
        self._show.heading(PIPELINE)
        lines = await command(self._folder, "pipeline", "run", "--json", shows_progress=self._console.is_terminal)
        batches = [json.loads(line) for line in lines]
        if not batches:
            raise Failed("the journal has nothing that is sealed, so there is nothing to tell of")
        records, rows = sum(batches[-1]["positions"].values()), sum(sum(batch["rows"].values()) for batch in batches)
        start, took = batches[0]["seconds"]["start"], sum(sum(batch["seconds"].values()) for batch in batches)
        spent = f"{start:.1f} s until Spark was there, {took - start:.1f} s of work"
        self._show.note(f"{records:,} records became {rows:,} rows: {spent}")
        self._console.print()

    def _tables(self) -> None:
        # DuckDB and Delta: `make try` does without.
        from tools.demo.tables import answers, show

        for answer in answers(self._folder / ".mew" / "lake"):
            show(answer, self._console)
