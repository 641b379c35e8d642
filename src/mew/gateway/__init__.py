"""The gateway: spaces over WebSocket and HTTP on one port.

Transports turn bytes into commands, the hub carries out effects. The core makes all decisions.
"""
