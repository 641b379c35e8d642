"""MEW, the Multi-Entity Workspace protocol: a space that many participants share.

Imports nothing: `import mew` must stay instant, and `mew.protocol` must load where only the core's
libraries are installed. `mew.connect` and `mew.Participant` load the SDK when they are first asked for.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in {"Participant", "connect"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    return getattr(import_module("mew.client"), name)
