"""MEW, the Multi-Entity Workspace protocol: a space shared by many participants.

Imports nothing: `import mew` must stay fast, and `mew.protocol` must load if only the core's
libraries are installed. `mew.connect` and `mew.Participant` load the SDK when they are first accessed.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in {"Participant", "connect"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    return getattr(import_module("mew.client"), name)
