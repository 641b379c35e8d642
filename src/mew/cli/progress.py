"""Progress bars: on standard error, and only where somebody looks at it.

Must not write anything else, and must not be waited for.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how much is done, and how much there is."""


@contextmanager
def bar(what: str) -> Iterator[Progress]:
    """A bar to tell; without a terminal it shows nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
