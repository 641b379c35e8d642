"""Each rule of the protocol is run at the door that `--door` names.

`open_space(**configuration)` opens a space there. A test that only some doors can show says so:
`@pytest.mark.doors("core")`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interaction.doors import Door, open_door


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the door cannot show; at other doors than the core's also what uses no door at all."""
    door = config.getoption("--door")
    left_out = [item for item in items if not _is_shown(item, door)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_shown(item, door)]


def _is_shown(item: pytest.Item, door: str) -> bool:
    if "interaction" not in item.path.parts:
        return True
    limited = item.get_closest_marker("doors")
    if limited is not None:
        return door in limited.args
    return door == "core" or "open_space" in getattr(item, "fixturenames", ())


@pytest.fixture
def open_space(request: pytest.FixtureRequest) -> Iterator[Door]:
    door, opened = open_door(request.config.getoption("--door")), []

    def open_one(**configuration: Any) -> Any:
        space = door(**configuration)
        opened.append(space)
        return space

    yield open_one
    for space in opened:
        if hasattr(space, "close"):
            space.close()
