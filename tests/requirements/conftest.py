"""Each requirement is tested at every transport that `--transport` names: `--transport websocket,memory,http`.

`open_space(**configuration)` opens a space there. `tests.requirements.transports` says what each transport shows.
`@pytest.mark.transports("core", "memory")` names the transports that can show a requirement, where not all can.
`@pytest.mark.sockets("alice")` names participants that have a socket at the HTTP transport too, because they send
frames or because they lose a connection.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.requirements.transports import LIKE, Transport, open_transport


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sockets(*participants): participants that have a socket at the HTTP transport, besides posts and polls",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each transport."""
    if "open_space" in metafunc.fixturenames:
        metafunc.parametrize("open_space", metafunc.config.getoption("--transport"), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what a transport cannot show, and, without the core, the tests that use no transport."""
    transports = config.getoption("--transport")
    left_out = [item for item in items if not _is_shown(item, transports)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_shown(item, transports)]


def _is_shown(item: pytest.Item, transports: list[str]) -> bool:
    if "requirements" not in item.path.parts:
        return True
    transport = item.callspec.params.get("open_space") if hasattr(item, "callspec") else None
    limited = item.get_closest_marker("transports")
    if transport is None:
        return "core" in transports
    return limited is None or LIKE.get(transport, transport) in limited.args


@pytest.fixture
def open_space(request: pytest.FixtureRequest) -> Iterator[Transport]:
    sockets = request.node.get_closest_marker("sockets")
    transport = open_transport(request.param, sockets.args if sockets else ())
    with ExitStack() as opened:

        def open_one(**configuration: Any) -> Any:
            space = transport(**configuration)
            if hasattr(space, "close"):
                opened.callback(space.close)
            return space

        yield open_one
