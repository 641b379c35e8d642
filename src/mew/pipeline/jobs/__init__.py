"""The jobs: what is done in which order, from the journal to the lake.

They wire and nothing else: what is made of the records is `control`'s, `silver`'s and `gold`'s affair, files are
`lake`'s, Spark is `session`'s and `spread`'s.
"""
