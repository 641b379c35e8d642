"""Fixtures that several tests of the command share."""

from collections.abc import Iterator

import pytest

from tests.cli.running_space import Lab, lab_in


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running space, for tests that are not disturbed by what other tests do in it."""
    with lab_in(tmp_path_factory.mktemp("lab")) as started:
        yield started
