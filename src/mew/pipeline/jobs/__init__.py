"""The jobs: what is done in which order, from the journal to the lake.

They wire and nothing else: what is made of the records is `control`'s, `kernel`'s and `stitch`'s affair, files are
`lake`'s, Spark is `session`'s and `spread`'s.
"""
