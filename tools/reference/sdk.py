"""docs/reference/sdk.md: which names of the library are public, in an order to read; their docstrings tell the rest.

Must not leave out a public name, and must not have one twice.
"""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Final

import msgspec

from tools.reference.writing import MADE

INTRO: Final = """\
# SDK

Every public name of the library, as its docstring tells it. [The guide](../sdk.md) tells how they go together.

"""
MODULES: Final = ("mew.client", "mew.view", "mew.testing", "mew.pipeline", "mew.bridge", "mew.agents")
"""Whose public names the page has, each of them once."""


def _names(module: str, text: str) -> list[str]:
    return [f"{module}.{name}" for name in text.split()]


SECTIONS: Final = {
    "Connect": (
        "`mew.connect` and `mew.Participant` are the same as here, and load the rest when they are first asked for.",
        _names("mew.client", "connect ConnectContext ConnectOptions Connection"),
    ),
    "The space": (
        "What you are in once you are connected.",
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
        "What `Space.events` gives.",
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
        _names(
            "mew.view", "SpaceView ParticipantView ProposalView StreamView view_from_welcome apply_envelope apply_frame"
        ),
    ),
    "Tests": ("", _names("mew.testing", "MemorySpace Client Message ReceivedFrame MemoryTokens settings")),
    "The lake": (
        "",
        ["mew.pipeline.open_lake", "mew.pipeline.opening.OpenLake", "mew.pipeline.lookup.asking.QueryResult"],
    ),
    "The bridge": (
        "",
        _names("mew.bridge", "run_bridge Bridge BridgeSettings StdioServer HttpServer BridgeTimeouts")
        + _names("mew.bridge", "InvalidSettings ServerStartError ServerDisconnected TooManyRestarts"),
    ),
    "Agents": ("", _names("mew.agents", "run load_agent Agent AgentSettings AGENTS BadAgent")),
}
"""Heading to a sentence, and the names below it."""
MADE_BY_USERS: Final = {
    "mew.client.Participant",
    "mew.client.ControlHandler",
    "mew.testing.MemorySpace",
    "mew.testing.MemoryTokens",
    "mew.bridge.Bridge",
}
"""Classes whose constructor is worth a look; values are made of their fields."""
HIDDEN: Final = {
    "mew.client.Connection": ".*",
    "mew.client.Space": "queue_limits|session|sequences|router|post|subscribe|watch_view|unwatch_view",
}
"""Members that only the other parts of the library use."""


def public_names() -> Iterator[str]:
    """The names that the modules declare as public."""
    for module in MODULES:
        loaded = import_module(module)
        declared = getattr(loaded, "__all__", None)
        for name in declared if declared is not None else _defined(module):
            yield f"{module}.{name}"


def _defined(module: str) -> Iterator[str]:
    """What a module without a list defines itself."""
    for name, value in vars(import_module(module)).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module:
            yield name


def _directive(name: str) -> str:
    """What makes mkdocstrings tell of a name: of a value all fields, of a class that users make how it is made."""
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
    said = ["    options:", *(f"      {each}" for each in options)] if options else []
    return "\n".join([f"::: {name}", *said])


def page() -> str:
    """The page."""
    sections = []
    for title, (words, names) in SECTIONS.items():
        shown = "\n\n".join(map(_directive, names))
        sections.append(f"## {title}\n\n{words}\n\n{shown}\n" if words else f"## {title}\n\n{shown}\n")
    return MADE + INTRO + "\n".join(sections)
