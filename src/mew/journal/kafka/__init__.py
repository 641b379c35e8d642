"""Ships the journal to Kafka: the same blocks, sent by a separate process that only reads what is fsynced.

Does not depend on the gateway, which does not wait for it, or on how blocks are processed after the broker.
"""
