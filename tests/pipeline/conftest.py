"""One Spark for all tests of the pipeline that need it.

Must not hold fixtures of one package; those live in its own folder.
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings

SETTINGS = PipelineSettings(master="local[2]", driver_memory="1g")
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""So little work is done before a better compiler would have paid."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Shared: a test leaves it as it was."""
    session = open_session(SETTINGS, lake=tmp_path_factory.mktemp("spark lake"), java_options=SHORT_LIVED)
    yield session
    close_session(session)
