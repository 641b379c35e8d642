"""The HTTP API of the gateway: routes, authentication, responses and errors (protocol §5).

Requests become commands of the protocol core, so HTTP and WebSocket follow the same rules.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mew import __version__
from mew.gateway.exposure import allowed_origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.exchange import admit, credentials, exchange_of, paid, peer_of
from mew.gateway.http.journal import JournalApi
from mew.gateway.http.openapi import ENDPOINTS, document
from mew.gateway.http.responses import (
    AcceptedBody,
    ActionsBody,
    ExplanationBody,
    HealthBody,
    IdentityBody,
    NotReadyBody,
    ParticipantsBody,
    PolledBody,
    ReadyBody,
)
from mew.gateway.hub import Hub
from mew.gateway.metrics import CONTENT_TYPE, exposition, journal_health
from mew.inspector import InspectorPage
from mew.protocol import JoinRequest, Poll, Post, ProtocolError, SpaceCore, raw_json
from mew.protocol.errors import (
    AlreadyExists,
    InternalError,
    InvalidRequest,
    MessageTooLarge,
    NotFound,
    SpaceNotFound,
    Unauthorized,
)
from mew.protocol.explain import MAX_UNITS, explain_message, list_actions
from mew.protocol.handlers.proposals import proposal_closed_error
from mew.protocol.proposals import ClosedProposal
from mew.protocol.work import BYTES_PER_UNIT

FEATURES: Final = (
    "streams",
    "stream-ownership",
    "stream-handshake",
    "targets",
    "http",
    "observers",
    "explain",
    "proposals",
    "journal",
    "inspector",
)
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
MILLISECONDS: Final = 1_000
"""Milliseconds per second."""
NUMBER_LENGTH: Final = 18
"""Maximum digits of a message number or a position."""


def json_response(body: Any, status: int = 200) -> Response:
    """Return a response with compact JSON, the format used everywhere on the wire."""
    return Response(raw_json.encode_json(body), status, media_type="application/json")


def refused(refusal: ProtocolError) -> Response:
    """Return an HTTP response for a refusal."""
    answer = json_response(refusal.payload(), refusal.status)
    wait = refusal.parts.get("retry_after_ms")
    if wait is not None:
        answer.headers["retry-after"] = str(-(-wait // MILLISECONDS))
    return answer


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    """Return the handler of a path. One route serves all methods, so that the error for others lists them."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


@cache
def _openapi() -> bytes:
    """Return the encoded OpenAPI document. Cached: it is the same for all callers and needs no token."""
    return raw_json.encode_json(document())


