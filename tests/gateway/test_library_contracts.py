"""What the gateway uses of private parts of uvicorn and picows is the same in the installed versions.

If a test here fails after an update, compare the changes of the library with the adapter (`gateway/http_protocol.py` or
`gateway/websocket_protocol.py`) before you run any other test. Then set the version here.
"""

import asyncio
import inspect
import logging
import re
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

from mew.gateway.http_protocol import HttpConnection
from mew.gateway.websocket_protocol import picows_arguments

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
    assert names == [*picows_arguments(_no_connection, 1)]


def _no_connection(_: object) -> Any:
    raise AssertionError("no connection is made here")


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
