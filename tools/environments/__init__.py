"""Make the environments of this repository from their pins: `python tools/environments .venv`.

Any Python 3.11 runs this, before a single package is installed: it must import nothing but the standard library.
"""

from .failures import SetupError
from .setup import STAMP, Setup, setup_seconds
from .table import ENVIRONMENTS, INSTALL_OPTIONS, Environment

__all__ = ["ENVIRONMENTS", "INSTALL_OPTIONS", "STAMP", "Environment", "Setup", "SetupError", "setup_seconds"]
