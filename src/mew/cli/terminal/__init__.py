"""A space in a terminal: what is said and done there, who is there, which streams flow, and a line to take part.

Everything that is shown comes from the SDK; nothing here decides what anybody may do.
"""
