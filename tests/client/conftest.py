"""A separate gateway for each test of the SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.raw import Running, running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started
