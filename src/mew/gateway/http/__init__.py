"""The HTTP API of a gateway."""
