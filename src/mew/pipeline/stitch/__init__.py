"""The stitch: the summaries of units, in order, become windows, gaps and totals as if there had been no units.

Pure and small: no rows of the journal pass through here, and no Spark.
"""
