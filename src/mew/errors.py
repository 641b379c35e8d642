"""The root of every error that this package raises on purpose.

Imports nothing, so that the command can name it without loading what it does not need.
"""


class MewError(Exception):
    """Something went wrong that its reader can do something about; the message is one sentence."""
