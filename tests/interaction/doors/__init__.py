"""The doors that every rule is tried at: each opens a space whose clients can join, send and receive.

A door is a callable that takes the configuration of a space and gives what `mew.testing.MemorySpace` gives. Must not
decide anything: what a test sees is what the door's own code did.
"""

from collections.abc import Callable
from typing import Any

from mew.testing import MemorySpace

Door = Callable[..., Any]

DOORS: dict[str, Door] = {"core": MemorySpace}
