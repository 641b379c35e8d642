"""Gold: tables that add up what the tasks yielded. Each module has one function: DataFrames in, DataFrame out.

Touches no files, no commits and no sessions.
"""
