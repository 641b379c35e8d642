"""Cost and speed of the gateway, compared with nats-server, Node's `ws` and Bun, in interleaved rounds.

`MEW_BENCH=fanout,chat` runs these scenarios only, `MEW_BENCH_SERVERS=ours,nats` these servers only,
`MEW_BENCH_ROUNDS=5` so many rounds, and `MEW_BENCH_QUICK=1` one short one. `MEW_BENCH_PATIENCE=60` has a measurement
that others on the machine disturb wait so long for a calm moment. `MEW_BENCH_BEFORE=/path/to/checkout` adds the server
`before`: the gateway of that checkout, beside ours in the same rounds. Servers run on one CPU, the load on another.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

from bench._gateway import machine, servers
from bench._gateway.chat import chat
from bench._gateway.fanout import fanout, thousand
from bench._gateway.journalling import journalling
from bench._gateway.memory import memory
from bench._gateway.mesh import mesh
from bench._gateway.plan import Plan, read_plan
from bench._gateway.stall import stall
from bench._gateway.storm import storm
from bench._gateway.strangers import strangers
from bench._gateway.table import Table

SCENARIOS: Final[dict[str, Callable[[Plan], Table]]] = {
    "fanout": fanout,
    "mesh": mesh,
    "thousand": thousand,
    "memory": memory,
    "chat": chat,
    "stall": stall,
    "storm": storm,
    "journal": journalling,
    "strangers": strangers,
}


def main() -> int:
    """Measure everything, then print the tables."""
    plan = read_plan()
    unknown = [name for name in plan.scenarios if name not in SCENARIOS]
    if unknown:
        print(f"bench: no scenario {', '.join(unknown)}; there are: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    with machine.alone():
        return _measure(plan)


def _measure(plan: Plan) -> int:
    machine.prepare()
    machine.end_on_signal()
    started, watch = time.monotonic(), machine.Watch()
    tables: list[Table] = []
    failed: list[str] = []
    for name in plan.scenarios or tuple(SCENARIOS):
        machine.say(f"── {name}, {time.monotonic() - started:.0f} s")
        try:
            tables.append(SCENARIOS[name](plan))
        except (RuntimeError, OSError) as error:  # the results of the other scenarios are still useful
            failed.append(f"{name}: {type(error).__name__}: {error}")
            machine.say(f"failed: {failed[-1]}")
    print(machine.description())
    print(f"servers on CPU {machine.SERVER_CPU}, load on CPU {machine.LOAD_CPU}; {servers.versions()};", end=" ")
    print(f"medians of {plan.rounds} interleaved rounds unless a note says otherwise;", end=" ")
    print(f"{time.monotonic() - started:.0f} s in all;", end=" ")
    print(f"other programs used {watch.others():.0%} of the machine during the run")
    for table in tables:
        print(table)
    for failure in failed:
        print(f"\nfailed – {failure}")
    return len(failed)
