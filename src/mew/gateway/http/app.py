"""The HTTP API of a gateway: routes, authentication, answers and errors (protocol §5).

Requests become commands of the core, so HTTP and WebSocket follow the same rules.
"""

from functools import cache
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mew import __version__
from mew.gateway.exposure import allowed_origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.exchange import admit, credentials, exchange_of, paid, peer_of
from mew.gateway.http.journal import JOURNAL, JournalDoor
from mew.gateway.http.openapi import document
from mew.gateway.http.proposals import PROPOSAL, ProposalContent
from mew.gateway.hub import Hub
from mew.gateway.metrics import CONTENT_TYPE, exposition, journal_health
from mew.inspector import Page
from mew.protocol import JoinRequest, Poll, Post, Refusal, raw_json
from mew.protocol.errors import (
    AlreadyExists,
    InternalError,
    InvalidRequest,
    MessageTooLarge,
    NotFound,
    SpaceNotFound,
    Unauthorized,
)
from mew.protocol.explain import MOST_UNITS
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
MESSAGES: Final = "/participants/{participant}/messages"
EXPLAIN: Final = "/participants/{participant}/explain"
MILLISECONDS: Final = 1_000
"""In a second."""
NUMBER_LENGTH: Final = 18
"""Digits of a number that counts messages."""


def json_response(body: Any, status: int = 200) -> Response:
    """Compact JSON, as everywhere on the wire."""
    return Response(raw_json.encode(body), status, media_type="application/json")


