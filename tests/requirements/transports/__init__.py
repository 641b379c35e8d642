"""The doors that every rule is tried at: each opens a space whose clients can join, send and receive.

What a test that passes there has shown:

- `core`: the rule itself. The pure core decides as it should, and says who is to receive what.
- `memory`: a gateway's hub and its outlets. What the core says is done in its order and for the right readers, however
  many commands fall into one turn of the loop.
- `websocket`: the whole way, from a client's bytes over TCP to another's, close codes included.
- `sdk`: the same, with participants who use `mew.connect`: the SDK sends, reads and knows what it should. It can show
  whatever the `websocket` door can.
- `http`: posts and polls. They are judged alike, a refusal is the answer, a poll shows what a socket would have got.

A door is a callable that takes the configuration of a space and gives what `mew.testing.MemorySpace` gives. Must not
decide anything: what a test sees is what the door's own code did. What a door cannot show it does not play: the test
names the doors that can, with `@pytest.mark.doors(...)`.
"""

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any

Door = Callable[..., Any]

DOORS = {
    "core": ("mew.testing", "MemorySpace"),
    "memory": ("tests.requirements.transports.memory", "HubSpace"),
    "websocket": ("tests.requirements.transports.websocket", "WebsocketSpace"),
    "sdk": ("tests.requirements.transports.sdk", "SdkSpace"),
    "http": ("tests.requirements.transports.http", "HttpSpace"),
}
"""By name and not by import: the core is tested where no server is installed."""

LIKE = {"sdk": "websocket"}
"""Doors that can show what another can, named or not."""


def named(text: str) -> list[str]:
    """The doors of a list like `websocket,memory,http`."""
    names = text.split(",")
    unknown = [name for name in names if name not in DOORS]
    if unknown:
        raise ValueError(f"no door {', '.join(map(repr, unknown))}; there are: {', '.join(DOORS)}")
    return names


def open_door(name: str, sockets: Collection[str] = ()) -> Door:
    """The door of this name; those in `sockets` have one where the others have none."""
    module, door = DOORS[name]
    found: Door = getattr(import_module(module), door)
    return partial(found, sockets=sockets) if name == "http" else found
