"""The journal of a space: one total order of records, in a write-ahead log and in Parquet segments."""
