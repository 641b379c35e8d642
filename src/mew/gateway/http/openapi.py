"""The endpoints of the HTTP API, and their OpenAPI document (`GET /openapi.json`).

`ENDPOINTS` is the route table: `app` serves it, and the document describes it. The schemas come from the structs of
`responses`, and the error codes and their statuses from the classes of `mew.protocol.errors`. A test sends everything
described here, and every example, to a gateway.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from mew import __version__
from mew.gateway.http.journal import EVENT_STREAM, JOURNAL_PATH, MOST_LIMIT, POSITION_DIGITS, USUAL_LIMIT
from mew.gateway.http.responses import (
    ACTIONS,
    EVENT,
    EXAMPLE_MESSAGES,
    EXAMPLE_PAGE,
    EXPLAINED,
    AcceptedBody,
    ActionsBody,
    CapabilityBody,
    EnvelopeBody,
    ErrorBody,
    Example,
    ExplanationBody,
    HealthBody,
    JournalPageBody,
    NotReadyBody,
    ParticipantBody,
    ParticipantsBody,
    PolledBody,
    ProposalBody,
    ReadyBody,
)
from mew.journal.export import RecordBody
from mew.protocol import PROTOCOL, ProtocolError

JsonSchema: TypeAlias = dict[str, Any]
_JSON: Final = "application/json"
_ALWAYS: Final = (400, 403, 431, 500)
"""Errors any request may get: malformed, page or host not allowed, headers too large, internal error."""
_WITH_TOKEN: Final = (401, 404, 429)
_MOST_POSITION: Final = 10**POSITION_DIGITS - 1
_MEANINGS: Final = {
    200: "As asked.",
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
_HTTP_CODES: Final = {431: {"invalid_request"}}
"""Error codes of statuses that come from HTTP, not from the protocol."""


# The endpoints


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    name: str
    """The handler in `HttpApi`, and the id of the operation."""
    summary: str
    answers: Mapping[int, Any]
    """The type of the response's body, by status."""
    refusals: tuple[int, ...] = ()
    """Statuses of errors, besides those of any request, and of any request with a token."""
    needs_token: bool = True
    parameters: tuple[JsonSchema, ...] = ()
    """Besides those in the path."""
    media_type: str = _JSON
    examples: tuple[Example, ...] = ()
    """Requests with an envelope, and their responses."""
    answer_examples: JsonSchema = {}


_MESSAGES_PATH: Final = "/participants/{participant}/messages"
_EXPLAIN_PATH: Final = "/participants/{participant}/explain"
_SPACE: Final = {
    "name": "space",
    "in": "query",
    "description": "Which space; none, or `default`, is the first.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$"},
}
_PATH_PARAMETERS: Final[dict[str, tuple[JsonSchema, ...]]] = {
    "{participant}": (
        {
            "name": "participant",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}$"},
            "example": "alice",
        },
        _SPACE,
    ),
    "{id}": (
        {
            "name": "id",
            "in": "path",
            "required": True,
            "description": "Which space; `default` is the first.",
            "schema": _SPACE["schema"],
            "example": "demo",
        },
    ),
    "{position}": (
        {
            "name": "position",
            "in": "path",
            "required": True,
            "description": "Of the proposal's record, as `proposal.position` gives it.",
            "schema": {"type": "integer", "minimum": 0, "maximum": _MOST_POSITION},
            "example": 118,
        },
    ),
}
"""The parameters of a path, by the placeholder in it."""


def _number(name: str, most: int, default: int, least: int = 0) -> JsonSchema:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return {"name": name, "in": "query", "schema": schema}


