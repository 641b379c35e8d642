"""The processes of a space: what is started for its participants, watched over, written down and ended.

Decides nothing about the protocol. Whoever only wants to know what runs imports `pids` and `births`, which are light.
"""
