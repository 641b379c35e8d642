"""Which tables a statement names, as DuckDB itself reads it: only they need to be there.

May name too many, never too few.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb


_WORD: Final = re.compile(r"\w+")


def named_in(connection: "duckdb.DuckDBPyConnection", sql: str, known: Collection[str] = ()) -> set[str]:
    """Their names in small letters, as DuckDB takes them all.

    Not those that the statement defines itself, unless they are `known` as tables: it may mean both.
    """
    # All of it: a connection with an unfinished answer takes no function for a view.
    ((told,),) = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchall() or [("{}",)]
    read = json.loads(told)
    if read.get("error", True):
        # Only a `select` can be taken apart (`pivot` and `copy` cannot): every word of it may be a table.
        return {word.lower() for word in _WORD.findall(sql)}
    nodes = list(_nodes(read))
    named = {str(each["table_name"]).lower().strip('"') for each in nodes if each.get("table_name")}
    own = {entry["key"].lower() for each in nodes if "cte_map" in each for entry in each["cte_map"]["map"]}
    return named - (own - set(known))


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of what DuckDB read, at any depth. A table is called `table_name`, whatever is done to it."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(value)
