"""What the control fold remembers between two batches, as canonical JSON.

Pure. Bounded by what is going on: the core's snapshot of the space, the rows that are not final, the conversations that
can still continue. Frames do not pass through the control fold, so the frame counts and sequences of the snapshot are
those of the last checkpoint: unknown here.
"""

from typing import Final

import msgspec

from mew.errors import MewError
from mew.pipeline.control.rows import ApprovalRow, ConversationRow, Holding, PresenceRow, StreamRow, Writing
from mew.protocol.state import FOLD_VERSION, SnapshotVersionError, SpaceState, restore, snapshot

CONTROL_VERSION: Final = 5
"""Raised whenever the same records give other rows, or this state another shape; the core's fold has its own."""


class FoldStateVersionError(MewError):
    """A state that cannot be gone on from."""


class PendingWriterChange(msgspec.Struct, frozen=True):
    """The last envelope that asked for a change of a stream's writers: what follows names it."""

    envelope_id: str
    participant: str


class FoldState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of it, after the record at `position`."""

    fold_version: int = 0
    control_version: int = 0
    space: str
    position: int = -1
    state: msgspec.Raw
    """The core's snapshot."""
    stays: list[PresenceRow] = []
    lives: list[StreamRow] = []
    writings: list[Writing] = []
    holdings: list[Holding] = []
    talks: list[ConversationRow] = []
    approvals: list[ApprovalRow] = []
    asked: PendingWriterChange | None = None
    validates: bool = False
    """Whether data is checked where its stream does not say."""


_decoder = msgspec.json.Decoder(FoldState)
_encoder = msgspec.json.Encoder(order="sorted")


def load(space: str, text: bytes | None) -> tuple[FoldState, SpaceState]:
    """What was saved, or the beginning of everything; `SnapshotVersionError` for another version of the fold."""
    if text is None:
        return FoldState(space=space, state=msgspec.Raw(b"{}")), SpaceState(space_id=space)
    try:
        memory = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise FoldStateVersionError(f"the state of {space!r} cannot be read: {problem}") from None
    if memory.space != space:
        raise FoldStateVersionError(f"this is the state of {memory.space!r}, not of {space!r}")
    for what, saved, running in (
        ("fold", memory.fold_version, FOLD_VERSION),
        ("control fold", memory.control_version, CONTROL_VERSION),
    ):
        if saved != running:
            raise SnapshotVersionError(f"a state of {what} version {saved}; this program has version {running}")
    return memory, restore(bytes(memory.state))


def save(memory: FoldState, state: SpaceState) -> bytes:
    """Canonical: equal memories of equal states are equal bytes."""
    kept = msgspec.structs.replace(
        memory, fold_version=FOLD_VERSION, control_version=CONTROL_VERSION, state=msgspec.Raw(snapshot(state))
    )
    return _encoder.encode(kept)


def save_moment(space: str, position: int, state: SpaceState) -> bytes:
    """The same for the space alone: enough for `moment.state_at`, but not to continue the tables."""
    return save(FoldState(space=space, position=position, state=msgspec.Raw(b"")), state)
