"""A tool that matters, an agent that may only propose to use it, and a human who decides.

    python examples/approval.py tools    offers two tools on a toy folder: `list_files` and `delete_file`
    python examples/approval.py agent    looks by itself, and proposes to delete
    python examples/approval.py human    is asked on the terminal; `--yes` and `--no` answer beforehand

Nobody programmed this into the tools or the agent: it is their capabilities in space.yaml. The agent calls both tools
in the same way; where it may not ask, the SDK proposes. An approval is the human's own request, so it is in the journal
who had it done.
"""

import asyncio
import sys
from argparse import Namespace

import mew
from mew.client import Rejected, current_request
from roles import Arguments

TOOLS = "file-tools"
THINKING = 3600.0
"""Seconds that a human may take, and the others wait."""
files = {"cat.png": 52_311, "dog.png": 48_004, "old.log": 9_120_336}
shed = mew.Participant(instructions="A folder in memory. What is deleted is gone.")


@shed.tool
def list_files() -> dict[str, int]:
    """The files that there are, and their sizes."""
    return files


@shed.tool
def delete_file(name: str) -> str:
    """Delete a file."""
    size = files.pop(name)
    print(f"{name} is deleted, as {current_request().sender} asked")
    return f"{size} bytes are free again"


async def offer(options: Namespace) -> None:
    """The tools: they answer whoever the gateway lets ask."""
    async with mew.connect() as space:
        serving = asyncio.create_task(shed.run(space), name="tools")
        print(f"{len(files)} files are here")
        await space.wait_until(lambda view: "cleaner" in view.participants)
        await space.wait_until(lambda view: "cleaner" not in view.participants)
        serving.cancel()
        print(f"{len(files)} files are left")


async def tidy(options: Namespace) -> None:
    """The agent: looks, has an idea, and is told what came of it."""
    async with mew.connect() as space:
        await space.wait_until(lambda view: view.participants.keys() >= {TOOLS, "human"})
        listed = await space.call_tool(TOOLS, "list_files")
        found: dict[str, int] = listed.structured or {}
        largest = max(found, key=lambda name: found[name])
        print(f"the largest of {len(found)} files is {largest}: the agent proposes to delete it")
        try:
            deleted = await space.call_tool(TOOLS, "delete_file", {"name": largest}, timeout=None)
        except Rejected as rejected:
            print(f"{rejected.by} said no: {rejected.reason}")
        else:
            print(f"{deleted.by} said yes{', but it failed' if deleted.is_error else ''}: {deleted.text}")


async def decide(options: Namespace) -> None:
    """The human: sees what is to be done, before it is."""
    async with mew.connect() as space:
        print("waiting for a proposal")
        async for proposed in space.proposals():
            wanted = proposed.params.get("arguments", {})
            question = f"{proposed.by} wants {', '.join(proposed.to)} to {proposed.tool}: {wanted}"
            print(ascii(question)[1:-1])  # hidden characters as numbers: no name looks like another
            decided = options.answer or await asked("May it? [y/n] ")
            if decided.lower().startswith("y"):
                answer = await proposed.fulfil()
                print("it failed" if answer.result.get("isError") else "done")
            else:
                await proposed.reject("somebody may need it")
                print("it stays")
            return


async def asked(question: str) -> str:
    """What somebody types; the loop goes on meanwhile, so that the gateway does not take us for dead."""
    print(question, end="", flush=True)
    typed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


ROLES = {"tools": (TOOLS, offer), "agent": ("cleaner", tidy), "human": ("human", decide)}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__, THINKING)
    either = arguments.add_mutually_exclusive_group()
    either.add_argument("--yes", dest="answer", action="store_const", const="yes", help="the human allows it")
    either.add_argument("--no", dest="answer", action="store_const", const="no", help="the human does not")
    given = arguments.parse_args()
    if given.role == "human" and not given.answer and not sys.stdin.isatty():
        arguments.error("nobody can be asked without a terminal: give --yes or --no")
    arguments.play()
