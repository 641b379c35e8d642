"""Frames of a format with its typed columns, as a DataFrame: what a table of the format would hold.

The kernel's own function over the rows of `frames`, so that Spark, DuckDB and the table agree to the last digit.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_schema

from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.retyping import COLUMNS, typed_rows
from mew.pipeline.kernel.typed import typed_schema


def typed_frames(frames_df: DataFrame, format_: CatalogFormat) -> DataFrame:
    """One row a valid frame of the format: what is known of the frame, its values in columns, and `notes`."""
    schema = typed_schema(format_)
    return (
        frames_df.where((F.col("format") == format_.fingerprint) & F.col("valid"))
        .select(*COLUMNS)
        .mapInArrow(_typing(format_), from_arrow_schema(schema))
        .select(*schema.names)
    )


def _typing(format_: CatalogFormat) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def typing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from typed_rows(format_, pa.Table.from_batches([batch])).to_batches()

    return typing
