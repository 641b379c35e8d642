"""Capabilities: what a participant may send, with a reason for each decision, and what it may pass on to others.

Pure. The gateway, the SDK and the tools use this one matcher (protocol §3).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.errors import InvalidEnvelope
from mew.protocol.patterns import MAX_SCANNED_TEXT, KindPattern, TextTooLong, ValueTest, compile_value, covers_value
from mew.protocol.work import KINDS_PER_UNIT, TRIED_UNITS, UNBOUNDED, Work

MAX_CAPABILITY_DEPTH: Final = 32
"""Most nesting levels of one pattern. This bounds every recursion over patterns."""
MAX_SIZE: Final = 256
"""Most values in one pattern. Covering and matching take as many steps as two sizes multiplied."""
MAX_TEXT: Final = 8 * 2**10
"""Most bytes of one pattern's JSON text."""
_AT_KIND: Final = 0
_AT_RECIPIENT: Final = 1
_AT_PAYLOAD: Final = 2
_KIND_TRIAL: Final = 50
"""Cost of comparing two kind patterns, in scanned characters."""
_SHOWN: Final = 80
"""Most recipients that a reason quotes, and most characters of each."""


class Capability(msgspec.Struct, frozen=True):
    """One pattern `{kind, payload?, to?}`, compiled. `text` is its JSON text."""

    pattern: Mapping[str, Any]
    text: bytes
    size: int
    """Number of values in the pattern, including the pattern itself."""
    kind: KindPattern
    fits_payload: ValueTest | None
    fits_recipient: ValueTest | None

    def miss(
        self, kind: str, payload: Mapping[str, Any], to: tuple[str, ...], work: Work | None = None
    ) -> "Mismatch | None":
        """Return None if the envelope matches, else how far it matched.

        `work` counts the cost and limits it: raises `ScannedTooMuch` above the limit.
        """
        if not self.kind.matches(kind):
            return Mismatch(_AT_KIND, self)
        if self.fits_payload is None and self.fits_recipient is None:
            return None
        work = work or Work()
        work.add(TRIED_UNITS)
        near = _AT_RECIPIENT
        try:
            if self.fits_recipient is not None and not (
                to and all(self.fits_recipient(recipient, work) for recipient in to)
            ):
                return Mismatch(near, self)
            near = _AT_PAYLOAD
            if self.fits_payload is not None and not self.fits_payload(payload, work):
                return Mismatch(near, self)
        except TextTooLong:
            return Mismatch(near, self, too_long=True)
        return None

    @property
    def is_plain(self) -> bool:
        """Whether the pattern restricts only the kind, not the payload or the recipients."""
        return self.fits_payload is None and self.fits_recipient is None

    @property
    def manages_streams(self) -> bool:
        """True for a literal `stream/manage` or `*`: only these may end another participant's stream (protocol §4)."""
        return self.pattern["kind"] in {kinds.STREAM_MANAGE, "*", "**"}

    def covers(self, other: "Capability", work: Work = UNBOUNDED) -> bool:
        """Return whether this capability matches every envelope that `other` matches. In doubt, False (protocol §3).

        `work` counts the cost and limits it. By default there is no limit.
        """
        work.scan(_KIND_TRIAL)
        if self.text == other.text:
            return True
        if not self.kind.covers(other.kind):
            return False
        for name in ("payload", "to"):
            pattern = self.pattern.get(name)
            if pattern is not None and not (pattern == {} or _covers_part(pattern, other.pattern.get(name), work)):
                return False
        return True


def _covers_part(pattern: Any, other: Any, work: Work) -> bool:
    return other is not None and covers_value(pattern, other, work)


class Mismatch(msgspec.Struct, frozen=True):
    """Why a capability does not allow an envelope. A larger `near` means a closer match."""

    near: int
    capability: Capability
    too_long: bool = False
    """Whether a string was too long to be tested."""

    def reason(self, kind: str, to: tuple[str, ...]) -> str:
        """Return the reason as text for people. Long lists of recipients are shortened."""
        pattern = self.capability.pattern
        if self.near == _AT_KIND:
            return f"its kind {pattern['kind']!r} does not match {kind!r}"
        if self.too_long:
            part = "to" if self.near == _AT_RECIPIENT else "payload"
            return f"`{part}` has a string over {MAX_SCANNED_TEXT} characters, too long for a pattern with inner stars"
        if self.near == _AT_RECIPIENT:
            shown = [recipient[:_SHOWN] for recipient in to[:_SHOWN]]
            return f"`to` {shown!r} does not match {pattern['to']!r}"
        return f"`payload` does not match {pattern['payload']!r}"


class Decision(msgspec.Struct, frozen=True):
    """Whether an envelope is allowed, with the capability that allows it, or the nearest miss as the reason."""

    allowed: bool
    reason: str
    capability: Capability | None = None
    source: str | None = None
    """`configured`, `invited`, `default`, `baseline`, or `grant:<id>`."""
    matched: str | None = None
    """JSON text of the capability."""


