"""The doors that every rule is tried at: each opens a space whose clients can join, send and receive.

A door is a callable that takes the configuration of a space and gives what `mew.testing.MemorySpace` gives. Must not
decide anything: what a test sees is what the door's own code did.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

Door = Callable[..., Any]

DOORS = {
    "core": ("mew.testing", "MemorySpace"),
    "websocket": ("tests.interaction.doors.websocket", "WebsocketSpace"),
}
"""By name and not by import: the core is tested where no server is installed."""


def open_door(name: str) -> Door:
    """The door of this name."""
    module, door = DOORS[name]
    found: Door = getattr(import_module(module), door)
    return found
