"""The page that people look at a space with, as files of this package.

Serves what `inspector/` of the repository was built into, and knows nothing of spaces: the page asks the gateway's own
doors. No file is read after the start, and nothing outside the folder is ever served.
"""

from mew.inspector.page import Page

__all__ = ["Page"]
