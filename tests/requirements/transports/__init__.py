"""The transports at which each requirement is tested. Each opens a space whose clients can join, send and receive.

A test that passes has shown:

- at `core`: the rule. The pure core decides as it should, and names the right recipients.
- at `memory`: a gateway's hub and its sinks. They carry out the effects of the core in order and for the right
  readers, however many commands arrive in one iteration of the event loop.
- at `websocket`: the whole path, from a client's bytes over TCP to another client's, close codes included.
- at `sdk`: the same, with participants that use `mew.connect`. It can show whatever `websocket` can show.
- at `http`: posts and polls. The rules are the same, an error is the answer, a poll returns what a socket receives.

A transport is a callable that takes the configuration of a space and returns an object with the interface of
`mew.testing.MemorySpace`. It must not decide anything, and must not imitate what it cannot show: the test then names
the transports that can, with `@pytest.mark.transports(...)`.
"""

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any

Transport = Callable[..., Any]

TRANSPORTS = {
    "core": ("mew.testing", "MemorySpace"),
    "memory": ("tests.requirements.transports.memory", "HubSpace"),
    "websocket": ("tests.requirements.transports.websocket", "WebsocketSpace"),
    "sdk": ("tests.requirements.transports.sdk", "SdkSpace"),
    "http": ("tests.requirements.transports.http", "HttpSpace"),
}
"""Named, not imported: the core is tested in an environment without the libraries of the server."""

LIKE = {"sdk": "websocket"}
"""A transport that can show whatever another can: a test that names the other one means both."""


def transport_names(text: str) -> list[str]:
    """Read a list like `websocket,memory,http`."""
    names = text.split(",")
    unknown = [name for name in names if name not in TRANSPORTS]
    if unknown:
        raise ValueError(f"no transport {', '.join(map(repr, unknown))}; there are: {', '.join(TRANSPORTS)}")
    return names


def open_transport(name: str, sockets: Collection[str] = ()) -> Transport:
    """Return the transport of this name. At `http`, the participants in `sockets` have a socket too."""
    module, attribute = TRANSPORTS[name]
    transport: Transport = getattr(import_module(module), attribute)
    return partial(transport, sockets=sockets) if name == "http" else transport
