"""The configuration of a gateway: space.yaml, environment and tokens."""
