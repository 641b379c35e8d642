"""Each rule of the protocol is run at every door that `--door` names: `--door websocket,memory,http`.

`open_space(**configuration)` opens a space there. What each door shows stands in `tests.requirements.transports`. A test that
only some of them can show says so, `@pytest.mark.doors("core", "memory")`; one whose participants need sockets at the
HTTP door too, because they send frames or have a connection to lose, names them, `@pytest.mark.sockets("alice")`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.requirements.transports import LIKE, Door, open_door


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sockets(*participants): who has a socket at the HTTP door too, and not only posts and polls"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Once for each door."""
    if "open_space" in metafunc.fixturenames:
        metafunc.parametrize("open_space", metafunc.config.getoption("--door"), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a door cannot show; at other doors than the core's also what uses no door at all."""
    doors = config.getoption("--door")
    left_out = [item for item in items if not _is_shown(item, doors)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_shown(item, doors)]


def _is_shown(item: pytest.Item, doors: list[str]) -> bool:
    if "requirements" not in item.path.parts:
        return True
    door = item.callspec.params.get("open_space") if hasattr(item, "callspec") else None
    limited = item.get_closest_marker("doors")
    if door is None:
        return "core" in doors
    return limited is None or LIKE.get(door, door) in limited.args


@pytest.fixture
def open_space(request: pytest.FixtureRequest) -> Iterator[Door]:
    sockets = request.node.get_closest_marker("sockets")
    door = open_door(request.param, sockets.args if sockets else ())
    with ExitStack() as opened:

        def open_one(**configuration: Any) -> Any:
            space = door(**configuration)
            if hasattr(space, "close"):
                opened.callback(space.close)
            return space

        yield open_one
