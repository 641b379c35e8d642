"""`python -m mew.bridge --url ws://localhost:8080 -- python server.py`

Reads arguments and environment, and runs the bridge. Secrets come from the environment, never from an argument.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mew.bridge.bridge import run
from mew.bridge.settings import BridgeSettings, BridgeTimeouts, HttpServer, InvalidSettings, StdioServer
from mew.errors import MewError

FAILED = 1
LEVELS = ("debug", "info", "warning", "error")


def parser() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    patience = BridgeTimeouts()
    said = argparse.ArgumentParser(
        prog="python -m mew.bridge", description="Let an MCP server join a space as a participant."
    )
    said.add_argument("--url", required=True, help="the gateway, such as ws://localhost:8080")
    said.add_argument("--space", help="the space; without it, the gateway's first")
    said.add_argument("--token-env", default="MEW_TOKEN", metavar="NAME", help="the variable that holds our token")
    said.add_argument("--http", metavar="URL", help="an MCP server that speaks streamable HTTP")
    said.add_argument(
        "--header-env",
        action="append",
        default=[],
        metavar="HEADER=NAME",
        help="a header, from this variable",
    )
    said.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the server's environment")
    said.add_argument("--cwd", type=Path, help="the folder in which the server runs")
    said.add_argument("--init-timeout", type=float, default=patience.initialize, metavar="SECONDS")
    said.add_argument("--call-timeout", type=float, default=patience.call, metavar="SECONDS")
    said.add_argument("--max-restarts", type=int, default=patience.restarts, metavar="COUNT")
    said.add_argument("--restart-window", type=float, default=patience.window, metavar="SECONDS")
    said.add_argument("--log-level", choices=LEVELS, default="info", help="how much to tell on standard error")
    said.add_argument("command", nargs="*", help="after --: the MCP server's program and its arguments")
    return said


def read_settings(said: argparse.Namespace, environ: Mapping[str, str]) -> BridgeSettings:
    """The settings, or `InvalidSettings` with a sentence that says what is missing."""
    if bool(said.http) == bool(said.command):
        raise InvalidSettings("give either --http URL, or -- and the command of an MCP server")
    server: StdioServer | HttpServer
    if said.http:
        names = _pairs(said.header_env, "--header-env")
        server = HttpServer(url=said.http, headers={each: _variable(environ, name) for each, name in names.items()})
    else:
        server = StdioServer(command=tuple(said.command), env=_pairs(said.env, "--env"), cwd=said.cwd)
    return BridgeSettings(
        server=server,
        url=said.url,
        space=said.space,
        token=_variable(environ, said.token_env),
        patience=BridgeTimeouts(
            initialize=said.init_timeout,
            call=said.call_timeout,
            restarts=said.max_restarts,
            window=said.restart_window,
        ),
    )


def _pairs(said: Sequence[str], option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in said]
    if not all(name and sign for name, sign, _ in pairs):
        raise InvalidSettings(f"{option} takes NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _variable(environ: Mapping[str, str], name: str) -> str:
    if not (value := environ.get(name)):
        raise InvalidSettings(f"the environment has no {name}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments, or the process's own; the exit code."""
    said = parser().parse_args(arguments)
    logging.basicConfig(
        level=said.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(run(read_settings(said, os.environ)))
    except (MewError, ValueError) as error:
        print(f"mew bridge: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
