"""Violations that the control fold finds: the number of each, and a few examples.

Plain values. To judge them, and to compare with what the frames say, is the audit's.
"""

from typing import Any, Final

import msgspec

SAMPLE: Final = 10
"""The number of examples of each."""


class ConsistencyCheck(msgspec.Struct):
    """How many were looked at, how many are wrong, and what is wrong with the first of these."""

    checked: int = 0
    violations: int = 0
    sample: list[dict[str, Any]] = []
    """Each with its `position`, and `what` as text."""

    def violated(self, position: int, what: str, **more: Any) -> None:
        """One more is wrong."""
        self.violations += 1
        if len(self.sample) < SAMPLE:
            self.sample.append({"position": position, **more, "what": what})


class Welcomes(ConsistencyCheck):
    """Welcomes as they were sent, against the state that was folded; the counts of frames in them aside."""

    claims: list[tuple[int, str, int]] = []
    """Position, stream, and how many frames and data that stream had before, as the welcome says."""


class Claimed(msgspec.Struct, frozen=True):
    """What a record says that a reader has lost."""

    position: int
    reader: str
    stream_id: str
    first: int
    last: int
    """Numbers of frames, as the gateway counts them."""
    dropped: int


class Checks(msgspec.Struct):
    """All checks of one batch."""

    positions: ConsistencyCheck = msgspec.field(default_factory=ConsistencyCheck)
    """Each row stands behind the one before; the same position twice is not folded twice."""
    refusals: ConsistencyCheck = msgspec.field(default_factory=ConsistencyCheck)
    """Whatever was refused has a reason."""
    owners: ConsistencyCheck = msgspec.field(default_factory=ConsistencyCheck)
    """After each change a stream has one owner, who may write. A stream of a present owner cannot be taken."""
    welcomes: Welcomes = msgspec.field(default_factory=Welcomes)
    checkpoints: ConsistencyCheck = msgspec.field(default_factory=ConsistencyCheck)
    """A checkpoint says what was folded. Behind a hole it cannot: then rows end and begin with it."""
    folded: ConsistencyCheck = msgspec.field(default_factory=ConsistencyCheck)
    """The fold could make something of a record; where it could not, nothing has changed, or not all that should."""
    losses: list[Claimed] = []
    """The losses of readers, for comparison with the counted frames."""
    unseeded: int = 0
    """Records at the journal's floor, before the first checkpoint: what they did to the space cannot be known."""
