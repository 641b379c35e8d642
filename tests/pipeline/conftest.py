"""One Spark for all tests of the pipeline that need it, and what several of their modules look at.

Must not hold fixtures of one package; those live in its own folder.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.session import close_session
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import shared_session
from tests.pipeline.sharing import place_in_queue
from tools.journal_generator import Truth, generate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: place_in_queue(item.nodeid))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Shared: a test leaves it as it was."""
    session = shared_session()
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A journal and its lake, of several batches. Shared and never changed; Spark caches its metadata."""
    folder = tmp_path_factory.mktemp("it's a lake")
    truth = generate(folder / "journal", records=8_000, spaces=2, seed=2)
    assert run_all(folder / "journal", folder / "lake", most=2_500) >= 2
    return folder, truth
