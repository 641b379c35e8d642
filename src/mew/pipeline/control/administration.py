"""Records of the administration as rows: who connected from where, who was refused, which tokens changed."""

import msgspec

from mew.pipeline.control.rows import Administered
from mew.protocol.records import Record


class _Payload(msgspec.Struct):
    """What such a record says besides who did it."""

    action: str = ""
    participant: str | None = None
    observer: bool | None = None
    peer: str | None = None
    transport: str | None = None
    error: str | None = None
    count: int = 1
    uid: int | None = None
    changes: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(_Payload)


def administered(record: Record) -> Administered:
    """The row of a record; `MsgspecError` where no gateway wrote it."""
    said = _decoder.decode(record.payload)
    return Administered(
        position=record.position,
        time=record.time,
        action=said.action,
        actor=record.participant,
        participant=said.participant,
        observer=said.observer,
        peer=said.peer,
        transport=said.transport,
        error=said.error,
        count=said.count,
        uid=said.uid,
        changes=bytes(said.changes).decode() or None,
    )
