"""How the demo looks while it plays: a line a story on a terminal, else a line for whatever is said.

Must not start or stop anything.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tools.demo.stage import Stage
from tools.demo.stories import Part, Story

A_SECOND: Final = 8
"""Times that the screen is drawn."""
WAITING: Final = Text("·", style="dim")
WELL: Final = Text("✓", style="bold green")
BROKEN: Final = Text("✗", style="bold red")


class Show:
    """The screen."""

    def __init__(self, console: Console) -> None:
        """Nothing is on it yet."""
        self.console = console
        self._rows: dict[str, _Row] = {}
        self._live: Live | None = None

    def address(self, stage: Stage) -> None:
        """Where to look, before anything else."""
        grid = Table.grid(padding=(0, 2))
        grid.add_row("[bold]inspector[/]", f"[bold cyan link={stage.url}]{stage.url}[/]")
        grid.add_row("[bold]token[/]", f"[bold]{escape(stage.token)}[/]")
        grid.add_row("", "[dim]open the page and paste the token: it may look at everything, and change nothing[/]")
        self.console.print(grid)
        self.console.print()

    def heading(self, words: str) -> None:
        """What comes now."""
        self.console.print(f"[bold]── {escape(words)}[/]")

    def note(self, words: str) -> None:
        """Something worth knowing."""
        self.console.print(words, style="dim", highlight=False, markup=False, soft_wrap=True)

    def path(self, path: Path) -> None:
        """A file, on a line that is nothing but its path."""
        self.console.print(str(path), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def busy(self, words: str) -> Iterator[None]:
        """Something that takes a moment, and shows nothing of its own."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(words, spinner_style="cyan"):
            yield

    @contextmanager
    def playing(self, stories: Sequence[Story]) -> Iterator[None]:
        """The screen of these stories; it stays when they are over."""
        self._rows = {story.name: _Row(story) for story in stories}
        if not self.console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._drawn, console=self.console, refresh_per_second=A_SECOND, vertical_overflow="visible"
        ) as self._live:
            try:
                yield
            finally:
                self._live.refresh()
        self._live = None

    def _drawn(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, style="dim")
        grid.add_column(no_wrap=True, style="cyan", justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for row in self._rows.values():
            grid.add_row(row.mark, row.title, row.clock, row.who, row.line)
        return grid

    def begins(self, story: Story) -> None:
        """A story begins."""
        self._rows[story.name].begin()
        if self._live is None:
            self.console.print(f"[bold]{story.name}[/]: {escape(story.title)}", highlight=False)

    def says(self, story: Story, part: Part, line: str) -> None:
        """One of its processes says something."""
        self._rows[story.name].hear(part.called, line)
        if self._live is None:
            text = Text.assemble((f"{story.name:<10} ", "dim"), (f"{part.called:>16}  ", "cyan"), line)
            self.console.print(text, highlight=False, soft_wrap=True)

    def ends(self, story: Story, *, well: bool) -> None:
        """It is over."""
        row = self._rows[story.name]
        row.end(well=well)
        if self._live is None:
            became = "is over" if well else "was broken off"
            self.console.print(f"[bold]{story.name}[/] {became} after {row.clock}", highlight=False)


class _Row:
    """What is shown of one story."""

    def __init__(self, story: Story) -> None:
        self.mark: RenderableType = WAITING
        self.title = Text(story.title, style="dim")
        self.who = Text("")
        self.line = Text("")
        self._begun: float | None = None
        self._ended: float | None = None

    @property
    def clock(self) -> str:
        """How long it has been playing."""
        if self._begun is None:
            return ""
        return f"{(self._ended or time.monotonic()) - self._begun:.0f} s"

    def begin(self) -> None:
        self.mark = Spinner("dots", style="cyan")
        self.title.style = "bold"
        self._begun = time.monotonic()

    def hear(self, who: str, line: str) -> None:
        self.who, self.line = Text(who), Text(line)

    def end(self, *, well: bool) -> None:
        self.mark = WELL if well else BROKEN
        self._ended = time.monotonic()
