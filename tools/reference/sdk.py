"""docs/reference/sdk.md: the public names of the library, in reading order; mkdocs adds their docstrings.

The page contains every public name once.
"""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Final

import msgspec

from tools.reference.writing import MADE

INTRO: Final = """\
# SDK

Every public name of the library, with its docstring. [The guide](../sdk.md) explains how to use them.

"""
MODULES: Final = ("mew.client", "mew.view", "mew.testing", "mew.pipeline", "mew.bridge", "mew.agents")
"""The modules whose public names the page contains."""


def _names(module: str, text: str) -> list[str]:
    return [f"{module}.{name}" for name in text.split()]


SECTIONS: Final = {
    "Connect": (
        "`mew.connect` and `mew.Participant` are the same objects. They load `mew.client` on first use.",
        _names("mew.client", "connect ConnectContext ConnectOptions Connection"),
    ),
    "The space": (
        "The space that a connection joins.",
        _names("mew.client", "Space Subscription Gap SubscriptionOverflow"),
    ),
    "Streams": ("", _names("mew.client", "Stream Format Frame StreamGap")),
    "Requests and proposals": (
        "",
        _names("mew.client", "McpAnswer ToolResult Proposal Proposals IncomingProposal Reasoning"),
    ),
    "Offering tools": ("", _names("mew.client", "Participant McpHandler serve current_request notify")),
    "Control requests": ("", _names("mew.client", "ControlHandler ControlRequest Status")),
    "Events": (
        "The events of `Space.events`.",
        _names(
            "mew.client",
            "Event ParticipantJoined ParticipantLeft StreamDiscovered StreamStarted StreamEnded CapabilitiesChanged "
            "MessageRefused Disconnected Reconnected",
        ),
    ),
    "Errors": ("", ["mew.client.errors"]),
    "MCP": ("", ["mew.client.mcp"]),
    "The view": (
        "",
        _names("mew.view", "SpaceView ParticipantView ProposalView StreamView")
        + _names("mew.view", "view_from_welcome apply_envelope apply_frame"),
    ),
    "Tests": ("", _names("mew.testing", "MemorySpace Client Message ReceivedFrame MemoryTokens settings")),
    "The lake": (
        "",
        [
            "mew.pipeline.open_lake",
            "mew.pipeline.register_journal_format",
            "mew.pipeline.opening.OpenLake",
            "mew.pipeline.lookup.asking.QueryResult",
        ],
    ),
    "The bridge": (
        "",
        _names("mew.bridge", "run_bridge Bridge BridgeSettings StdioServer HttpServer BridgeTimeouts")
        + _names("mew.bridge", "InvalidSettings ServerStartError ServerDisconnected TooManyRestarts"),
    ),
    "Agents": ("", _names("mew.agents", "run_agent load_agent Agent AgentSettings AGENTS BadAgent")),
}
"""Headings, each with a sentence and the names below it."""
MADE_BY_USERS: Final = {
    "mew.client.Participant",
    "mew.client.ControlHandler",
    "mew.testing.MemorySpace",
    "mew.testing.MemoryTokens",
    "mew.bridge.Bridge",
}
"""Classes whose constructor is shown; the constructor of a struct takes its fields."""
HIDDEN: Final = {
    "mew.client.Connection": ".*",
    "mew.client.Space": "queue_limits|session|sequences|router|post|subscribe|watch_view|unwatch_view",
}
"""Members that only other parts of the library use."""


def public_names() -> Iterator[str]:
    """Yield the names that the modules declare as public."""
    for module in MODULES:
        loaded = import_module(module)
        declared = getattr(loaded, "__all__", None)
        for name in declared if declared is not None else _defined(module):
            yield f"{module}.{name}"


def _defined(module: str) -> Iterator[str]:
    """Yield the names that a module without `__all__` defines itself."""
    for name, value in vars(import_module(module)).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module:
            yield name


def _directive(name: str) -> str:
    """Return the mkdocstrings directive of a name: with all fields of a struct, with the constructor of a class."""
    module, _, last = name.rpartition(".")
    value = getattr(import_module(module), last)
    hidden = f'"!^({HIDDEN[name]})$"' if name in HIDDEN else ""
    options = []
    if name in MADE_BY_USERS:
        options += ["merge_init_into_class: true", 'filters: ["!^_(?!_init__$)"]']
    elif hidden:
        options += [f'filters: ["!^_", {hidden}]']
    if name == "mew.client.mcp" or (isinstance(value, type) and issubclass(value, msgspec.Struct)):
        options += ["show_if_no_docstring: true"]
    if isinstance(value, ModuleType):
        options += [f"members: [{', '.join(value.__all__)}]"]
    lines = ["    options:", *(f"      {option}" for option in options)] if options else []
    return "\n".join([f"::: {name}", *lines])


def page() -> str:
    """Return the page."""
    sections = []
    for title, (words, names) in SECTIONS.items():
        directives = "\n\n".join(map(_directive, names))
        sections.append(f"## {title}\n\n{words}\n\n{directives}\n" if words else f"## {title}\n\n{directives}\n")
    return MADE + INTRO + "\n".join(sections)
