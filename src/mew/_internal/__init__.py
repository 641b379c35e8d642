"""Helpers shared by several packages. Not public: they may change in any version."""

from typing import Final

SPACE_FOLDER: Final = ".mew"
"""The folder in the directory of a space that holds its journal, logs and tokens."""
