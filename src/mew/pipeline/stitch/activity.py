"""What participants did besides frames, minute by minute, as the fold of the control records counted it.

Plain values that cross processes. Made by `control`, read by the stitch.
"""

import msgspec

from mew.protocol.timestamps import SECOND

MINUTE = 60 * SECOND


class Minute(msgspec.Struct, frozen=True):
    """What one participant did in one minute."""

    participant: str
    start: int
    """Microseconds since 1970, a whole minute."""
    kinds: dict[str, int] = {}
    """Envelopes that were accepted, by kind; without `stream/data`, which counts among the frames."""
    refusals: int = 0
    """Envelopes and frames that were refused."""


class ControlActivity(msgspec.Struct, frozen=True):
    """All minutes of a batch with activity; each participant's minute at most once."""

    minutes: tuple[Minute, ...] = ()
