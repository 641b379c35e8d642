"""One Chromium for all tests of the inspector; a gateway, a cast and a fresh tab for each."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from mew.config.models import Queues
from mew.journal.maintenance import MaintenanceClient
from mew.protocol.settings import Limits
from tests.e2e.browser.harness import (
    INSTALL_SECONDS,
    KEPT,
    PARTICIPANTS,
    PATIENCE,
    Cast,
    Tab,
    browser_path,
    cast_of,
    launched,
)
from tests.gateway import raw
from tests.gateway.raw import Running, running
from tests.support.host_requirements import requires

QUEUE_BYTES: Final = 2**20
"""For one reader: enough for every page that is not frozen."""
STOP_SECONDS: Final = 50.0
expect.set_options(timeout=PATIENCE * 1000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may have to wait until a browser is installed."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.timeout(INSTALL_SECONDS + 60))
            return


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = browser_path()
    requires(path, "there is no Chromium, and none could be installed")
    with sync_playwright() as playwright:
        started = launched(playwright, str(path))
        yield started
        started.close()


@pytest.fixture(scope="session", autouse=True)
def economy() -> Iterator[None]:
    """Browsers and gateways share two cores: a stop may take longer than elsewhere, and journals stay logs.

    To seal one at its end costs a process for each test, and the page reads both alike.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(raw, "PATIENCE", STOP_SECONDS)
        patched.setattr(MaintenanceClient, "seal", lambda keeper, folder, log: None)
        yield


@pytest.fixture(scope="session")
def afterwards() -> Iterator[Callable[[ExitStack], None]]:
    """Stops gateways beside the tests that follow, which takes a moment. Errors are reported."""
    with ThreadPoolExecutor(1) as pool:
        stopped: list[Future[None]] = []
        yield lambda left: stopped.append(pool.submit(left.close))
        for future in stopped:
            future.result()


@pytest.fixture
def limits() -> Limits:
    """Of the space; a module may have others."""
    return Limits()


@pytest.fixture
def gateway(
    tmp_path_factory: pytest.TempPathFactory, afterwards: Callable[[ExitStack], None], limits: Limits
) -> Iterator[Running]:
    left = ExitStack()
    folder, queues = tmp_path_factory.mktemp("space"), Queues(data_bytes=QUEUE_BYTES)
    space = {"participants": PARTICIPANTS, "limits": limits}
    yield left.enter_context(running(folder, space, journal=KEPT, queues=queues))
    afterwards(left)


@pytest.fixture
def cast(gateway: Running) -> Iterator[Cast]:
    with cast_of(gateway) as playing:
        yield playing


@pytest.fixture
def context(browser: Browser, gateway: Running) -> Iterator[BrowserContext]:
    """Closed before the gateway stops."""
    opened = browser.new_context(viewport={"width": 1320, "height": 860}, reduced_motion="reduce", color_scheme="light")
    yield opened
    opened.close()


@pytest.fixture
def tab(context: BrowserContext, gateway: Running) -> Iterator[Tab]:
    new_tab = Tab(context.new_page(), gateway)
    yield new_tab
    new_tab.is_fine()