class HttpApi:
    """The HTTP endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        """Serve this gateway."""
        self._gateway = gateway
        self.journal: Handler = JournalApi(gateway).read

    def app(self) -> Starlette:
        """Return the ASGI application with all routes."""
        handlers_of_path: dict[str, dict[str, Handler]] = {}
        for endpoint in ENDPOINTS:
            handlers_of_path.setdefault(endpoint.path, {})[endpoint.method] = getattr(self, endpoint.name)
        routes: list[BaseRoute] = [
            Route(path, _by_method(of_method), methods=list(of_method)) for path, of_method in handlers_of_path.items()
        ]
        routes.append(InspectorPage())
        handlers = {
            HTTPException: _not_found,
            ProtocolError: self._refused,
            ClientDisconnect: _gone,
            Exception: _broken,
        }
        return Starlette(routes=routes, middleware=self._middleware(), exception_handlers=handlers)

    def _middleware(self) -> list[Middleware]:
        """Add CORS headers for allowed pages of other origins. `exposure` decides which pages may send requests."""
        allowed = allowed_origins(self._gateway.config)
        if not allowed:
            return []
        # Allow every method and header: unknown ones then get the usual JSON error, not a plain-text preflight error.
        everything = ["*"]
        return [
            Middleware(
                CORSMiddleware,
                allow_origins=allowed,
                allow_methods=everything,
                allow_headers=everything,
                allow_private_network=True,
            )
        ]

    async def health(self, _request: Request) -> Response:
        """Return the status, the number of spaces and clients, and whether the journals can be written."""
        gateway = self._gateway
        status, journals = journal_health(gateway)
        return json_response(
            HealthBody(
                status=status,
                version=__version__,
                spaces=len(gateway.hubs),
                clients=sum(len(hub.space.sessions) for hub in gateway.hubs.values()),
                uptime=round(gateway.uptime, 3),
                features=FEATURES,
                journal=journals,
            )
        )

    async def ready(self, _request: Request) -> Response:
        """Return whether the gateway accepts work: 200 if it does, else 503."""
        ready, report = self._gateway.readiness.report()
        return json_response(ReadyBody(**report)) if ready else json_response(NotReadyBody(**report), 503)

    async def openapi(self, _request: Request) -> Response:
        """Return the OpenAPI document of this API."""
        return Response(_openapi(), media_type="application/json")

    async def metrics(self, _request: Request) -> Response:
        """Return the gateway's metrics in the Prometheus format."""
        return Response(exposition(self._gateway), media_type=CONTENT_TYPE)

    async def participants(self, request: Request) -> Response:
        """Return the participants present and the identity of the token. Requires any token of the space."""
        join = _join_request(request)
        space = self._gateway.lobby.look_in(join)
        admit(request)
        identity = self._gateway.tokens.identify(str(join.token))
        assert identity is not None  # otherwise `look_in` has raised an error
        async with paid(self._gateway, space, join) as bill:
            listed = b"[" + space.roster.text() + b"]"
            bill.size = len(listed)
        you = IdentityBody(identity.participant, identity.observer)
        return json_response(ParticipantsBody(space.settings.space_id, you, msgspec.Raw(listed)))

    async def post(self, request: Request) -> Response:
        """Post a message as a participant: the same rules as over a WebSocket, with a response."""
        participant, hub = self._authenticated(request)
        message = await _body(request, hub.space.settings.limits.message_bytes)
        await hub.turns.share(participant)
        self._gateway.readiness.require()
        hub.require_journal()
        with hub.turns.spending(participant):
            answer = hub.ask(Post(participant, message, peer_of(request)))
            hub.flush()  # a script that has the response finds what followed in the output logs
        hub.require_journal()
        if answer is None:
            raise InvalidRequest("nothing came of the message")
        if answer.refusal is None:
            return json_response(AcceptedBody(**answer.body))
        if isinstance(answer.refusal, AlreadyExists):
            return json_response({**answer.refusal.payload(), "status": "already_exists"}, answer.refusal.status)
        return refused(answer.refusal)

    async def explain(self, request: Request) -> Response:
        """Explain what a post of the message in the body would do now. Requires any token of the space."""
        join, space, hub = self._looked_in(request)
        limits = space.settings.limits
        message = await _body(request, min(limits.explain_bytes, limits.message_bytes))
        async with paid(self._gateway, space, join) as bill:
            explanation = explain_message(space, request.path_params["participant"], message, hub.clock())
            response = json_response(ExplanationBody(**explanation.answer()))
            bill.work, bill.size, bill.received = explanation.units, len(response.body), len(message)
        return response

    async def actions(self, request: Request) -> Response:
        """List all that a participant may send now. Requires any token of the space."""
        join, space, hub = self._looked_in(request)
        async with paid(self._gateway, space, join) as bill:
            bill.work = MAX_UNITS  # charged if the request is refused
            actions = list_actions(space, request.path_params["participant"], hub.clock())
            response = json_response(ActionsBody(**actions.answer()))
            bill.work, bill.size = actions.units, len(response.body)
        return response

    async def proposal(self, request: Request) -> Response:
        """Return the open proposal whose record has this position, with its payload. Requires any token of the space.

        The welcome lists open proposals without their payloads, because payloads may be large.
        """
        token = credentials("", request.headers.get("authorization")).token
        join = JoinRequest(space=request.path_params["id"], token=token)
        space = self._gateway.lobby.look_in(join)
        admit(request)
        position = request.path_params["position"]
        if not (position.isascii() and position.isdigit() and len(position) <= NUMBER_LENGTH):
            raise InvalidRequest("the position of a proposal is a whole number")
        async with paid(self._gateway, space, join) as bill:
            content = _proposal_content(space, int(position), self._gateway.hubs[space.settings.space_id].clock())
            bill.size = len(content)
        return Response(content, media_type="application/json", headers={"cache-control": "no-store"})

    async def poll(self, request: Request) -> Response:
        """Return the messages that the participant has received, from the number `since` on."""
        participant, hub = self._authenticated(request)
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) <= NUMBER_LENGTH):
            raise InvalidRequest("`since` must be a whole number")
        await hub.turns.share(participant)
        self._gateway.readiness.require()
        hub.require_journal()
        with hub.turns.spending(participant):
            answer = hub.ask(Poll(participant, peer_of(request)))
            if answer is not None and answer.refusal is not None:
                return refused(answer.refusal)
            hub.flush()
            hub.require_journal()
            return _mail(hub, participant, int(since))

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, ProtocolError):
            raise error
        # Do not log the target: a careless client puts its token there.
        exchange = exchange_of(request.scope)
        connection = None if exchange is None else exchange.connection
        self._gateway.refusals.write(
            "request refused", connection, error=error.code, method=request.method, status=error.status
        )
        if connection is not None and isinstance(error, Unauthorized | SpaceNotFound):
            space = request.path_params.get("id", request.query_params.get("space"))
            join = JoinRequest(space, request.path_params.get("participant"))
            self._gateway.record_refusal(error, join, connection, "http")
        if exchange is not None and self._gateway.is_guess(error, _join_request(request).token):
            # Delay each failed token attempt, as over WebSocket. Later requests on this connection wait for the
            # response.
            await exchange.wait(self._gateway.config.timeouts.failed_join_seconds)
        return refused(error)

    def _looked_in(self, request: Request) -> tuple[JoinRequest, SpaceCore, Hub]:
        """Return the credentials and the space of a request with any token of the space."""
        join = _join_request(request)
        space = self._gateway.lobby.look_in(join)
        admit(request)
        return join, space, self._gateway.hubs[space.settings.space_id]

    def _authenticated(self, request: Request) -> tuple[str, Hub]:
        participant = request.path_params["participant"]
        space = self._gateway.lobby.authenticate(participant, _join_request(request))
        admit(request)
        return participant, self._gateway.hubs[space.settings.space_id]


