"""The gateway: spaces over WebSocket and HTTP on one port.

Doors turn bytes into commands, the hub carries out effects. Nothing here decides what the protocol says.
"""
