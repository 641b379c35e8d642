"""The kernel: one pass over the frames of a unit, pure Arrow in, Arrow tables and a small summary out.

No Spark, no writing, no clock: the same unit and the same catalogue give the same rows, wherever and whenever it runs.
"""
