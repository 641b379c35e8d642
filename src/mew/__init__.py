"""MEW, the Multi-Entity Workspace protocol: a space that many participants share.

Imports nothing: `import mew` must stay instant, and `mew.protocol` must load where only the core's
libraries are installed.
"""

__version__ = "0.1.0"
