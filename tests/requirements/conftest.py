"""Requirements are tested at every transport that `--transport` names: `--transport websocket,memory,http`.

In the core, all tests run. At another transport, only the tests marked `@pytest.mark.transport` run: those whose
subject is the transport, and some of each area of requirements. `@pytest.mark.transport("memory", "websocket")` runs a
test at these two only. `--whole-matrix` runs all tests at each transport.

`open_space(**configuration)` opens a space there. `tests.requirements.transports` says what each transport shows.
`@pytest.mark.transports("core", "memory")` names the transports that can show a requirement, where not all can.
`@pytest.mark.sockets("alice")` names participants that have a socket at the HTTP transport too, because they send
frames or because they lose a connection.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.transports import LIKE, TRANSPORTS, Transport, open_transport

FOLDER = Path(__file__).parent


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
    """Deselect what a transport cannot show, what need not run there, and, without the core, tests of no transport."""
    deselected = [item for item in items if FOLDER in item.path.parents and not _is_selected(item, config)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if FOLDER not in item.path.parents or _is_selected(item, config)]


def _is_selected(item: pytest.Item, config: pytest.Config) -> bool:
    transport = item.callspec.params.get("open_space") if hasattr(item, "callspec") else None
    if transport is None:
        return "core" in config.getoption("--transport")
    possible = item.get_closest_marker("transports")
    if possible is not None and LIKE.get(transport, transport) not in possible.args:
        return False
    marked = item.get_closest_marker("transport")
    is_marked = marked is not None and transport in (marked.args or TRANSPORTS)
    return transport == "core" or is_marked or bool(config.getoption("--whole-matrix"))


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
