"""`mew agent start`: one of the small agents, or one of your own, until told to stop.

Must not know what an agent does.
"""

from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from mew.cli.common.target import HERE, LogLevel, Where, log_to_standard_error, seat, taking_part

app = App(name="agent", help="Run a small agent that takes part in a space.", help_epilogue="")


_EXAMPLES: Final = """\
Examples:

  mew agent start --type echo           as echo or echo-agent of the space here
  mew agent start --type ./weather.py   the agent in a file, as weather
  MEW_TOKEN=… mew agent start -t calculator -g ws://localhost:8080 -s lab"""


@app.command(help_epilogue=_EXAMPLES)
def start(
    *,
    kind: Annotated[str, Parameter(name=("--type", "-t"))],
    where: Where = HERE,
    token: str | None = None,
    participant: Annotated[str | None, Parameter(name=("--participant", "--participant-id"), alias="-p")] = None,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Be an echo, a calculator, a fulfiller of proposals or an agent of your own, until interrupted or shut down.

    An echo answers every chat with the same words, a calculator offers the tools add, multiply and evaluate, a
    fulfiller does whatever others propose. One of your own is a Python file with an `async def agent(space)`, which
    gets the space as the SDK has it. A connection that breaks is made again.

    Parameters
    ----------
    kind
        Which agent: echo, calculator, fulfiller, or a Python file.
    token
        Its token. Everybody on this machine can read arguments: better leave it in MEW_TOKEN, or in the space's files.
    participant
        Which participant of the space it is, where its token does not come along; else MEW_PARTICIPANT_ID.
    log_level
        How much to tell on standard error.
    """
    from mew.agents import AgentSettings, find, run

    log_to_standard_error(log_level)
    agent, name = find(kind), Path(kind).stem
    at = seat(where, token, participant, (name, f"{name}-agent"))
    settings = AgentSettings(url=at.url, space=at.space, token=at.token, participant=at.participant)
    taking_part(run(agent, settings))
    return 0
