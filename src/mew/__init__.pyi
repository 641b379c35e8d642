from mew.client import Participant as Participant
from mew.client import connect as connect

__version__: str
