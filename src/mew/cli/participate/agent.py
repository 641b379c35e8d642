"""`mew agent start`: runs a built-in agent, or an agent from a file, until it is stopped.

This module does not depend on what an agent does.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from mew.cli.common.target import DIRECTORY, LogLevel, TargetOptions, log_to_standard_error, participant_target

app = App(name="agent", help="Run an agent: echo, calculator, fulfiller, or your own.", help_epilogue="")


_EXAMPLES: Final = """\
Examples:

  mew agent start --type echo           as the participant echo or echo-agent
  mew agent start --type ./weather.py   your own agent, as the participant weather
  MEW_TOKEN=… mew agent start -t calculator -g ws://localhost:8080 -s lab"""


@app.command(name="start", help_epilogue=_EXAMPLES)
def start_agent_command(
    *,
    kind: Annotated[str, Parameter(name=("--type", "-t"))],
    options: TargetOptions = DIRECTORY,
    token: str | None = None,
    participant: Annotated[str | None, Parameter(name=("--participant", "--participant-id"), alias="-p")] = None,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Run an agent in a space until it is interrupted or shut down.

    `echo` answers every chat with the same text. `calculator` offers the tools add, multiply and evaluate. `fulfiller`
    carries out the proposals of other participants. Your own agent is a Python file with `async def agent(space)`,
    which receives the `Space` of the SDK. A broken connection is reconnected.

    Parameters
    ----------
    kind
        The agent: echo, calculator, fulfiller, or the path of a Python file.
    token
        The token. Prefer MEW_TOKEN or a token file: all users of this machine can read the arguments of a process.
    participant
        The participant, if no token is given; by default MEW_PARTICIPANT_ID.
    log_level
        The log level for standard error.
    """
    from mew.agents import AgentSettings, load_agent, run_agent

    log_to_standard_error(log_level)
    agent, name = load_agent(kind), Path(kind).stem
    at = participant_target(options, participant, token=token, usual=(name, f"{name}-agent"))
    settings = AgentSettings(url=at.url, space=at.space, token=at.token, participant=at.participant)
    asyncio.run(run_agent(agent, settings))
    return 0
