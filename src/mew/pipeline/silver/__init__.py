"""Silver: what the records of the journal say, decoded and checked, before anything is added up across units.

Pure Arrow: no Spark, no commits, no sessions.
"""
