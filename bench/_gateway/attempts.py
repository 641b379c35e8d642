"""Attempts of one member to delay all others: messages and requests that its valid token allows.

This is a list only. `members` sends them, and measures the effect of each attempt on another member.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

MEGABYTE: Final = 2**20
encode = msgspec.json.encode


class Attempt(msgspec.Struct, frozen=True):
    """An attempt: its name and its WebSocket messages, or one body for `explain`."""

    name: str
    messages: Callable[[], list[bytes]]
    times: int = 1
    """How many times all messages are sent, one after the other."""
    explains: bool = False
    reads: str = ""
    """A path that sixteen connections read over HTTP, instead of messages."""
    granted: Sequence[bytes] = ()
    """Grants to the sender of the attempt, which another member sends before."""


def _one(**envelope: object) -> Callable[[], list[bytes]]:
    return lambda: [encode(envelope)]


def _text(text: bytes, kind: bytes = b"chat") -> Callable[[], list[bytes]]:
    return lambda: [b'{"kind":"%b","payload":{"text":"%b"}}' % (kind, text)]


def _raw(unit: bytes, count: int, kind: bytes = b"note", last: bytes = b"1") -> Callable[[], list[bytes]]:
    """Return a list with one item many times."""
    return lambda: [b'{"kind":"%b","payload":{"a":[%b%b]}}' % (kind, unit * count, last)]


def _members(count: int, form: bytes) -> Callable[[], list[bytes]]:
    return lambda: [form % b",".join(b'"%d":1' % n for n in range(count))]


def _trial(value: bytes) -> Callable[[], list[bytes]]:
    """Values that the granted patterns are matched against."""
    return lambda: [b'{"kind":"trial","payload":{"a":%b}}' % value]


def _announce(*schemas: object, validate: bool = False) -> bytes:
    formats = [{"id": f"f{n}", "schema": schema} for n, schema in enumerate(schemas)]
    return encode({"kind": "stream/announce", "payload": {"formats": formats, "validate": validate}})


def _globs(pattern: Callable[[int], dict[str, object]], count: int = 500) -> list[bytes]:
    """Return grants of about as many patterns as one participant may have, in messages that are small enough."""
    capabilities = [{"kind": "trial", **pattern(n)} for n in range(count)]
    return [
        encode(
            {
                "kind": "capability/grant",
                "payload": {"recipient": "mallory", "capabilities": capabilities[at : at + 100]},
            }
        )
        for at in range(0, count, 100)
    ]


def _doubling(levels: int) -> object:
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, f"d{levels}": {}}}


def _branching(count: int, properties: int) -> object:
    defined = {
        f"d{n}": {"properties": {f"p{k}": {"$ref": f"#/$defs/d{(n * 7 + k + 1) % count}"} for k in range(properties)}}
        for n in range(count)
    }
    return {"$ref": "#/$defs/d0", "$defs": defined}


def _validated(name: str, schema: object, content: bytes) -> Callable[[], list[bytes]]:
    """Return messages that open a validated stream with this name and format, and write one value."""

    def messages() -> list[bytes]:
        payload = {"formats": [{"id": "f", "schema": schema}], "validate": True, "desired_id": name}
        data = b'{"kind":"stream/data","payload":{"stream_id":"%b","sequence":1,"content":%b}}' % (
            name.encode(),
            content,
        )
        return [
            encode({"kind": "stream/announce", "payload": payload}),
            encode({"kind": "stream/start", "payload": {"stream_id": name}}),
            data,
        ]

    return messages


def _arrays(number: bytes, count: int) -> bytes:
    """Return different arrays of 15 numbers, as many as are compared with each other."""
    array = b"[" + b",".join(number % residue for residue in range(15)) + b"]"
    return b"[" + b",".join([array] * count) + b"]"


def _proposal(element: str, count: int) -> Callable[[], list[bytes]]:
    arguments = ",".join([element] * count).encode()
    return lambda: [b'{"kind":"mcp/proposal","payload":{"method":"m","params":[%b]}}' % arguments]


def _proposals(count: int) -> list[bytes]:
    payload = {"method": "m", "params": "x" * 60_000}
    return [encode({"kind": "mcp/proposal", "id": f"p{n}", "payload": payload}) for n in range(count)]


def _pauses() -> list[bytes]:
    lists = [[f"p{n * 6_000 + place}" for place in range(6_000)] for n in range(100)]
    return [encode({"kind": "participant/pause", "to": to, "payload": {"timeout_seconds": 9}}) for to in lists]


def _invitations(count: int, capabilities: list[dict[str, object]]) -> list[bytes]:
    return [
        encode({"kind": "space/invite", "payload": {"participant_id": f"i{n}", "initial_capabilities": capabilities}})
        for n in range(count)
    ]


def _kicks(count: int) -> list[bytes]:
    return [encode({"kind": "space/kick", "payload": {"participant_id": f"i{n}"}}) for n in range(count)]


def _long(count: int) -> list[dict[str, object]]:
    return [{"kind": "x" * 8_000 + str(n)} for n in range(count)]


def _kinds(count: int) -> list[dict[str, object]]:
    return [{"kind": f"trial{n}"} for n in range(count)]


def _grants(capabilities: list[dict[str, object]], recipient: str = "bob") -> list[bytes]:
    return [encode({"kind": "capability/grant", "payload": {"recipient": recipient, "capabilities": capabilities}})]


def _held(capabilities: list[dict[str, object]]) -> list[bytes]:
    """Return the grants for the sender of the attempt, in messages that are small enough."""
    return [grant for at in range(0, len(capabilities), 7) for grant in _grants(capabilities[at : at + 7], "mallory")]


_REVOKE: Final = {"kind": "capability/revoke", "payload": {"recipient": "bob", "capabilities": [{"kind": "trial"}]}}
_A: Final = b"a" * (15 * MEGABYTE)
ATTEMPTS: Final = (
    Attempt("a chat of 15 MiB", _text(_A)),
    Attempt("four chats of 15 MiB", _text(_A), times=4),
    Attempt("a chat of 15 MiB of brackets", _text(b"[{:," * (15 * MEGABYTE // 4))),
    Attempt("a chat of 15 MiB of escapes", _text(b"[" * MEGABYTE + b"\\\\" * (7 * MEGABYTE))),
    Attempt("a chat of 15 MiB with 3,999,000 escapes", _text(b"[" * (7 * MEGABYTE) + b"\\n" * 3_999_000)),
    Attempt("5 million empty arrays", _raw(b"[],", 5 * MEGABYTE)),
    Attempt("5 million empty arrays as a heartbeat", _raw(b"[],", 5 * MEGABYTE, b"system/heartbeat")),
    Attempt("199,000 empty arrays", _raw(b"[],", 199_000)),
    Attempt("99,000 objects of one member", _raw(b'{"a":1},', 99_000)),
    Attempt("5 million empty strings", _raw(b'"",', 5 * MEGABYTE)),
    Attempt("490,000 empty strings", _raw(b'"",', 490_000)),
    Attempt("7 million numbers", _raw(b"1,", 7 * MEGABYTE)),
    Attempt("990,000 fractions", _raw(b"0.1234567890123,", 990_000)),
    Attempt("140,000 middles of two doubles", _raw(b"9007199254740993.0,", 140_000)),
    Attempt("400,000 numbers like 9e303", _raw(b"9e303,", 400_000)),
    Attempt("200,000 numbers like 9e303 as a heartbeat", _raw(b"9e303,", 200_000, b"system/heartbeat")),
    Attempt("900,000 numbers like 1e23", _raw(b"1e23,", 900_000)),
    Attempt("50,000 fractions of 320 digits", _raw(b"0." + b"0" * 320 + b"1,", 50_000)),
    Attempt("1,800 numbers like 9e303", _raw(b"9e303,", 1_800), times=20),
    Attempt("3,900 numbers of 3,999 digits", _raw(b"9" * 3999 + b",", 3_900)),
    Attempt("61,000 numbers of 255 digits", _raw(b"9" * 255 + b",", 61_000)),
    Attempt("32,000 numbers of 255 digits", _raw(b"9" * 255 + b",", 32_000)),
    Attempt("390,000 numbers of 20 digits", _raw(b"9" * 20 + b",", 390_000)),
    Attempt("a chat of 15 MiB of escaped quotation marks", _text(b'\\"' * (7 * MEGABYTE))),
    Attempt("3,900,000 escapes beside 6,000 strings", _raw(b'"",', 6_000, last=b'"%b"' % (b"\\n" * 3_900_000))),
    Attempt("1.2 million members", _members(1_200_000, b'{"kind":"note","payload":{%b}}')),
    Attempt("199,000 members", _members(199_000, b'{"kind":"note","payload":{%b}}')),
    Attempt("199,000 fields", _members(199_000, b'{"kind":"note",%b}')),
    Attempt(
        "nested 100,000 levels", lambda: [b'{"kind":"note","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"]
    ),
    Attempt("a heartbeat of 15 MiB", _text(_A, b"system/heartbeat")),
    Attempt("a grant of 15 MiB", _text(_A, b"capability/grant")),
    Attempt("a kick of 15 MiB", _text(_A, b"space/kick")),
    Attempt("a join of 15 MiB on a joined socket", _text(_A, b"system/join")),
    Attempt("1,000 joins on a joined socket", _one(kind="system/join"), times=1_000),
    Attempt("4,000 chats", _one(kind="chat", payload={"text": "x"}), times=4_000),
    Attempt("4,000 messages that nothing allows", _one(kind="forbidden", payload={"a": "x"}), times=4_000),
    Attempt("to 490,000 recipients", _one(kind="note", to=["x"] * 490_000, payload={})),
    Attempt("to 10,000 recipients", _one(kind="note", to=["x"] * 10_000, payload={}), times=50),
    Attempt("a request that answers 490,000", _one(kind="mcp/request", correlation_id=["x"] * 490_000)),
    Attempt("a proposal of 190,000 lists", _proposal("[]", 190_000)),
    Attempt("proposals of 49,000 values", _proposal("1", 49_000), times=10),
    Attempt("proposals of 60 kB", lambda: _proposals(200)),
    Attempt("100 pauses of 6,000", _pauses),
    Attempt("200 invitations of 56 kB", lambda: _invitations(200, _long(7))),
    Attempt("2,000 invitations", lambda: _invitations(2_000, [{"kind": "chat"}])),
    Attempt("1,000 kicks of those invited", lambda: _kicks(1_000)),
    Attempt(
        "1,000 kicks of an absentee",
        _one(kind="space/kick", payload={"participant_id": "nobody"}),
        times=1_000,
    ),
    Attempt("300 streams", _one(kind="stream/request", payload={"description": "x"}), times=300),
    Attempt("10 streams of 250 kB", _one(kind="stream/request", payload={"description": "x" * 250_000}), times=10),
    Attempt(
        "joins where streams have 1 MiB",
        lambda: (
            [encode({"kind": "stream/request", "payload": {"description": "x" * 250_000}})] * 4
            + [encode({"kind": "system/join"})] * 500
        ),
    ),
    Attempt("300 grants of 56 kB", lambda: _grants(_long(7)), times=300),
    Attempt(
        "grants of 1,000 kinds by a holder of as many", lambda: _grants(_kinds(1_000)), granted=_held(_kinds(1_000))
    ),
    Attempt(
        "grants of long globs by a holder of many",
        lambda: _grants([{"kind": "trial", "payload": {"a": "*a" * 3_900 + f"c{n}"}} for n in range(7)]),
        times=20,
        granted=_held([{"kind": "trial", "payload": {"a": "*a" * 3_900 + f"b{n}"}} for n in range(14)]),
    ),
    Attempt(
        "a grant and a revocation, 500 times",
        lambda: [*_grants([{"kind": "trial"}]), encode(_REVOKE)],
        times=500,
        granted=_held([{"kind": "capability/revoke"}, {"kind": "trial"}]),
    ),
    Attempt(
        "500 globs against a string of 15 MiB",
        _trial(b'"%b"' % _A),
        granted=_globs(lambda n: {"payload": {"a": f"*x{n}*y*"}}),
    ),
    Attempt(
        "500 globs against a string of 64 KiB",
        _trial(b'"%b"' % (b"x" * 65_536)),
        granted=_globs(lambda n: {"payload": {"a": f"*x{n}*y*"}}),
    ),
    Attempt(
        "400 globs of 80 characters against a string they are slow on",
        _trial(b'"%b"' % (b"a" * 29_000)),
        times=20,
        granted=_globs(lambda n: {"payload": {"a": "*" + "a" * 40 + "b" + "a" * 39 + f"*{n}"}}, 400),
    ),
    Attempt(
        "290 pairs of globs against 1,024 strings",
        _trial(encode(["z"] * 1_024)),
        times=20,
        granted=_globs(lambda n: {"payload": {"a": [f"*x{n}*", f"*y{n}*"]}}, 290),
    ),
    Attempt(
        "500 globs against 190,000 empty arrays",
        _trial(b"[" + b"[]," * 190_000 + b"[]]"),
        granted=_globs(lambda n: {"payload": {"a": f"*x{n}*"}}),
    ),
    Attempt(
        "400 pairs of globs against 10,000 recipients",
        lambda: [encode({"kind": "trial", "to": ["m"] * 10_000, "payload": {}})],
        times=20,
        granted=_globs(lambda n: {"to": [f"m*{n}*x", "m*"] if n % 2 else f"*{n}*"}, 400),
    ),
    Attempt("a pattern of 20 letters of any script", lambda: [_announce({"pattern": r"\p{L}{20}"})], times=50),
    Attempt("a pattern of 1,000 white spaces", lambda: [_announce({"pattern": r"\s" * 1_000})], times=50),
    Attempt(
        "a pattern of any letter in any case", lambda: [_announce({"pattern": r"(?i)" + r"\p{Any}" * 100})], times=50
    ),
    Attempt(
        "32 patterns that are dear to compile",
        lambda: [_announce({"allOf": [{"pattern": r"\s" * 40 + str(n)} for n in range(12)]})],
        times=50,
    ),
    Attempt("definitions that double 30 times", lambda: [_announce(_doubling(30))], times=50),
    Attempt("12 schemas that are long to measure", lambda: [_announce(*[_branching(40, 8)] * 12)], times=50),
    Attempt(
        "a pattern that is slow on 1 MiB",
        _validated("v0", {"pattern": "a[abc]{300}d|b[abc]{300}e"}, b'"%b"' % (b"abcab" * 200_000)),
    ),
    Attempt(
        "a pattern that is slow on 16 KiB",
        _validated("v1", {"pattern": "a[abc]{300}d|b[abc]{300}e"}, b'"%b"' % (b"abcab" * 3_200)),
    ),
    Attempt(
        "an enumeration of 5,000 against 190,000 numbers",
        _validated("v2", {"items": {"enum": [f"a{n}" for n in range(5_000)]}}, b"[" + b"1," * 190_000 + b"1]"),
    ),
    Attempt(
        "2,000 dependent names against 190,000 objects",
        _validated(
            "v9",
            {"items": {"dependentRequired": {f"p{n}": ["a"] for n in range(2_000)}}},
            b"[" + b"{}," * 190_000 + b"{}]",
        ),
    ),
    Attempt(
        "400 kB of numbers against a multiple of 1e-300",
        _validated("v5", {"items": {"multipleOf": 1e-300}}, b"[" + b"1," * 200_000 + b"1]"),
    ),
    Attempt(
        "16 kB of numbers against a multiple of 1e-300",
        _validated("v6", {"items": {"multipleOf": 1e-300}}, b"[" + b"1," * 8_000 + b"1]"),
        times=5,
    ),
    Attempt(
        "1.4 MB of numbers like 1e-300 against an integer",
        _validated("v7", {"items": {"enum": [5, 6]}}, b"[" + b"1e-300," * 200_000 + b"1]"),
    ),
    Attempt(
        "36 kB of fractions that must differ",
        _validated("v10", {"items": {"uniqueItems": True}}, _arrays(b"%d.5", 500)),
        times=5,
    ),
    Attempt(
        "600 kB of fractions that must differ",
        _validated("v11", {"items": {"uniqueItems": True}}, _arrays(b"%d.5", 9_000)),
    ),
    Attempt(
        "13 kB of numbers like 1e-320 that must differ",
        _validated("v12", {"items": {"uniqueItems": True}}, _arrays(b"1%de-320", 100)),
    ),
    Attempt("data of 15 MiB that is checked", _validated("v4", {"type": "string"}, b'"%b"' % _A)),
    Attempt("explain: 15 MiB of empty arrays", _raw(b"[],", 5 * MEGABYTE), explains=True),
    Attempt("explain: a chat of 255 KiB", _text(b"a" * (255 * 1_024)), explains=True, times=200),
    Attempt("explain: 43,000 numbers like 9e303", _raw(b"9e303,", 43_000), times=20, explains=True),
    Attempt("explain: a slow pattern", lambda: [_announce({"pattern": r"\p{L}{20}"})], explains=True, times=200),
    Attempt(
        "explain: 500 globs, 10,000 recipients",
        lambda: [encode({"kind": "trial", "to": ["m"] * 10_000})],
        times=20,
        explains=True,
        granted=_globs(lambda n: {"to": [f"m*{n}*x"]}, 500),
    ),
    Attempt("the journal, page by page", list, times=100, reads="/spaces/trial/journal?limit=10000"),
    Attempt("the participants", list, times=2_000, reads="/participants"),
    Attempt(
        "everything that may be sent, with 250 patterns on 250 streams",
        list,
        times=200,
        reads="/participants/mallory/explain",
        granted=[
            *[encode({"kind": "stream/request", "payload": {}})] * 250,
            *_globs(lambda n: {"kind": "stream/manage", "payload": {"stream_id": f"zz{n}"}}, 250),
        ],
    ),
    Attempt("everything that may be sent", list, times=1_000, reads="/participants/mallory/explain"),
    Attempt("the mailbox", list, times=1_000, reads="/participants/mallory/messages"),
)
