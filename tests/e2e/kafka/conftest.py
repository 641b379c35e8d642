"""One broker and one Spark for all tests of this folder.

A test that stops the broker starts it again.
"""

from collections.abc import Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.session import close_session, open_session
from tests.e2e.kafka.broker import Broker
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED

_numbers = count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def topic(broker: Broker) -> str:
    """The address of a topic that no other test uses; it does not exist yet."""
    return broker.address(f"journal-{next(_numbers)}")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session(SETTINGS, lake=tmp_path_factory.mktemp("spark lake"), java_options=SHORT_LIVED)
    yield session
    close_session(session)
