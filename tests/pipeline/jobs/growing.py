"""A journal that grows: the sealed files of another one, one after the other, as a sealer would add them."""

import os
from collections.abc import Iterator
from pathlib import Path

from mew.journal.layout import JournalFolder, Segment, spaces_in


class Growing:
    """A journal with a given part of another one."""

    def __init__(self, whole: Path, path: Path) -> None:
        self.path = path
        self._whole = whole
        self._left = {space: iter(JournalFolder(whole, space).segments()) for space in spaces_in(whole)}
        path.mkdir()

    def grow(self, segments: int = 1) -> bool:
        """Some more of each space; whether there was any."""
        grown = [self._add(segment) for each in self._left.values() for segment in _some(each, segments)]
        return bool(grown)

    def _add(self, segment: Segment) -> Segment:
        hour = self.path / segment.hour.relative_to(self._whole)
        hour.mkdir(parents=True, exist_ok=True)
        if segment.frames.exists():
            os.link(segment.frames, hour / segment.frames.name)
        os.link(segment.control, hour / segment.control.name)
        return segment


def _some(segments: Iterator[Segment], count: int) -> Iterator[Segment]:
    for _, segment in zip(range(count), segments, strict=False):
        yield segment
