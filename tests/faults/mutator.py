"""Invalid messages: valid ones of every kind with random changes. The same seed gives the same messages.

It does not know how the core judges them.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from mew.protocol import KINDS

NAMES: Final = ("ada", "ben", "eve", "fay", "guest")
STREAMS: Final = ("stream-1", "stream-2", "voice", "voice_2", "nowhere", "stream-99999999999999999999")

FORMATS: Final = json.loads("""[
    {"id": "json", "mime_type": "application/json",
     "schema": {"properties": {"x": {"type": "integer", "maximum": 7}}, "$defs": {"y": {"pattern": "^a"}}}},
    {"id": "text", "description": "words"}
]""")
_CAPABILITY: Final = json.loads("""
    {"kind": "mcp/*", "payload": {"method": ["tools/*", "!tools/call"], "params": {"n": 1}}, "to": ["ada", "b*"]}
""")
_REQUEST: Final = json.loads("""
    {"direction": "upload", "encoding": "utf-8", "target": ["ada", "ben"], "scope": ["eve"], "validate": true,
     "desired_id": "voice", "on_owner_disconnect": "keep", "own": {"deep": [1, 2.5, null, "ü"]}}
""") | {"formats": FORMATS}
_STREAM: Final = json.loads("""
    {"stream_id": "stream-1", "stream": {"stream_id": "stream-1", "namespace": "lab/stream-1"}}
