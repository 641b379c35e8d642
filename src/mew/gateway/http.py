"""The HTTP door: posts, polls, and what operators ask (protocol §5).

Turns requests into commands and answers into JSON. The rules are the core's, the same as at the WebSocket door.
"""

from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mew import __version__
from mew.gateway.gateway import Gateway
from mew.gateway.hub import Hub
from mew.gateway.metrics import CONTENT_TYPE, exposition
from mew.gateway.websocket import credentials
from mew.protocol import JoinRequest, Poll, Post, Refusal, jsontext
from mew.protocol.errors import AlreadyExists, InvalidRequest, MessageTooLarge, NotFound, Unauthenticated

FEATURES: Final = ("streams", "stream-ownership", "stream-handshake", "targets", "http", "observers")


def json_response(body: Any, status: int = 200) -> Response:
    """Compact JSON, as everywhere on the wire."""
    return Response(jsontext.encode(body), status, media_type="application/json")


def refused(refusal: Refusal) -> Response:
    """A refusal as an HTTP answer."""
    return json_response(refusal.payload(), refusal.status)


class HttpDoor:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        """Serve this gateway."""
        self._gateway = gateway

    def app(self) -> Starlette:
        """The application that a server serves."""
        messages = "/participants/{participant}/messages"
        routes = [
            Route("/health", self.health),
            Route("/ready", self.health),
            Route("/metrics", self.metrics),
            Route("/participants", self.participants),
            Route(messages, self.post, methods=["POST"]),
            Route(messages, self.poll, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _not_found, Refusal: _refused})

    async def health(self, _request: Request) -> Response:
        """Whether the gateway answers, and how much it holds."""
        gateway = self._gateway
        return json_response(
            {
                "status": "ok",
                "version": __version__,
                "spaces": len(gateway.hubs),
                "clients": sum(len(hub.space.sessions) for hub in gateway.hubs.values()),
                "uptime": round(gateway.uptime, 3),
                "features": FEATURES,
            }
        )

    async def metrics(self, _request: Request) -> Response:
        """The gateway's figures, for Prometheus."""
        return Response(exposition(self._gateway), media_type=CONTENT_TYPE)

    async def participants(self, request: Request) -> Response:
        """Who is present in a space, for anybody with a token of that space."""
        asked = _asked(request)
        space = self._gateway.lobby.find(asked.space)
        identity = None if asked.token is None else self._gateway.tokens.identify(asked.token)
        if identity is None or identity.space_id != space.settings.space_id:
            raise Unauthenticated("a token of the space is needed")
        listed = jsontext.array(space.roster.values())
        body = {"space": jsontext.encode(space.settings.space_id), "participants": listed}
        return Response(jsontext.join(body), media_type="application/json")

    async def post(self, request: Request) -> Response:
        """A message of a participant: the same rules as over a socket, and an answer."""
        participant, hub = self._authenticated(request)
        answer = hub.ask(Post(participant, await _body(request, hub)))
        hub.flush()  # a script that has its answer finds what followed in the output logs
        if answer is None:
            raise InvalidRequest("nothing came of the message")
        if answer.refusal is None:
            return json_response(answer.body)
        if isinstance(answer.refusal, AlreadyExists):
            return json_response({**answer.refusal.payload(), "status": "already_exists"}, answer.refusal.status)
        return refused(answer.refusal)

    async def poll(self, request: Request) -> Response:
        """What the participant has received from a number on."""
        participant, hub = self._authenticated(request)
        given = request.query_params.get("since", "0")
        if not given.isascii() or not given.isdigit():
            raise InvalidRequest("`since` must be a whole number")
        answer = hub.ask(Poll(participant))
        if answer is not None and answer.refusal is not None:
            return refused(answer.refusal)
        hub.flush()
        mailbox = hub.mailbox(participant)
        messages, following, dropped = ([], 0, 0) if mailbox is None else mailbox.since(int(given))
        body = {
            "messages": jsontext.array(messages),
            "next": jsontext.encode(following),
            "dropped": jsontext.encode(dropped),
        }
        return Response(jsontext.join(body), media_type="application/json")

    def _authenticated(self, request: Request) -> tuple[str, Hub]:
        participant = request.path_params["participant"]
        space = self._gateway.lobby.authenticate(participant, _asked(request))
        return participant, self._gateway.hubs[space.settings.space_id]


def _asked(request: Request) -> JoinRequest:
    return credentials(str(request.url), request.headers.get("authorization"))


async def _body(request: Request, hub: Hub) -> bytes:
    """The body, unless it is larger than any message may be: then it is not read to its end."""
    most = hub.space.settings.limits.message_bytes
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise MessageTooLarge(f"a message may have {most} bytes")
    return b"".join(parts)


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return refused(error)


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    refusal = NotFound(f"there is no {request.method} {request.url.path} here")
    return json_response(refusal.payload(), status)
