"""What the gateway uses of private parts of uvicorn and picows is the same in the installed versions.

If a test here fails after an update, compare the changes of the library with the adapter (`gateway/http_protocol.py`,
`_internal/picows_protocol.py` or `gateway/websocket_protocol.py`) before you run any other test. Then set the version
here.
"""

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import picows
import pytest
import uvicorn
from picows.picows import WSProtocol  # type: ignore[attr-defined]
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mew._internal.picows_protocol import picows_arguments
from mew.gateway.http_protocol import HttpConnection
from mew.gateway.websocket_protocol import SocketLog
from tests.docs.sources import MODULES, module_path

TRIED: Final = {"uvicorn": "0.54", "picows": "2.3"}
"""The minor versions with which the adapters were tried."""
OVERRIDDEN: Final = {
    "_should_upgrade",
    "_start_asgi_task",
    "connection_lost",
    "connection_made",
    "data_received",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "on_url",
    "resume_writing",
}
"""Methods of uvicorn that `HttpConnection` replaces or extends."""


@pytest.mark.parametrize("library", TRIED)
def test_the_adapter_was_tried_with_the_installed_version(library: str) -> None:
    assert version(library).rpartition(".")[0] == TRIED[library]


IMPORTERS: Final = {
    "uvicorn": {"gateway/http_protocol.py"},
    "picows.picows": {"_internal/picows_protocol.py"},
}
"""The adapters: the only modules that import uvicorn, or the undocumented module of picows."""


@pytest.mark.parametrize("library", IMPORTERS)
def test_only_the_adapter_imports_the_library(library: str) -> None:
    imported = re.compile(rf"^\s*(?:from|import) {re.escape(library)}\b", re.MULTILINE)
    importers = {module_path(module) for module in MODULES if imported.search(module.read_text(encoding="utf-8"))}
    assert importers == IMPORTERS[library]


# uvicorn


@pytest.fixture
def protocol() -> Iterator[HttpToolsProtocol]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Answer nothing."""

    loop = asyncio.new_event_loop()
    config = uvicorn.Config(app, http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None)
    yield HttpToolsProtocol(config, ServerState(), {}, _loop=loop)
    loop.close()


def test_the_replaced_methods_of_uvicorn_are_listed() -> None:
    methods = {name for name, value in vars(HttpConnection).items() if inspect.isfunction(value)}
    assert {name for name in methods if hasattr(HttpToolsProtocol, name)} - {"__init__"} == OVERRIDDEN


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_a_replaced_method_of_uvicorn_has_the_same_parameters(name: str) -> None:
    theirs, ours = getattr(HttpToolsProtocol, name), getattr(HttpConnection, name)
    assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]


def test_the_protocol_of_uvicorn_has_the_attributes_that_are_used(protocol: HttpToolsProtocol) -> None:
    used = {"app", "client", "config", "connections", "cycle", "flow", "headers", "loop", "parser", "pipeline"}
    used |= {"scheme", "scope", "server", "tasks", "transport"}
    assert used - vars(protocol).keys() == set()
    assert callable(protocol._unset_keepalive_if_required)
    protocol.on_message_begin()
    assert protocol.url == b""
    assert protocol.scope["state"] == {}


def test_the_configuration_of_uvicorn_has_the_attributes_that_are_used(protocol: HttpToolsProtocol) -> None:
    options = {"http", "ws", "lifespan", "log_config", "access_log", "ssl_certfile", "ssl_keyfile"}
    assert options - inspect.signature(uvicorn.Config).parameters.keys() == set()
    assert callable(uvicorn.Config.load)
    assert callable(protocol.config.loaded_app)
    assert protocol.config.ssl is None


def test_uvicorn_tracks_connections_and_requests_in_its_state() -> None:
    state = ServerState()
    assert (state.connections, state.tasks) == (set(), set())


def test_the_request_of_uvicorn_has_the_attributes_that_are_used(protocol: HttpToolsProtocol) -> None:
    cycle = RequestResponseCycle(
        scope={},  # type: ignore[typeddict-item]
        transport=asyncio.Transport(),
        flow=FlowControl(asyncio.Transport()),
        logger=logging.getLogger(),
        access_logger=logging.getLogger(),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )
    used = {
        "body",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "scope",
        "transport",
    }
    assert used - vars(cycle).keys() == set()


# picows


def test_the_arguments_of_the_protocol_of_picows_have_their_names_and_order() -> None:
    source = Path(picows.__file__).with_name("picows.pyx").read_text()
    body = source[source.index("cdef class WSProtocol") :]
    signature = re.search(r"def __init__\(self,(.*?)\):", body, re.DOTALL)
    assert signature is not None
    names = [argument.split()[-1] for argument in signature[1].split(",")]
    assert names == [*picows_arguments(_no_connection, logging.getLogger(), max_frame_size=1, read_buffer=1)]


def _no_connection(_: object) -> Any:
    raise AssertionError("no connection is made here")


class _RecordingLog(SocketLog):
    """Keeps the exception that is being handled when picows reports an error."""

    def __init__(self) -> None:
        super().__init__(logging.Logger("mew.test_of_picows", logging.INFO))
        self.handled: list[BaseException | None] = []

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.handled.append(sys.exception())


class _RejectingListener(picows.WSListener):
    """Finds a fault in every frame."""

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        raise picows.WSProtocolError(1002, "rejected by the listener")


UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(b"\x81\x01a", "masked"), (b"\x81\x81\x00\x00\x00\x00a", "rejected by the listener")],
    ids=["found by picows", "found by the listener"],
)
def test_picows_reports_a_fault_of_a_peer_while_it_handles_its_exception(frame: bytes, reason: str) -> None:
    log = _RecordingLog()

    async def exchange() -> None:
        loop = asyncio.get_running_loop()
        arguments = picows_arguments(lambda _: _RejectingListener(), log, max_frame_size=100, read_buffer=2048)
        server = await loop.create_server(lambda: WSProtocol(*arguments.values()), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(UPGRADE + frame)
            await reader.read()
            writer.close()

    asyncio.run(exchange())
    (fault,) = log.handled
    assert isinstance(fault, picows.WSProtocolError)
    assert reason in str(fault)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (WSProtocol, "listener transport buffer_updated connection_lost connection_made get_buffer"),
        (picows.WSTransport, "underlying_transport is_close_frame_sent is_disconnected send_close disconnect"),
        (picows.WSFrame, "payload_size fin rsv1 rsv2 rsv3 msg_type get_payload_as_bytes get_payload_as_memoryview"),
        (picows.WSListener, "on_ws_connected on_ws_disconnected on_ws_frame pause_writing resume_writing"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_classes_of_picows_have_the_attributes_that_are_used(kind: Callable[..., object], names: str) -> None:
    assert [name for name in names.split() if not hasattr(kind, name)] == []
