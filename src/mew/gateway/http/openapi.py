"""The OpenAPI document of the HTTP API: `GET /openapi.json`.

It only describes the API. Codes and statuses come from `mew.protocol.errors`. A test sends everything described here,
and every example, to a gateway.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from mew import __version__
from mew.gateway.http.journal import EVENT_STREAM, JOURNAL_PATH, MOST_LIMIT, POSITION_DIGITS, USUAL_LIMIT
from mew.gateway.http.openapi_examples import ACTIONS, EVENT, EXAMPLE_MESSAGES, EXAMPLE_PAGE, EXPLAINED, Example
from mew.protocol import ERROR_CODES, PROTOCOL, ProtocolError
from mew.protocol.envelope import ID_LENGTH
from mew.protocol.kinds import PROTOCOLS

PROPOSAL: Final = "/spaces/{id}/proposals/{position}"
_JSON: Final = "application/json"
WHATEVER: Final = (400, 403, 431, 500)
"""Errors any request may get: malformed, page or host not allowed, headers too large, internal error."""
AUTHENTICATED: Final = (401, 404, 429)
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_OBJECT: Final = {"type": "object"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NAMES: Final = {
    400: "The request cannot be read, or what it asks for is wrong in itself.",
    401: "No token.",
    403: "The token is not known or not the participant's; no capability; or `Origin` or `Host` is not allowed here.",
    404: "No such space, stream or participant.",
    409: "Not in this state.",
    413: "The message is too large.",
    429: "Too much, or too often.",
    431: "The head of the request is too large.",
    500: "A fault of the gateway's own.",
    503: "Nothing is recorded now, so nothing is done: the gateway starts, stops, or has no journal.",
}
_OWN_CODES: Final = {431: {"invalid_request"}}
"""Statuses that come from HTTP, not from the protocol."""


def codes_by_status() -> dict[int, list[str]]:
    """Return every status that a refusal can have, with its error codes."""
    codes_of_status: dict[int, set[str]] = {status: set(codes) for status, codes in _OWN_CODES.items()}
    for refusal in _refusals(ProtocolError):
        codes_of_status.setdefault(refusal.status, set()).add(refusal.code)
    return {status: sorted(codes) for status, codes in sorted(codes_of_status.items())}


def _refusals(kind: type[ProtocolError]) -> Iterable[type[ProtocolError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _refusals(subclass)


@cache
def document() -> dict[str, Any]:
    """Return the complete document. It is the same for every gateway of this version."""
    about = "Spaces that people, agents and tools share. Everything here has its rule in the protocol's reference."
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MEW gateway",
            "version": __version__,
            "summary": f"{PROTOCOL} over HTTP",
            "description": about,
        },
        "paths": {
            "/health": {"get": _operation("health", "Whether the process answers.", {200: _ref("Health")})},
            "/ready": {"get": _ready()},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _operation("openapi", "This document.", {200: _OBJECT})},
            "/participants": {"get": _participants()},
            "/participants/{participant}/messages": {
                "parameters": [_PARTICIPANT, _SPACE],
                "post": _post(),
                "get": _poll(),
            },
            "/participants/{participant}/explain": {
                "parameters": [_PARTICIPANT, _SPACE],
                "post": _explain(),
                "get": _actions(),
            },
            JOURNAL_PATH: {"parameters": [_SPACE_ID], "get": _journal()},
            PROPOSAL: {"parameters": [_SPACE_ID, _POSITION], "get": _proposal()},
        },
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "A token of the space."}},
            "schemas": _schemas(),
            "responses": {f"Refusal{status}": _refusal(status, codes) for status, codes in codes_by_status().items()},
        },
    }


# Operations


def _operation(name: str, summary: str, answers: dict[int, Any], refusals: Iterable[int] = (), **more: Any) -> Any:
    responses: dict[str, Any] = {
        str(status): {"description": "As asked." if status == 200 else _NAMES[status], "content": _content(schema)}
        for status, schema in answers.items()
    }
    for status in sorted({*WHATEVER, *refusals} - answers.keys()):
        responses[str(status)] = {"$ref": f"#/components/responses/Refusal{status}"}
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def _ready() -> Any:
    summary = "Whether the gateway takes work."
    return _operation("ready", summary, {200: _ref("Ready"), 503: _ref("NotReady")})


def _metrics() -> Any:
    operation = _operation("metrics", "Figures for Prometheus.", {200: _TEXT})
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return operation


def _participants() -> Any:
    summary = "Who is present in a space; for any token of it, an observer's too."
    answers = {200: _ref("Participants")}
    return _operation("participants", summary, answers, AUTHENTICATED, security=_BEARER, parameters=[_SPACE])


def _post() -> Any:
    refusals = (*AUTHENTICATED, 409, 413, 503)
    summary = "Send one envelope, by the same rules as over WebSocket."
    operation = _operation("post", summary, {200: _ref("Accepted")}, refusals, security=_BEARER)
    return _with_examples(operation, EXAMPLE_MESSAGES)


def _poll() -> Any:
    summary = "What the participant has received from a number on."
    since = {"name": "since", "in": "query", "schema": {**_COUNT, "maximum": 10**18 - 1, "default": 0}}
    refusals = (*AUTHENTICATED, 503)
    return _operation("poll", summary, {200: _ref("Polled")}, refusals, security=_BEARER, parameters=[since])


def _explain() -> Any:
    summary = "What a post of this envelope would come to now, and why; nothing is sent. For any token of the space."
    answers = {200: _ref("Explanation")}
    operation = _operation("explain", summary, answers, (*AUTHENTICATED, 413), security=_BEARER)
    return _with_examples(operation, EXPLAINED)


def _actions() -> Any:
    summary = "Everything that the participant may send now, and by what. For any token of the space."
    operation = _operation("actions", summary, {200: _ref("Actions")}, AUTHENTICATED, security=_BEARER)
    operation["responses"]["200"]["content"][_JSON]["examples"] = {"actions": {"value": ACTIONS}}
    return operation


def _proposal() -> Any:
    summary = "An open proposal with its payload. For any token of the space."
    refusals = (*AUTHENTICATED, 409)
    return _operation("proposal", summary, {200: _ref("Proposal")}, refusals, security=_BEARER)


def _journal() -> Any:
    summary = "The record of a space from a position on; for any token of it. What is not for its holder is withheld."
    most = 10**POSITION_DIGITS - 1
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "default": USUAL_LIMIT}
    parameters = [
        {"name": "from", "in": "query", "schema": {**_COUNT, "maximum": most, "default": 0}},
        {"name": "limit", "in": "query", "schema": limit},
        {
            "name": "control",
            "in": "query",
            "description": "1: without frames and stream data.",
            "schema": {"type": "integer", "enum": [0, 1], "default": 0},
        },
        {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "In the live form: continue after this position.",
            "schema": {**_COUNT, "maximum": most},
        },
    ]
    answers = {200: _ref("JournalPage")}
    operation = _operation("journal", summary, answers, AUTHENTICATED, security=_BEARER, parameters=parameters)
    content = operation["responses"]["200"]["content"]
    content[_JSON]["examples"] = {"page": {"value": EXAMPLE_PAGE}}
    content[EVENT_STREAM] = {"schema": _TEXT, "examples": {"event": {"value": EVENT}}}
    return operation


def _with_examples(operation: dict[str, Any], examples: tuple[Example, ...]) -> Any:
    """Add each example under the same name to the request and to its response."""
    requests = {example.name: {"summary": example.summary, "value": example.request} for example in examples}
    body = {"required": True, "content": {_JSON: {"schema": _ref("Envelope"), "examples": requests}}}
    responses = dict(operation["responses"])
    for status in sorted({example.status for example in examples}):
        answers = {example.name: {"value": example.answer} for example in examples if example.status == status}
        schema = operation["responses"][str(status)].get("content", _content(_ref("ProtocolError")))[_JSON]["schema"]
        described = {"description": "As asked." if status == 200 else _NAMES[status]}
        responses[str(status)] = {**described, "content": {_JSON: {"schema": schema, "examples": answers}}}
    return {**operation, "requestBody": body, "responses": responses}


_BEARER: Final = [{"bearer": list[str]()}]
_PARTICIPANT: Final = {
    "name": "participant",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}$"},
    "example": "alice",
}
_SPACE: Final = {
    "name": "space",
    "in": "query",
    "description": "Which space; none, or `default`, is the first.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$"},
}
_POSITION: Final = {
    "name": "position",
    "in": "path",
    "required": True,
    "description": "Of the proposal's record, as `proposal.position` gives it.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "example": 118,
}
_SPACE_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "Which space; `default` is the first.",
    "schema": _SPACE["schema"],
    "example": "demo",
}


# Schemas


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: Any) -> dict[str, Any]:
    return {_JSON: {"schema": schema}}


def _refusal(status: int, codes: list[str]) -> dict[str, Any]:
    schema = {"allOf": [_ref("ProtocolError"), {"properties": {"error": {"enum": codes}}}]}
    return {"description": _NAMES[status], "content": _content(schema)}


def _record(properties: dict[str, Any], optional: Iterable[str] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "properties": properties, "required": required}


def _schemas() -> dict[str, Any]:
    parts = "Besides these, what the code's row in the protocol's reference names."
    code = {"type": "string", "enum": sorted(ERROR_CODES)}
    return {
        "ProtocolError": {**_record({"error": code, "message": _TEXT}), "description": parts},
        "Envelope": _envelope(),
        "Accepted": _accepted(),
        "Polled": _record({"messages": {"type": "array", "items": _OBJECT}, "next": _COUNT, "dropped": _COUNT}),
        "Explanation": _explanation(),
        "Actions": _allowed(),
        "Participants": _record(
            {
                "space": _TEXT,
                "you": _record({"id": _TEXT, "observer": {"type": "boolean"}}),
                "participants": {"type": "array", "items": _ref("Participant")},
            }
        ),
        "Participant": _record({"id": _TEXT, "capabilities": {"type": "array", "items": _ref("Capability")}}),
        "Capability": _record(
            {"kind": _TEXT, "payload": {"type": ["object", "null"]}, "to": {"type": ["string", "array", "null"]}},
            optional=("payload", "to"),
        ),
        "Health": _health(),
        "Proposal": _proposal_content(),
        "JournalPage": _journal_page(),
        "JournalRecord": _journal_record(),
        "Ready": _record({"status": {"const": "ready"}, "checks": _CHECKS}),
        "NotReady": _record(
            {"status": {"enum": ["starting", "stopping", "not_ready"]}, "checks": _CHECKS}, optional=("checks",)
        ),
    }


_CHECKS: Final = {"type": "object", "additionalProperties": _TEXT, "description": "`ok`, or what is wrong."}
_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_MAYBE_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}


def _health() -> dict[str, Any]:
    return _record(
        {
            "status": {"enum": ["ok", "degraded"]},
            "version": _TEXT,
            "spaces": _COUNT,
            "clients": _COUNT,
            "uptime": {"type": "number", "minimum": 0},
            "features": _TEXTS,
            "journal": _CHECKS,
        }
    )


def _proposal_content() -> dict[str, Any]:
    time = {"type": "string", "format": "date-time"}
    texts = dict.fromkeys(("id", "from", "method", "digest"), _TEXT)
    counts = dict.fromkeys(("position", "bytes"), _COUNT)
    return _record({**texts, **counts, "to": _TEXTS, "votes": _TEXTS, "expires_at": time, "payload": _OBJECT})


def _journal_page() -> dict[str, Any]:
    records = {"type": "array", "items": _ref("JournalRecord")}
    return _record({"space": _TEXT, "first": _MAYBE_COUNT, "last": _MAYBE_COUNT, "records": records, "next": _COUNT})


def _journal_record() -> dict[str, Any]:
    optional: dict[str, Any] = {
        "payload": {"type": ["object", "null"]},
        "payload_base64": _TEXT,
        "withheld": {"const": True},
    }
    numbers = dict.fromkeys(("frame_number", "sequence", "size"), _MAYBE_COUNT)
    texts = ("participant", "kind", "envelope_id", "stream_id", "reason", "capability")
    time = {"type": "string", "format": "date-time"}
    columns = {"position": _COUNT, "time": time, "event": _TEXT, **dict.fromkeys(texts, _MAYBE_TEXT), **numbers}
    return _record({**columns, **optional}, optional)


def _envelope() -> dict[str, Any]:
    name = {"type": "string", "minLength": 1, "maxLength": ID_LENGTH}
    return _record(
        {
            "kind": name,
            "protocol": {"enum": sorted(PROTOCOLS)},
            "id": name,
            "ts": {"type": "string", "format": "date-time"},
            "from": _TEXT,
            "to": _TEXTS,
            "correlation_id": {"oneOf": [_TEXTS, _TEXT]},
            "context": {},
            "proposal": {"type": ["object", "null"]},
            "payload": _OBJECT,
        },
        optional=("protocol", "id", "ts", "from", "to", "correlation_id", "context", "proposal", "payload"),
    )


def _accepted() -> dict[str, Any]:
    statuses = ["accepted", "stream_opened", "stream_ready", "granted", "revoked", "transferred", "created"]
    properties = {"id": _TEXT, "status": {"enum": statuses}, "timestamp": {"type": "string", "format": "date-time"}}
    stream = dict.fromkeys(("stream_id", "namespace", "previous_owner", "new_owner"), _TEXT)
    invitation = dict.fromkeys(("participant_id", "token", "connection_url"), _TEXT)
    proposal = _record({"position": _COUNT, "digest": _TEXT, "expires_at": {"type": "string", "format": "date-time"}})
    more: dict[str, Any] = {**stream, "authorized_writers": _TEXTS, **invitation, "proposal": proposal}
    return _record({**properties, **more}, optional=more)


def _explanation() -> dict[str, Any]:
    maybe_capability = {"oneOf": [_ref("Capability"), {"type": "null"}]}
    near = _record({"capability": _ref("Capability"), "source": _TEXT, "why": _TEXT})
    return _record(
        {
            "allowed": {"type": "boolean"},
            "kind": _MAYBE_TEXT,
            "error": {"enum": [*sorted(ERROR_CODES), None]},
            "reason": _TEXT,
            "capability": maybe_capability,
            "source": _MAYBE_TEXT,
            "nearest": {"oneOf": [near, {"type": "null"}]},
        }
    )


def _allowed() -> dict[str, Any]:
    conditional = {"type": "boolean", "description": "Whether it also depends on the payload or the recipients."}
    kind = _record({"kind": _TEXT, "conditional": conditional, "capability": _ref("Capability"), "source": _TEXT})
    stream = _record({"stream_id": _TEXT, "kinds": _TEXTS})
    return _record(
        {
            "participant": _TEXT,
            "error": {"enum": [*sorted(ERROR_CODES), None]},
            "reason": _MAYBE_TEXT,
            "kinds": {"type": "array", "items": kind},
            "streams": {"type": "array", "items": stream},
        }
    )
