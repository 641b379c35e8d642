"""The journal's way to Kafka: the same blocks, sent by a process of their own that only reads what is on the disk.

Knows nothing of the gateway, which does not wait for it, and nothing of what becomes of the blocks behind the broker.
"""
