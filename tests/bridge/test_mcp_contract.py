"""What the bridge uses of undocumented parts of the `mcp` package is the same in the installed version.

If a test here fails after an update, compare the changes of the library with `bridge/mcp_session.py` first. Then set
the version here.
"""

from importlib.metadata import version

import mcp.client.streamable_http
import mcp.types
from mcp.shared._httpx_utils import create_mcp_http_client

from mew.bridge.mcp_session import LOST, SESSION_HEADER

TRIED = "2.3"


def test_the_bridge_was_tried_with_the_installed_version() -> None:
    assert version("mcp").rpartition(".")[0] == TRIED


def test_a_request_within_a_session_has_the_header() -> None:
    assert mcp.client.streamable_http.MCP_SESSION_ID == SESSION_HEADER


def test_a_call_without_an_answer_has_the_code_of_a_lost_connection() -> None:
    assert mcp.types.CONNECTION_CLOSED == LOST == -32000


def test_the_http_client_calls_hooks_for_each_response() -> None:
    assert create_mcp_http_client().event_hooks == {"request": [], "response": []}
