"""Every block of README and docs does what its page says: `pytest tests/docs/test_blocks.py -k quick-start`.

A page is followed from top to bottom in a folder of its own; a block that is chosen alone has those before it run
first. What a comment before a block may say is in `tests/docs/blocks/reading.py`, and in CONTRIBUTING.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from sybil import Example

from tests.docs.blocks.languages import run_block
from tests.docs.blocks.reading import PAGES, ROOT, Block, count_fences, examples_of, idle_directives
from tests.docs.blocks.running import SECONDS, BlockFailed, Page

AT_MOST: Final = 10
"""So many blocks in the whole repository may be left alone."""


class Reader:
    """A reader who follows a page: who has done everything above the block it is at."""

    def __init__(self, page: Page, examples: list[Example]) -> None:
        self.page, self.examples = page, examples
        self.done = 0

    def follow(self, number: int) -> None:
        """Run the block of this number, after the earlier blocks that have not run."""
        for _ in range(self.done, number):
            self._next()
        assert self.done == number, "blocks are run in the order of the page"
        self._next()

    def _next(self) -> None:
        example = self.examples[self.done]
        self.done += 1
        example.namespace["reader"] = self
        example.evaluate()

    def run(self, example: Example) -> str | None:
        """For Sybil: what is wrong with the block that is next, or nothing."""
        before = self.examples[self.done - 2].parsed if self.done > 1 else None
        try:
            run_block(self.page, example.parsed, before)
        except BlockFailed as failed:
            return str(failed)
        return None


def evaluate(example: Example) -> str | None:
    reader: Reader = example.namespace["reader"]
    return reader.run(example)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


TEXTS: Final = {name_of(path): path.read_text(encoding="utf-8") for path in PAGES}
EXAMPLES: Final = {name_of(path): examples_of(path, evaluate) for path in PAGES}
BLOCKS: Final = [
    pytest.param(name, number, id=f"{name}:{example.line}")
    for name, examples in EXAMPLES.items()
    for number, example in enumerate(examples)
]


def blocks() -> Iterator[tuple[str, Block]]:
    """All blocks there are, each with its page."""
    for name, examples in EXAMPLES.items():
        for example in examples:
            yield name, example.parsed


class Desk:
    """Where one page lies open at a time: the next one closes it, and with it everything that it has started."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._folders = tmp_path_factory
        self._reader: Reader | None = None

    def reader(self, name: str) -> Reader:
        if self._reader is None or self._reader.page.name != name:
            self.close()
            self._reader = Reader(Page(name, self._folders.mktemp("page")), EXAMPLES[name])
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.page.close()
            self._reader = None


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory)
    yield desk
    desk.close()


@pytest.mark.timeout(SECONDS + 10)
@pytest.mark.parametrize(("name", "number"), BLOCKS)
def test_a_block_does_what_its_page_says(desk: Desk, name: str, number: int) -> None:
    desk.reader(name).follow(number)


def test_few_blocks_are_left_alone_and_each_for_a_reason() -> None:
    alone = [(page, block) for page, block in blocks() if "no-run" in block.directives]
    left = {f"{page}:{block.line}": block.directives["no-run"] for page, block in alone}
    assert all(left.values())
    assert len(left) <= AT_MOST, left


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_block_of_a_page_is_seen(name: str) -> None:
    text = TEXTS[name]
    assert count_fences(text) == 2 * len(EXAMPLES[name])
    assert idle_directives(text) == [], "a comment that directs a block stands on the line before it"
