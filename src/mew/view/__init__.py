"""What an observer of a space knows: a value, and the fold of envelopes that keeps it current.

Pure. The SDK, the inspector and the tests share it. It believes the gateway, and nobody who speaks in its name.
"""

from mew.view.fold import apply, apply_frame, welcomed
from mew.view.space import ParticipantView, ProposalView, SpaceView, StreamView

__all__ = ["ParticipantView", "ProposalView", "SpaceView", "StreamView", "apply", "apply_frame", "welcomed"]
