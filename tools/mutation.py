"""A pytest plugin for mutation testing: lets mutmut ask for tests by name, and answers quickly.

mutmut reads a private name of pytest's that newer versions no longer have, and asks for thousands of tests by their
ids, some of which pytest cannot find that way. Must not be loaded by any other run.
"""

import os
import signal
from collections.abc import Generator
from types import FrameType

import pytest
from hypothesis import Phase, settings

WANTED = pytest.StashKey[dict[str, int]]()
CPU_SECONDS = 20
"""Processor time of one test. A mutant that loops fails by it, and a test that waits for a busy machine does not."""


def pytest_configure(config: pytest.Config) -> None:
    """Collect the files of the wanted tests instead of each test by its id."""
    # No search for a shorter example: that it fails is all we ask.
    settings.register_profile("mutation", settings.get_profile("fixed"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutation")
    order = [argument for argument in config.args if "::" in argument]
    if order:
        config.stash[WANTED] = {name: place for place, name in enumerate(order)}
        config.args[:] = sorted({argument.partition("::")[0] for argument in config.args})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the wanted tests: the mutated module's own first, those with many examples last, else as mutmut has them."""
    for item in items:
        item._nodeid = item.nodeid  # type: ignore[attr-defined]
    order = config.stash.get(WANTED, None)
    if order is not None:
        own = own_tests(os.environ.get("MUTANT_UNDER_TEST", ""))
        items[:] = [item for item in items if item.nodeid in order]
        items.sort(key=lambda item: (has_examples(item), item.path.name != own, order[item.nodeid]))


def own_tests(mutant: str) -> str:
    """The file with the tests of a mutant's module: `test_fold.py` for `mew.protocol.fold.x_apply__mutmut_1`."""
    module = mutant.partition(".x")[0].rpartition(".")[2]
    return f"test_{module}.py"


def has_examples(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "function", None), "hypothesis")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Fail a test that takes too much processor time, and again if it catches that failure."""
    signal.signal(signal.SIGPROF, _fail)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _fail(_signal: int, _frame: FrameType | None) -> None:
    pytest.fail(f"over {CPU_SECONDS} seconds of processor time")
