"""Looking things up: SQL over a lake's tables, answered by DuckDB from a cold shell in less than a second.

Changes nothing, starts no JVM, and loads neither pandas nor pyarrow's datasets on the way.
"""

from mew.pipeline.lookup.asking import BadQuery, QueryResult, query
from mew.pipeline.lookup.output import FORMS, write

__all__ = ["FORMS", "BadQuery", "QueryResult", "query", "write"]
