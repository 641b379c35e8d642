"""Landing: blocks that came through Kafka become segments in the lake's own journal; from there it is the local path.

Must not look into records: the journal defines the content of a block, and the other jobs process it.
"""
