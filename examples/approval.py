"""A tool with consequences, an agent that may only propose its use, and a human who decides.

    python examples/approval.py tools    offers two tools on a folder in memory: `list_files` and `delete_file`
    python examples/approval.py agent    lists the files, and proposes to delete one
    python examples/approval.py human    decides on the terminal; `--yes` and `--no` answer in advance

The programs contain no rule about this: the capabilities in space.yaml decide. The agent calls both tools in the same
way; if it may not send the request, the SDK sends a proposal. An approval is the human's own request, so the journal
shows who approved it.
"""

import asyncio
import sys
from argparse import Namespace

import mew
from mew.client import Rejected, current_request
from roles import Arguments

TOOLS = "file-tools"
DECISION_SECONDS = 3600.0
"""Time in seconds that the human has, and that the other roles wait."""
files = {"cat.png": 52_311, "dog.png": 48_004, "old.log": 9_120_336}
shed = mew.Participant(instructions="A folder in memory. A deleted file cannot be restored.")


@shed.tool
def list_files() -> dict[str, int]:
    """All files with their sizes."""
    return files


@shed.tool
def delete_file(name: str) -> str:
    """Delete a file."""
    size = files.pop(name)
    print(f"{name} is deleted, requested by {current_request().sender}")
    return f"{size} bytes are free again"


async def offer(options: Namespace) -> None:
    """The tools answer every request that the gateway delivers."""
    async with mew.connect() as space:
        serving = asyncio.create_task(shed.run(space), name="tools")
        print(f"{len(files)} files exist")
        await space.wait_until(lambda view: "cleaner" in view.participants)
        await space.wait_until(lambda view: "cleaner" not in view.participants)
        serving.cancel()
        print(f"{len(files)} files are left")


async def tidy(options: Namespace) -> None:
    """The agent calls both tools; the second call becomes a proposal."""
    async with mew.connect() as space:
        await space.wait_until(lambda view: view.participants.keys() >= {TOOLS, "human"})
        listed = await space.call_tool(TOOLS, "list_files")
        sizes: dict[str, int] = listed.structured or {}
        largest = max(sizes, key=lambda name: sizes[name])
        print(f"the largest of {len(sizes)} files is {largest}: the agent proposes to delete it")
        try:
            deleted = await space.call_tool(TOOLS, "delete_file", {"name": largest}, timeout=None)
        except Rejected as rejected:
            print(f"{rejected.by} rejected it: {rejected.reason}")
        else:
            print(f"{deleted.by} approved it{', but it failed' if deleted.is_error else ''}: {deleted.text}")


async def decide(options: Namespace) -> None:
    """The human sees each proposal and decides."""
    async with mew.connect() as space:
        print("waiting for a proposal")
        async for proposal in space.proposals():
            arguments = proposal.params.get("arguments", {})
            description = f"{proposal.by} proposes {proposal.tool} of {', '.join(proposal.to)}: {arguments}"
            print(ascii(description)[1:-1])  # hidden characters as numbers, so that no name looks like another
            decision = options.answer or await read_line("Approve? [y/n] ")
            if decision.lower().startswith("y"):
                answer = await proposal.fulfil()
                print("the tool failed" if answer.result.get("isError") else "approved and done")
            else:
                await proposal.reject("the file may still be needed")
                print("rejected")
            return


async def read_line(prompt: str) -> str:
    """Read a line from the terminal. The event loop continues, so the connection stays open."""
    print(prompt, end="", flush=True)
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
    arguments = Arguments(ROLES, __doc__, DECISION_SECONDS)
    either = arguments.add_mutually_exclusive_group()
    either.add_argument("--yes", dest="answer", action="store_const", const="yes", help="approve the proposal")
    either.add_argument("--no", dest="answer", action="store_const", const="no", help="reject the proposal")
    options = arguments.parse_args()
    if options.role == "human" and not options.answer and not sys.stdin.isatty():
        arguments.error("the human cannot answer without a terminal: give --yes or --no")
    arguments.play()
