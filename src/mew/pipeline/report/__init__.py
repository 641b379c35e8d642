"""The report: what happened in a space as one page that opens anywhere, with plots, and without a network.

Reads tables and writes one file. Its figures never read `frames`: what flowed is taken from `stream_activity`. The
results of the checks are given.
"""

from mew.pipeline.report.gathering import gather
from mew.pipeline.report.page import page
from mew.pipeline.report.scope import BadScope, Scope, scopes

__all__ = ["BadScope", "Scope", "gather", "page", "scopes"]
