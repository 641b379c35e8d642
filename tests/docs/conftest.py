"""How the tests of the documents are shared between two processes: a page stays whole, and so does a module.

Must not hold fixtures: each module has its own.
"""

import re
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

BLOCK: Final = re.compile(r"(.*\[.*):\d+\]")
"""The id of a block: everything before the number of its line is the same for all of a page."""


class ByPage(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadscope`, where the blocks of a page are a scope of their own."""

    def _split_scope(self, nodeid: str) -> str:
        block = BLOCK.fullmatch(nodeid)
        return block[1] if block else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPage | None:
    """Ours, where scopes are asked for."""
    return ByPage(config, log) if config.getvalue("dist") == "loadscope" else None