""")
_PAYLOADS: Final[dict[str, list[dict[str, Any]]]] = {
    "chat": [{"text": "hello"}],
    "mcp/request": [{"method": "tools/call", "params": {"name": "x", "arguments": {"n": 1}}}],
    "stream/request": [_REQUEST, {}, {"description": "plain"}],
    "stream/announce": [_REQUEST, {"formats": [{"id": "text"}], "desired_id": "voice"}],
    "stream/start": [{**_STREAM, "start_ts": "2026-01-01T00:00:00Z"}, {"stream_id": "stream-2"}],
    "stream/data": [
        {**_STREAM, "sequence": 1, "content": {"x": 3}, "format_id": "json"},
        {"stream_id": "stream-1", "sequence": 5, "content": [None], "format_id": "text"},
    ],
    "stream/close": [{**_STREAM, "reason": "done"}, {}],
    "stream/complete": [_STREAM],
    "stream/error": [{**_STREAM, "code": "broken", "message": "it broke"}],
    "stream/grant-write": [{**_STREAM, "participant_id": "ben", "reason": "please"}],
    "stream/revoke-write": [{**_STREAM, "participant_id": "ben", "reason": "enough"}],
    "stream/transfer-ownership": [{**_STREAM, "new_owner": "ben", "reason": "yours"}],
    "capability/grant": [{"recipient": "ben", "capabilities": [_CAPABILITY, {"kind": "chat"}]}],
    "capability/revoke": [{"recipient": "ben", "capabilities": [_CAPABILITY]}, {"recipient": "ben", "grant_id": "g"}],
    "space/invite": [{"participant_id": "guest", "initial_capabilities": [_CAPABILITY], "reason": "come"}],
    "space/kick": [{"participant_id": "ben", "reason": "out"}],
    "participant/pause": [{"timeout_seconds": 1.5, "reason": "quiet"}],
    "system/join": [{"space": "lab", "token": "token-of-ada@lab", "participantId": "ada"}],
}
_ODD_VALUES: Final = tuple(
    json.loads(text)
    for text in rb"""
        null true false 0 1 -1 7 0.5 1.0 -0.0 1e308 9007199254740991 9007199254740992 9223372036854775808
        18446744073709551616 -9223372036854775809 100000000000000000000
        "" "\u0020" "#" "#stream-1#x" "*" "**" "!" "!*" "a/*" "!a/**" "stream/manage" "\u0000" "null" "../.."
        "\ufeff" "\u202e" "\u00e9" "e\u0301" "\ud835\udd18" "\udbff\udfff" "2026-13-45T99:00:00Z" "2026-01-01T00:00:00Z"
        [] {} [[]] [{}] {"":{}} [null] [1,"a"] {"kind":"*"} [{"kind":"*"}] [{"kind":"stream/write:x"}] ["ada",1]
        {"$ref":"http://example.invalid/x"} {"$ref":"#/$defs/y"} {"pattern":"(a+)+$"} {"$ref":"#"} {"type":"unheard-of"}
        {"stream_id":"stream-2"} {"namespace":"other/stream-1"} {"stream_id":1}
        [{"id":"json","schema":{"const":1000000000000000000000000000000}}]
    """.split()
)
_BREAKING: Final = (10**400, float("nan"), float("inf"), "\ud800", "\udfff\ud800", "x" * 300, "ß" * 70_000)
_RAW: Final = "\ue000raw"
_RAW_TEXTS: Final = (
    *(b"[" * 127 + b"]" * 127, b"[" * 200 + b"]" * 200, b'{"a":' * 150 + b"1" + b"}" * 150),
    *(b"[" * 30_000, b'{"":' * 3_000),
    *(b"9" * 5_000, b"1" * 4_299, b"-" + b"9" * 3_999, b"0." + b"3" * 400, b" [ 1 , 2 ] ", b'"\n"', b""),
    *rb"""
        1e999 1E-999 1.0 -0 01 +1 .5 "\ud83d" "\udc00\ud83d" "\u0000" "\x" 'a' /**/1
        {"a":1,"a":2} {"kind":"chat","kind":"*"} {"stream_id":"stream-1","stream_id":"voice"}
    """.split(),
    *(b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"'),
)
_KEYS: Final = (
    *("kind", "id", "ts", "from", "to", "payload", "context", "correlation_id", "protocol", "", "\0"),
    *("stream", "stream_id", "target", "formats", "schema", "owner", "authorized_writers", "created"),
    *("participant_id", "recipient", "capabilities"),
)
_FRAMES: Final = (
    *(f"#{name}#data".encode() for name in (*STREAMS, "stream-1", "stream-1")),
    *(b"#", b"##", b"#stream-1", b"#\xff\xfe#x", b"#stream-1#" + b"x" * 5_000),
)
Path = tuple[Any, ...]


class Mutator:
    """An endless source of messages."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.valid = list(_envelopes())
        self._paths = [[*_walk(envelope), *_walk({"payload": envelope.get("payload")})] for envelope in self.valid]

    def message(self) -> bytes:
        """The next message."""
        roll = self.chance.random()
        if roll < 0.08:
            return self._damaged(self.chance.choice(_FRAMES)) if roll < 0.05 else self.chance.choice(_FRAMES)
        if roll < 0.10:
            return self._text(self.chance.choice(_ODD_VALUES))
        index = self.chance.randrange(len(self.valid))
        envelope = self.valid[index]
        changes = self.chance.choice((0, 1, 1, 1, 2, 3))
        for path in self.chance.choices(self._paths[index], k=changes):
            envelope = self._changed(envelope, path)
        text = self._text(envelope)
        return self._damaged(text) if self.chance.random() < 0.15 else text

    def _changed(self, value: Any, path: Path) -> Any:
        """A copy with one change at the end of the path, or at its last existing step."""
        if (
            not path
            or not isinstance(value, dict | list)
            or (isinstance(value, list) and path[0] not in range(len(value)))
        ):
            return self._other(value)
        copy = value.copy()
        key = path[0]
        if isinstance(copy, dict) and key not in copy:
            copy[self.chance.choice(_KEYS)] = self._odd()
        elif len(path) > 1:
            copy[key] = self._changed(copy[key], path[1:])
        elif isinstance(copy, list):
            self._change_item(copy, key)
        else:
            self._change_field(copy, key)
        return copy

    def _change_field(self, fields: dict[str, Any], key: str) -> None:
        way = self.chance.randrange(8)
        if way == 0:
            del fields[key]
        elif way == 1:
            fields[self.chance.choice(_KEYS)] = fields.pop(key)
        elif way == 2:
            other = self.chance.choice(list(fields))
            fields[key], fields[other] = fields[other], fields[key]
        elif way == 3:
            fields[self.chance.choice(_KEYS)] = self._odd()
        else:
            fields[key] = self._other(fields[key])

    def _change_item(self, items: list[Any], index: int) -> None:
        way = self.chance.randrange(4)
        if way == 0:
            del items[index]
        elif way == 1:
            items.append(items[index])
        else:
            items[index] = self._other(items[index])

    def _other(self, value: Any) -> Any:
        way = self.chance.randrange(10)
        if way == 0:
            return [value]
        if way == 1:
            return {self.chance.choice(_KEYS): value}
        if way == 2 and isinstance(value, str):
            return value + self.chance.choice(("x", "/", "*", "#", "\x00", " "))
        if way == 3 and isinstance(value, str):
            return f"new-{self.chance.randrange(10**6)}"
        if way < 7 and isinstance(value, str):
            return self.chance.choice((*NAMES, *STREAMS, "*", "stream/manage", "token-of-eve@lab", "default"))
        return self._odd()

    def _odd(self) -> Any:
        roll = self.chance.random()
        if roll < 0.1:
            return f"{_RAW}{self.chance.randrange(len(_RAW_TEXTS))}"
        return self.chance.choice(_BREAKING if roll < 0.13 else _ODD_VALUES)

    def _text(self, value: Any) -> bytes:
        """The value as JSON. Values that JSON cannot express are text; lone surrogates stay escaped."""
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=self.chance.random() < 0.5)
        encoded = text.encode("utf-8", "surrogatepass")
        if _RAW in text or "\\ue000raw" in text:
            for mark in (_RAW.encode(), b"\\ue000raw"):
                while (start := encoded.find(b'"' + mark)) >= 0:
                    end = encoded.index(b'"', start + 1)
                    number = encoded[start + 1 + len(mark) : end]
                    raw = _RAW_TEXTS[int(number)] if number.isdigit() else b"0"
                    encoded = encoded[:start] + raw + encoded[end + 1 :]
        return encoded

    def _damaged(self, text: bytes) -> bytes:
        """The message with bytes cut, flipped, doubled or inserted."""
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            at = self.chance.randrange(len(text) + 1)
            way = self.chance.randrange(6)
            if way == 0:
                text = text[:at]
            elif way == 1 and at < len(text):
                text = text[:at] + bytes([text[at] ^ 1 << self.chance.randrange(8)]) + text[at + 1 :]
            elif way == 2:
                text = text[:at] + b"#" + text[at:]
            elif way == 3:
                text = text[:at] + self.chance.randbytes(self.chance.choice((1, 4))) + text[at:]
            elif way == 4:
                text = text[:at] + text[at + self.chance.choice((1, 2, 10)) :]
            else:
                text = text[:at] + text[max(0, at - 20) : at] + text[at:]
        return text


def _envelopes() -> Iterator[dict[str, Any]]:
    """Some messages of every kind, also of the gateway's own kinds, and some without a kind."""
    for kind in [*sorted(KINDS | {"stream/unknown", "other", "other/kind"}), *_PAYLOADS, *_PAYLOADS]:
        for payload in _PAYLOADS.get(kind, [{"stream_id": "stream-2", "participant": {"id": "ada"}}]):
            yield {"kind": kind, "payload": payload}
            stamped = {"protocol": "mew/v0.4", "id": f"id-{kind}", "ts": "2026-01-01T00:00:00.5Z", "from": "ada"}
            routed = {"to": ["ben"], "correlation_id": ["a", "b"], "context": "lab/stream-1"}
            yield {**stamped, **routed, "kind": kind, "payload": payload}
    yield {"type": "join", "space": "lab", "token": "token-of-ada@lab", "participant_id": "ada"}


def _walk(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*path, key)
        yield from _walk(part, (*path, key))