def refused(refusal: Refusal) -> Response:
    """A refusal as an HTTP answer."""
    answer = json_response(refusal.payload(), refusal.status)
    wait = refusal.parts.get("retry_after_ms")
    if wait is not None:
        answer.headers["retry-after"] = str(-(-wait // MILLISECONDS))
    return answer


@cache
def _openapi() -> bytes:
    """Made once: it is the same for everybody, and anybody may ask."""
    return raw_json.encode(document())


class HttpDoor:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        """Serve this gateway."""
        self._gateway = gateway

    def app(self) -> Starlette:
        """The application that a server serves."""
        routes = [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/participants", self.participants),
            Route(MESSAGES, self.messages, methods=["GET", "POST"]),
            Route(EXPLAIN, self.explained, methods=["GET", "POST"]),
            Route(JOURNAL, JournalDoor(self._gateway).read),
            Route(PROPOSAL, ProposalContent(self._gateway).read),
            Page(),
        ]
        handlers = {HTTPException: _not_found, Refusal: self._refused, ClientDisconnect: _gone, Exception: _broken}
        return Starlette(routes=routes, middleware=self._middleware(), exception_handlers=handlers)

    def _middleware(self) -> list[Middleware]:
        """Tells a browser that a page of another origin may read the answer; `exposure` decides which pages may ask."""
        allowed = allowed_origins(self._gateway.config)
        if not allowed:
            return []
        # Every method and header: what does not exist is refused as always, in JSON, and not by a preflight in words.
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
        """Whether the process answers, how much it holds, and whether it can be recorded."""
        gateway = self._gateway
        status, journals = journal_health(gateway)
        return json_response(
            {
                "status": status,
                "version": __version__,
                "spaces": len(gateway.hubs),
                "clients": sum(len(hub.space.sessions) for hub in gateway.hubs.values()),
                "uptime": round(gateway.uptime, 3),
                "features": FEATURES,
                "journal": journals,
            }
        )

    async def ready(self, _request: Request) -> Response:
        """Whether the gateway takes work."""
        ready, report = self._gateway.readiness.report()
        return json_response(report, 200 if ready else 503)

    async def openapi(self, _request: Request) -> Response:
        """What this door answers, for programs."""
        return Response(_openapi(), media_type="application/json")

    async def metrics(self, _request: Request) -> Response:
        """The gateway's figures, for Prometheus."""
        return Response(exposition(self._gateway), media_type=CONTENT_TYPE)

    async def participants(self, request: Request) -> Response:
        """Who is present in a space, for anybody with a token of that space; and whose token that is."""
        asked = _asked(request)
        space = self._gateway.lobby.look_in(asked)
        admit(request)
        identity = self._gateway.tokens.identify(str(asked.token))
        you = None if identity is None else {"id": identity.participant, "observer": identity.observer}
        async with paid(self._gateway, space, asked) as bill:
            listed = b"[" + space.roster.text() + b"]"
            bill.size = len(listed)
        body = {
            "space": raw_json.encode(space.settings.space_id),
            "you": raw_json.encode(you),
            "participants": listed,
        }
        return Response(raw_json.join(body), media_type="application/json")

    async def messages(self, request: Request) -> Response:
        """One path, so that whoever tries another method is told of both."""
        return await (self.post if request.method == "POST" else self.poll)(request)

    async def post(self, request: Request) -> Response:
        """A message of a participant: the same rules as over a socket, and an answer."""
        participant, hub = self._authenticated(request)
        message = await _body(request, hub.space.settings.limits.message_bytes)
        await hub.turns.share(participant)
        self._gateway.readiness.require()
        hub.require_journal()
        with hub.turns.spending(participant):
            answer = hub.ask(Post(participant, message, peer_of(request)))
            hub.flush()  # a script that has its answer finds what followed in the output logs
        hub.require_journal()
        if answer is None:
            raise InvalidRequest("nothing came of the message")
        if answer.refusal is None:
            return json_response(answer.body)
        if isinstance(answer.refusal, AlreadyExists):
            return json_response({**answer.refusal.payload(), "status": "already_exists"}, answer.refusal.status)
        return refused(answer.refusal)

    async def explained(self, request: Request) -> Response:
        """What a post of this message would come to, and why; or, with GET, all that may be sent. For any token."""
        space = self._gateway.lobby.look_in(_asked(request))
        admit(request)
        hub = self._gateway.hubs[space.settings.space_id]
        participant, asked = request.path_params["participant"], _asked(request)
        if request.method != "POST":
            async with paid(self._gateway, space, asked) as bill:
                bill.work = MOST_UNITS  # where it is refused
                actions = space.actions(participant, hub.clock())
                answer = raw_json.encode(actions.answer())
                bill.work, bill.size = actions.units, len(answer)
            return Response(answer, media_type="application/json")
        limits = space.settings.limits
        message = await _body(request, min(limits.explain_bytes, limits.message_bytes))
        async with paid(self._gateway, space, asked) as bill:
            explanation = space.explain(participant, message, hub.clock())
            answer = raw_json.encode(explanation.answer())
            bill.work, bill.size, bill.received = explanation.units, len(answer), len(message)
        return Response(answer, media_type="application/json")

    async def poll(self, request: Request) -> Response:
        """What the participant has received from a number on."""
        participant, hub = self._authenticated(request)
        given = request.query_params.get("since", "0")
        if not (given.isascii() and given.isdigit() and len(given) <= NUMBER_LENGTH):
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
            return _mail(hub, participant, int(given))

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, Refusal):
            raise error
        # Not the target: a careless client puts its token there.
        exchange = exchange_of(request.scope)
        connection = None if exchange is None else exchange.connection
        self._gateway.refusals.write(
            "request refused", connection, error=error.code, method=request.method, status=error.status
        )
        if connection is not None and isinstance(error, Unauthorized | SpaceNotFound):
            space = request.path_params.get("id", request.query_params.get("space"))
            asked = JoinRequest(space, request.path_params.get("participant"))
            self._gateway.record_refusal(error, asked, connection, "http")
        if exchange is not None and self._gateway.is_guess(error, _asked(request).token):
            # Trying tokens takes time, as over a socket. What follows on this connection waits behind the answer.
            await exchange.wait(self._gateway.config.timeouts.failed_join_seconds)
        return refused(error)

    def _authenticated(self, request: Request) -> tuple[str, Hub]:
        participant = request.path_params["participant"]
        space = self._gateway.lobby.authenticate(participant, _asked(request))
        admit(request)
        return participant, self._gateway.hubs[space.settings.space_id]


def _mail(hub: Hub, participant: str, since: int) -> Response:
    """What waits for a participant from a number on, which it pays for."""
    mailbox = hub.mailbox(participant)
    messages, following, dropped = ([], 0, 0) if mailbox is None else mailbox.since(since)
    size = sum(map(len, messages))
    hub.space.charge(participant, hub.clock(), work=size // BYTES_PER_UNIT, size=size)
    body = {
        "messages": raw_json.array(messages),
        "next": raw_json.encode(following),
        "dropped": raw_json.encode(dropped),
    }
    return Response(raw_json.join(body), media_type="application/json")


def _asked(request: Request) -> JoinRequest:
    query = request.scope["query_string"].decode("latin-1")
    return credentials(f"?{query}", request.headers.get("authorization"))


async def _body(request: Request, most: int) -> bytes:
    """The body, unless it is larger than it may be: then it is not read to its end."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise MessageTooLarge(f"a message may have {most} bytes here")
    return b"".join(parts)


async def _not_found(request: Request, error: Exception) -> Response:
    refusal = NotFound(f"there is no {request.method} {request.scope['path']} here")
    answer = refused(refusal)
    if isinstance(error, HTTPException):
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
    return answer


async def _gone(_request: Request, _error: Exception) -> Response:
    """The peer hung up before its request was complete: nobody reads this."""
    return Response(status_code=400)


async def _broken(_request: Request, _error: Exception) -> Response:
    """A fault of ours, which uvicorn logs."""
    return refused(InternalError("the gateway failed; its log says more"))