def _proposal_content(space: SpaceCore, position: int, now: int) -> bytes:
    proposal = space.state.proposal_at(position, now)
    if proposal is None:
        raise NotFound(f"there is no open proposal at position {position}, and none was closed within the last hour")
    if isinstance(proposal, ClosedProposal) or proposal.expires <= now:
        raise proposal_closed_error(proposal)
    return proposal.content()


def _mail(hub: Hub, participant: str, since: int) -> Response:
    """Return the messages queued for a participant from a number on. The participant is charged for them."""
    mailbox = hub.mailbox(participant)
    messages, following, dropped = ([], 0, 0) if mailbox is None else mailbox.since(since)
    size = sum(map(len, messages))
    hub.space.charge(participant, hub.clock(), work=size // BYTES_PER_UNIT, size=size)
    return json_response(PolledBody(list(map(msgspec.Raw, messages)), following, dropped))


def _join_request(request: Request) -> JoinRequest:
    query = request.scope["query_string"].decode("latin-1")
    return credentials(f"?{query}", request.headers.get("authorization"))


async def _body(request: Request, most: int) -> bytes:
    """Return the body of the request. Raises `MessageTooLarge` beyond `most` bytes and stops reading."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise MessageTooLarge(f"a message may have {most} bytes here", limit=most)
    return b"".join(parts)


async def _not_found(request: Request, error: Exception) -> Response:
    refusal = NotFound(f"there is no {request.method} {request.scope['path']} here")
    answer = refused(refusal)
    if isinstance(error, HTTPException):
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
    return answer


async def _gone(_request: Request, _error: Exception) -> Response:
    """Handle a peer that disconnected before its request was complete; no client reads this response."""
    return Response(status_code=400)


async def _broken(_request: Request, _error: Exception) -> Response:
    """Return a response for an internal error of the gateway; uvicorn logs the error."""
    return refused(InternalError("the gateway failed; its log says more"))
