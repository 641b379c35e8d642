"""The calculator: arithmetic as MCP tools.

It returns results and error messages. `arithmetic` computes them.
"""

from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec

from mew.agents import arithmetic
from mew.agents.arithmetic import BadExpression, Number
from mew.client import Participant, Space, mcp
from mew.client.mcp.server import McpService

Given: TypeAlias = int | float
"""A JSON number."""
Expression = Annotated[str, msgspec.Meta(description="such as (2 + 3) * 4 / 7, 2 ** 10, sqrt(2), 5!")]


async def calculator(space: Space) -> None:
    """Answer calculation requests until the space ends or the agent is shut down."""
    participant = tools()
    await McpService(space, participant, controls=participant).run()


def tools() -> Participant:
    """Return a participant with the calculator's tools."""
    participant = Participant(instructions="Exact arithmetic: ask with an expression, or with two numbers.")

    @participant.tool
    def add(a: Given, b: Given) -> mcp.CallResult:
        """The sum of two numbers."""
        return _told(lambda: arithmetic.add(arithmetic.exact(a), arithmetic.exact(b)))

    @participant.tool
    def multiply(a: Given, b: Given) -> mcp.CallResult:
        """The product of two numbers."""
        return _told(lambda: arithmetic.multiply(arithmetic.exact(a), arithmetic.exact(b)))

    @participant.tool
    def evaluate(expression: Expression) -> mcp.CallResult:
        """The value of an expression."""
        return _told(lambda: arithmetic.evaluate(expression))

    return participant


def _told(work: Callable[[], Number]) -> mcp.CallResult:
    """Return the number as text, or the error message as an MCP tool error."""
    try:
        text, failed = arithmetic.text_of(work()), False
    except BadExpression as error:
        text, failed = str(error), True
    return mcp.CallResult(content=[mcp.encode_value(mcp.TextContent(text=text))], is_error=failed)
