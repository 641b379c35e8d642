"""A gateway for each test of the bridge, with a participant who calls, one who only proposes, and the bridge's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bridge.harness import PARTICIPANTS
from tests.gateway.raw import Running, running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, {"participants": PARTICIPANTS}) as started:
        yield started
