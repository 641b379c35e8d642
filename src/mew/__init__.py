"""MEW, the Multi-Entity Workspace protocol: a space that many participants share.

Imports nothing: `import mew` must stay instant, and `mew.protocol` must load where only the core's
libraries are installed. `mew.connect` loads the SDK when it is first asked for.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name != "connect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    return import_module("mew.client").connect
