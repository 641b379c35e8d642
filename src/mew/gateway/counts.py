"""What a space has seen since its start: plain numbers, added to where things happen.

Counts only; what they are called outside is the business of `metrics`.
"""

import msgspec


class Counts(msgspec.Struct):
    """What has happened since the start."""

    envelopes: int = 0
    frames: int = 0
    deliveries: int = 0
    """Messages handed to readers: what waits for a slow one counts when it is sent."""
    delivered_bytes: int = 0
    dropped_frames: int = 0
    refusals: dict[str, int] = {}
    closed_proposals: dict[str, int] = {}
    """By outcome."""
