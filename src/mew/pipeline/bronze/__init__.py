"""The journal as it is, for Spark: `spark.read.format("mew")`. Nothing here decodes, checks or adds up."""