ENDPOINTS: Final = (
    Endpoint(
        path="/health",
        name="health",
        summary="Whether the process answers.",
        answers={200: HealthBody},
        needs_token=False,
    ),
    Endpoint(
        path="/ready",
        name="ready",
        summary="Whether the gateway takes work.",
        answers={200: ReadyBody, 503: NotReadyBody},
        needs_token=False,
    ),
    Endpoint(
        path="/metrics",
        name="metrics",
        summary="Figures for Prometheus.",
        answers={200: str},
        needs_token=False,
        media_type="text/plain",
    ),
    Endpoint(path="/openapi.json", name="openapi", summary="This document.", answers={200: dict}, needs_token=False),
    Endpoint(
        path="/participants",
        name="participants",
        summary="Who is present in a space; for any token of it, an observer's too.",
        answers={200: ParticipantsBody},
        parameters=(_SPACE,),
    ),
    Endpoint(
        method="POST",
        path=_MESSAGES_PATH,
        name="post",
        summary="Send one envelope, by the same rules as over WebSocket.",
        answers={200: AcceptedBody},
        refusals=(409, 413, 503),
        examples=EXAMPLE_MESSAGES,
    ),
    Endpoint(
        path=_MESSAGES_PATH,
        name="poll",
        summary="What the participant has received from a number on.",
        answers={200: PolledBody},
        refusals=(503,),
        parameters=(_number("since", _MOST_POSITION, 0),),
    ),
    Endpoint(
        method="POST",
        path=_EXPLAIN_PATH,
        name="explain",
        summary="What a post of this envelope would come to now, and why; nothing is sent. For any token of the space.",
        answers={200: ExplanationBody},
        refusals=(413,),
        examples=EXPLAINED,
    ),
    Endpoint(
        path=_EXPLAIN_PATH,
        name="actions",
        summary="Everything that the participant may send now, and by what. For any token of the space.",
        answers={200: ActionsBody},
        answer_examples={"actions": {"value": ACTIONS}},
    ),
    Endpoint(
        path=JOURNAL_PATH,
        name="journal",
        summary="The record of a space from a position on; for any token of it."
        " What is not for its holder is withheld.",
        answers={200: JournalPageBody},
        parameters=(
            _number("from", _MOST_POSITION, 0),
            _number("limit", MOST_LIMIT, USUAL_LIMIT, least=1),
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
                "schema": {"type": "integer", "minimum": 0, "maximum": _MOST_POSITION},
            },
        ),
        answer_examples={"page": {"value": EXAMPLE_PAGE}},
    ),
    Endpoint(
        path="/spaces/{id}/proposals/{position}",
        name="proposal",
        summary="An open proposal with its payload. For any token of the space.",
        answers={200: ProposalBody},
        refusals=(409,),
    ),
)


# The document


@cache
def document() -> dict[str, Any]:
    """Return the complete document. It is the same for every gateway of this version."""
    about = "Spaces that people, agents and tools share. Everything here has its rule in the protocol's reference."
    info = {"title": "MEW gateway", "version": __version__, "summary": f"{PROTOCOL} over HTTP", "description": about}
    paths: dict[str, JsonSchema] = {}
    for endpoint in ENDPOINTS:
        described = paths.setdefault(endpoint.path, _path_parameters(endpoint.path))
        described[endpoint.method.lower()] = _operation(endpoint)
    # The live form has no body of one type: it is a stream of events.
    live = {"schema": response_schema(str), "examples": {"event": {"value": EVENT}}}
    paths[JOURNAL_PATH]["get"]["responses"]["200"]["content"][EVENT_STREAM] = live
    return {
        "openapi": "3.1.0",
        "info": info,
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "A token of the space."}},
            "schemas": _schemas(),
            "responses": {f"Refusal{status}": _refusal(status, codes) for status, codes in codes_by_status().items()},
        },
    }


def _path_parameters(path: str) -> JsonSchema:
    parameters = [one for name, several in _PATH_PARAMETERS.items() if name in path for one in several]
    return {"parameters": parameters} if parameters else {}


def _operation(endpoint: Endpoint) -> JsonSchema:
    """Describe an endpoint: its responses by status, and what it takes."""
    refusals = {*_ALWAYS, *endpoint.refusals, *(_WITH_TOKEN if endpoint.needs_token else ())}
    responses = {str(status): _reference("responses", f"Refusal{status}") for status in sorted(refusals)}
    for status, form in endpoint.answers.items():
        content = {"schema": response_schema(form)}
        if endpoint.answer_examples:
            content["examples"] = endpoint.answer_examples
        responses[str(status)] = _response(status, content, endpoint.media_type)
    operation: JsonSchema = {"operationId": endpoint.name, "summary": endpoint.summary}
    if endpoint.needs_token:
        operation["security"] = [{"bearer": []}]
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.examples:
        operation["requestBody"] = _request(endpoint.examples)
        responses |= _example_responses(endpoint)
    return {**operation, "responses": responses}


def _request(examples: Iterable[Example]) -> JsonSchema:
    values = {example.name: {"summary": example.summary, "value": example.request} for example in examples}
    return {"required": True, "content": {_JSON: {"schema": response_schema(EnvelopeBody), "examples": values}}}


def _example_responses(endpoint: Endpoint) -> JsonSchema:
    """Describe the responses that examples have, each with those examples."""
    values: dict[int, JsonSchema] = {}
    for example in endpoint.examples:
        values.setdefault(example.status, {})[example.name] = {"value": example.answer}
    return {
        str(status): _response(
            status, {"schema": response_schema(endpoint.answers.get(status, ErrorBody)), "examples": answers}
        )
        for status, answers in values.items()
    }