def read_capability(value: Any, where: str) -> Capability:
    """Compile a capability from JSON. Raises `InvalidEnvelope`, which names the location (`where`) and the error."""
    if not isinstance(value, dict):
        raise InvalidEnvelope(f"`{where}` must be an object")
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InvalidEnvelope(f"`{where}.kind` must be a non-empty string")
    payload, to = value.get("payload"), value.get("to")
    if payload is not None and not isinstance(payload, dict):
        raise InvalidEnvelope(f"`{where}.payload` must be an object")
    if to is not None and not _is_recipients(to):
        raise InvalidEnvelope(f"`{where}.to` must be a string or an array of strings")
    if _depth(value) > MAX_CAPABILITY_DEPTH:
        raise InvalidEnvelope(f"`{where}` is nested deeper than {MAX_CAPABILITY_DEPTH} levels")
    text, size = raw_json.encode_json(value), _size(value)
    if size > MAX_SIZE or len(text) > MAX_TEXT:
        raise InvalidEnvelope(f"`{where}` has over {MAX_SIZE} values or {MAX_TEXT} bytes")
    return Capability(
        pattern=value,
        text=text,
        size=size,
        kind=KindPattern.parse(kind),
        fits_payload=compile_value(payload) if payload else None,
        fits_recipient=compile_value(to) if to is not None else None,
    )


def read_capabilities(values: Any, where: str) -> tuple[Capability, ...]:
    """Compile a list of capabilities from JSON. Raises `InvalidEnvelope`."""
    if not isinstance(values, list):
        raise InvalidEnvelope(f"`{where}` must be an array of capabilities")
    return tuple(read_capability(value, f"{where}[{index}]") for index, value in enumerate(values))


def _is_recipients(to: Any) -> bool:
    return isinstance(to, str) or (isinstance(to, list) and all(isinstance(recipient, str) for recipient in to))


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _size(value: Any) -> int:
    """Count all values, including the outermost one. The nesting depth was checked before."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1


_KNOWN: Final = frozenset(kinds.KINDS)
BASELINE: Final = read_capability({"kind": kinds.MCP_RESPONSE}, "baseline")
"""The capability that every participant has (protocol §2)."""
CHAT_ONLY: Final = (read_capability({"kind": kinds.CHAT}, "default"),)
"""The capabilities of a participant when none are configured."""


class CapabilitySet:
    """The effective capabilities of one participant, in order, each with its source."""

    def __init__(self, sourced: Iterable[tuple[str, Capability]] = ()) -> None:
        """Index the capabilities by exact kind. Patterns of kinds are tried after these."""
        self.sourced = tuple(_with_every_depth(sourced))
        self.text = raw_json.array(capability.text for _, capability in self.sourced)
        self._texts = frozenset(capability.text for _, capability in self.sourced)
        self.managing = tuple(entry for entry in self.sourced if entry[1].manages_streams)
        """Capabilities that allow ending another participant's stream."""
        self.certain: dict[str, Decision] = {}
        """Cache of known kinds that are allowed, whatever the rest of the envelope contains."""
        self._exact: dict[str, list[tuple[Capability, Decision]]] = {}
        self._patterns: list[tuple[Capability, Decision]] = []
        for source, capability in self.sourced:
            text = capability.text.decode()
            allowed = Decision(True, f"allowed by {text}", capability, source, text)
            exact = None if capability.kind.negated else capability.kind.exact
            index = self._patterns if exact is None else self._exact.setdefault(exact, [])
            index.append((capability, allowed))

    def decide(
        self, kind: str, payload: Mapping[str, Any], to: tuple[str, ...] = (), work: Work | None = None
    ) -> Decision:
        """Return the decision of the first capability that matches, else a denial with the nearest miss.

        Raises `ScannedTooMuch` if that takes too long.
        """
        if kind in self.certain:
            return self.certain[kind]
        nearest: Mismatch | None = None
        is_plain = kind in _KNOWN
        work = work or Work()
        exact = self._exact.get(kind, ())
        if self._patterns:
            work.add((len(exact) + len(self._patterns)) // KINDS_PER_UNIT)
        for tried in (exact, self._patterns):
            for capability, allowed in tried:
                miss = capability.miss(kind, payload, to, work)
                is_plain = is_plain and capability.is_plain
                if miss is None:
                    if is_plain:
                        self.certain[kind] = allowed
                    return allowed
                if nearest is None or miss.near > nearest.near:
                    nearest = miss
        if nearest is None:
            return Decision(False, f"no capability is for {kind!r}")
        return Decision(False, f"nearest is {nearest.capability.text.decode()}: {nearest.reason(kind, to)}")

    def covers(self, other: Capability, work: Work = UNBOUNDED) -> bool:
        """Return whether one held capability covers `other`, so that it may be passed on.

        A capability that manages streams is covered only by one that also manages streams.
        """
        if other.text in self._texts:
            return True
        exact = None if other.kind.negated else other.kind.exact
        candidates = self.sourced
        if exact is not None:
            # A capability for exactly one other kind cannot cover this one.
            tried = (*self._exact.get(exact, ()), *self._patterns)
            candidates = tuple(("", capability) for capability, _ in tried)
        return any(
            capability.covers(other, work) and (capability.manages_streams or not other.manages_streams)
            for _, capability in candidates
        )


def _with_every_depth(sourced: Iterable[tuple[str, Capability]]) -> Iterator[tuple[str, Capability]]:
    """Yield each capability once, and `**` next to each `*`: the TypeScript clients' matcher needs it (protocol §3)."""
    listed: set[bytes] = set()
    for source, capability in sourced:
        together = [capability]
        if capability.pattern["kind"] == "*":
            twin = {**capability.pattern, "kind": "**"}  # not measured again: the longest pattern needs a twin too
            together.append(msgspec.structs.replace(capability, pattern=twin, text=raw_json.encode_json(twin)))
        for variant in together:
            if variant.text not in listed:
                listed.add(variant.text)
                yield source, variant
