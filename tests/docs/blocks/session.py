"""The Python process of one page. It runs one block at a time and keeps names and event loop between blocks.

Imports none of our code. A request is a line of JSON on standard input; the answer is a line on the descriptor in the
first argument. The output of the code goes to standard output and standard error.
"""

import ast
import asyncio
import inspect
import json
import logging
import os
import sys
import traceback
from typing import Any


class Expecting(ast.NodeTransformer):
    """Lets a `try` fail if its body raises nothing: a page shows the error. Functions are unchanged."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Return the function unchanged."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Return the function unchanged."""
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Add a failure after the last line of the body."""
        if node.handlers and not node.orelse:
            node.orelse = ast.parse('raise AssertionError("nothing was raised here that could be caught")').body
            for child in ast.walk(node.orelse[0]):
                ast.copy_location(child, node)
        return node


def run(source: str, page: str, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run a block as if it were typed into `python -m asyncio`, its lines numbered as in the page."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, page, "exec", flags=flags | ast.PyCF_ONLY_AST)
    code = compile(Expecting().visit(tree), page, "exec", flags=flags)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)


def explained(error: BaseException) -> str:
    """The traceback without our own lines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, asyncio.runners.__file__):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def main(answers: int) -> None:
    """Answer requests until there are no more."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[0] = ""
    logging.getLogger("mew").addHandler(logging.NullHandler())  # a warning that a page provokes is no error
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for line in requests:
            request = json.loads(line)
            failed = None
            try:
                run("\n" * request["line"] + request["source"], request["page"], names, runner)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                failed = explained(error)
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(answers, json.dumps({"failed": failed}).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
