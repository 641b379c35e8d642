"""One open proposal over HTTP, with its payload (`GET /spaces/{id}/proposals/{position}`).

The welcome lists open proposals without their payloads, because payloads may be large.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mew.gateway.gateway import Gateway
from mew.gateway.http.exchange import admit, credentials, paid
from mew.protocol import JoinRequest, SpaceCore
from mew.protocol.errors import InvalidRequest, NotFound
from mew.protocol.handlers.proposals import proposal_closed_error
from mew.protocol.proposals import ClosedProposal

PROPOSAL: Final = "/spaces/{id}/proposals/{position}"
POSITION_DIGITS: Final = 18
_HEADERS: Final = {"cache-control": "no-store"}


class ProposalContent:
    """Returns the content of open proposals."""

    def __init__(self, gateway: Gateway) -> None:
        """Serve the spaces of this gateway."""
        self._gateway = gateway

    async def read(self, request: Request) -> Response:
        """Return the proposal whose record has this position. Requires any token of the space."""
        token = credentials("", request.headers.get("authorization")).token
        asked = JoinRequest(space=request.path_params["id"], token=token)
        space = self._gateway.lobby.look_in(asked)
        admit(request)
        given = request.path_params["position"]
        if not (given.isascii() and given.isdigit() and len(given) <= POSITION_DIGITS):
            raise InvalidRequest("the position of a proposal is a whole number")
        async with paid(self._gateway, space, asked) as bill:
            content = self._content(space, int(given))
            bill.size = len(content)
        return Response(content, media_type="application/json", headers=_HEADERS)

    def _content(self, space: SpaceCore, position: int) -> bytes:
        now = self._gateway.hubs[space.settings.space_id].clock()
        found = space.state.proposal_at(position, now)
        if found is None:
            raise NotFound(
                f"there is no open proposal at position {position}, and none was closed within the last hour"
            )
        if isinstance(found, ClosedProposal) or found.expires <= now:
            raise proposal_closed_error(found)
        return found.content()
