"""Tiny DataFrames of partial rows, and the rows of a result: tests have what they expect beside what they give."""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mew.pipeline.jobs.gold import configured_session
from mew.pipeline.silver.partials import COLUMNS, PARTIALS

MORE = {"until": pa.int64(), "complete": pa.bool_()}
SPACE = "lab"


def partial_df(session: SparkSession, tag: str, *rows: dict[str, Any]) -> DataFrame:
    """Rows of one kind, as the gold tables read them; columns that are not given are null, but for the space."""
    fields = [PARTIALS.field(name) for name in ("space", *COLUMNS[tag])]
    schema = pa.schema([*fields, *(pa.field(name, type_) for name, type_ in MORE.items())])
    table = pa.Table.from_pylist([{"space": SPACE, **row} for row in rows], schema)
    return configured_session(session, is_little=True).createDataFrame(table).coalesce(1)


def rows_of(df: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of a result, in order; times as microseconds since 1970."""
    table = df.select(*names).toArrow()
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
