"""A frame that has been read and is handled in a later turn. picows' own is gone by then, with its buffer."""

from picows import WSFrame, WSMsgType


class HeldFrame:
    """What of a frame is needed to handle it, under picows' names."""

    __slots__ = ("_payload", "fin", "msg_type", "rsv1", "rsv2", "rsv3")

    def __init__(self, msg_type: WSMsgType, payload: bytes, *, fin: bool = True, rsv: tuple[bool, ...] = ()) -> None:
        """A message, unless something else is said."""
        self._payload = payload
        self.msg_type = msg_type
        self.fin = fin
        self.rsv1, self.rsv2, self.rsv3 = rsv or (False, False, False)

    @classmethod
    def of(cls, frame: WSFrame) -> "HeldFrame":
        """A copy of a frame."""
        rsv = (bool(frame.rsv1), bool(frame.rsv2), bool(frame.rsv3))
        return cls(frame.msg_type, frame.get_payload_as_bytes(), fin=bool(frame.fin), rsv=rsv)

    def get_payload_as_bytes(self) -> bytes:
        """What it holds."""
        return self._payload

    def get_payload_as_memoryview(self) -> memoryview:
        """The same, not copied."""
        return memoryview(self._payload)
