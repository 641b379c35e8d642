"""The base class of all errors that this package raises on purpose.

Imports nothing, so that the command line can import it without loading other modules.
"""


class MewError(Exception):
    """An error that the reader can act on. The message is one sentence."""
