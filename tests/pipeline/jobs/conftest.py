"""A journal and a lake for tests of formats; a module that wants others has its own, under the same names."""

from pathlib import Path

import pytest

from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With frames of many formats. Shared and never changed."""
    root = tmp_path_factory.mktemp("journal") / "journal"
    generate(root, records=8_000, spaces=2, seed=5, segment_bytes=50_000)
    return root


@pytest.fixture(scope="session")
def plainly(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its lake, made in one batch, in which no format has a table. Also shared."""
    lake = tmp_path_factory.mktemp("plainly") / "lake"
    run_all(journal, lake)
    return lake
