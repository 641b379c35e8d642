"""Landing: blocks that came through Kafka become segments in the lake's own journal; from there it is the local path.

Must not look into records: what a block holds is the journal's affair, and what becomes of it that of the other jobs.
"""
