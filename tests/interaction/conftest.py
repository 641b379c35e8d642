"""Each rule of the protocol is run once per door.

`open_space(**configuration)` opens a space at the door the test runs at. A test that only some doors can show says so:
`@pytest.mark.doors("core")`.
"""

import pytest

from tests.interaction.doors import DOORS, Door


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "open_space" in metafunc.fixturenames:
        limited = metafunc.definition.get_closest_marker("doors")
        names = list(DOORS) if limited is None else [name for name in limited.args if name in DOORS]
        metafunc.parametrize("door", names, indirect=True)


@pytest.fixture
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_space(door: str) -> Door:
    return DOORS[door]
