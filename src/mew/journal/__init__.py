"""The record that survives: every space's one order of everything, as blocks in a log and as Parquet segments.

Knows nothing of sockets; the gateway writes it, whoever is curious reads it.
"""
