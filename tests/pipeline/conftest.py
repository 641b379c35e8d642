"""One Spark for all tests of the pipeline that need it, and what several of their modules look at.

Must not hold fixtures of one package; those live in its own folder.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.session import close_session, open_session
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED
from tests.pipeline.sharing import Sharing, place_in_queue
from tools.journal_generator import Truth, generate


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    """With `--dist loadscope` all that need Spark go to one worker: a second Spark takes longer than it saves."""
    return Sharing(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: place_in_queue(item.nodeid))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Shared: a test leaves it as it was."""
    session = open_session(SETTINGS, lake=tmp_path_factory.mktemp("spark lake"), java_options=SHORT_LIVED)
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A journal and its lake, of several batches. Shared and never changed; Spark caches its metadata."""
    folder = tmp_path_factory.mktemp("it's a lake")
    truth = generate(folder / "journal", records=8_000, spaces=2, seed=2)
    assert run_all(folder / "journal", folder / "lake", most=2_500) >= 2
    return folder, truth
