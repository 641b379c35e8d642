"""A gateway for each test of the bundled agents."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.harness import gateway_in
from tests.gateway.raw import Running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with gateway_in(tmp_path) as started:
        yield started