def _response(status: int, content: JsonSchema, media_type: str = _JSON) -> JsonSchema:
    return {"description": _MEANINGS[status], "content": {media_type: content}}


# Errors


def codes_by_status() -> dict[int, list[str]]:
    """Return every status that a refusal can have, with its error codes."""
    codes_of_status: dict[int, set[str]] = {status: set(codes) for status, codes in _HTTP_CODES.items()}
    for refusal in _refusals(ProtocolError):
        codes_of_status.setdefault(refusal.status, set()).add(refusal.code)
    return {status: sorted(codes) for status, codes in sorted(codes_of_status.items())}


def _refusals(kind: type[ProtocolError]) -> Iterable[type[ProtocolError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _refusals(subclass)


def _refusal(status: int, codes: list[str]) -> JsonSchema:
    schema = {"allOf": [response_schema(ErrorBody), {"properties": {"error": {"enum": codes}}}]}
    return _response(status, {"schema": schema})


# Schemas

_COMPONENTS: Final[dict[Any, str]] = {
    ErrorBody: "ProtocolError",
    EnvelopeBody: "Envelope",
    AcceptedBody: "Accepted",
    PolledBody: "Polled",
    ExplanationBody: "Explanation",
    ActionsBody: "Actions",
    ParticipantsBody: "Participants",
    ParticipantBody: "Participant",
    CapabilityBody: "Capability",
    HealthBody: "Health",
    ProposalBody: "Proposal",
    JournalPageBody: "JournalPage",
    RecordBody: "JournalRecord",
    ReadyBody: "Ready",
    NotReadyBody: "NotReady",
}
"""The structs that have a name in the document. Others are described where they are used."""
_SIMPLE: Final[dict[Any, JsonSchema]] = {
    str: {"type": "string"},
    bytes: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    dict: {"type": "object"},
    msgspec.Raw: {"type": "object"},
    Any: {},
    object: {},
}
_LIMITS: Final = {"ge": "minimum", "min_length": "minLength", "max_length": "maxLength", "description": "description"}
"""The fields of `msgspec.Meta` that are used here, and their names in a schema."""


def _schemas() -> JsonSchema:
    schemas = {name: _record(struct) for struct, name in _COMPONENTS.items()}
    schemas["ProtocolError"]["description"] = "Besides these, what the code's row in the protocol's reference names."
    return schemas


def _reference(kind: str, name: str) -> JsonSchema:
    return {"$ref": f"#/components/{kind}/{name}"}


def response_schema(form: Any) -> JsonSchema:
    """Return the JSON Schema of a type, as this API writes schemas: without titles and defaults, types in a list."""
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return _union([response_schema(member) for member in arguments if member is not msgspec.UnsetType])
    if origin in (list, tuple):
        items = response_schema(arguments[0])
        return {"type": "array", "items": items} if items else {"type": "array"}
    if origin is dict:
        values = response_schema(arguments[1])
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if form in _COMPONENTS:
        return _reference("schemas", _COMPONENTS[form])
    return dict(_SIMPLE[form]) if form in _SIMPLE else _record(form)


def _annotated(form: Any, marks: tuple[msgspec.Meta, ...]) -> JsonSchema:
    """Return the schema of a type with limits, or what replaces it: `schema` or `type` of `Meta.extra`."""
    (mark,) = marks
    extra = mark.extra or {}
    if "schema" in extra:
        return dict(extra["schema"])
    if "type" in extra:
        return response_schema(extra["type"])
    limits = {key: getattr(mark, name) for name, key in _LIMITS.items() if getattr(mark, name) is not None}
    return {**response_schema(form), **limits, **(mark.extra_json_schema or {})}


def _union(members: list[JsonSchema]) -> JsonSchema:
    null = _SIMPLE[NoneType]
    if len(members) == 1:
        return members[0]
    if all(member.keys() == {"type"} for member in members):
        return {"type": [member["type"] for member in members]}
    first, *others = members
    if others == [null] and "type" in first and "properties" not in first:
        return {**first, "type": [first["type"], "null"]}
    return {"oneOf": members}


def _record(struct: Any) -> JsonSchema:
    """Return the schema of a struct. A field is required unless its type allows to leave it out."""
    fields = msgspec.structs.fields(struct)
    return {
        "type": "object",
        "properties": {field.encode_name: response_schema(field.type) for field in fields},
        "required": [field.encode_name for field in fields if msgspec.UnsetType not in get_args(field.type)],
    }
