"""What the journal keeps of refused envelopes: who tried what, and not all that was sent.

Pure. Anybody with a token can be refused as often as it likes, so a refusal must not cost the journal much.
"""

from hashlib import sha256
from typing import Final

from mew.protocol import jsontext
from mew.protocol.envelope import Envelope
from mew.protocol.limits import Bucket

HEAD_BYTES: Final = 1024
"""Of a payload's text, which are kept."""
FIELD_BYTES: Final = 1024
"""A header field with more text is left out."""
DETAILED_PER_SECOND: Final = 4
"""Refused envelopes of one sender, whose header and head are kept; of the others only code and size."""
DETAILED_AT_ONCE: Final = 64
_HEADER: Final = frozenset({"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context"})


def shortened(envelope: Envelope) -> bytes:
    """The envelope as its refusal is recorded: its header fields, and of the payload its size, digest and head."""
    kept = {name: text for name, text in envelope.fields.items() if name in _HEADER and len(text) <= FIELD_BYTES}
    payload = envelope.fields.get("payload")
    if payload is not None:
        digest = {
            "bytes": len(payload),
            "sha256": sha256(payload).hexdigest(),
            "head": payload[:HEAD_BYTES].decode("utf-8", "ignore"),
        }
        kept["payload"] = jsontext.encode(digest)
    return jsontext.join(kept)


class RefusalDetails:
    """Which refused envelopes are recorded in detail: those of a sender that is refused now and then.

    It outlives connections, so that a reconnect gives no new burst; a sender is forgotten when it may burst again.
    """

    def __init__(self) -> None:
        """Nobody was refused lately."""
        self._buckets: dict[str, Bucket] = {}

    def admit(self, sender: str, now: int) -> bool:
        """Whether one more of this sender's is recorded in detail."""
        bucket = self._buckets.get(sender)
        if bucket is None:
            bucket = self._buckets[sender] = Bucket(DETAILED_PER_SECOND, DETAILED_AT_ONCE, now)
        return bucket.spend(now)

    def forget(self, now: int) -> None:
        """Forget those who were not refused for a while."""
        for sender, bucket in list(self._buckets.items()):
            bucket.fill(now)
            if bucket.is_full:
                del self._buckets[sender]
