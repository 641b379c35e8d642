"""The plan of a run, from the environment: scenarios, servers, number of rounds and their length."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from bench._gateway import machine
from bench._gateway.clients import Clients, seated
from bench._gateway.servers import NAMES, Unavailable, Wishes
from bench._gateway.table import Table


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a run."""

    servers: tuple[str, ...] = NAMES
    scenarios: tuple[str, ...] = ()
    """The selected scenarios; empty for all."""
    rounds: int = 3
    seconds: float = 1.6
    """The length of one measurement."""

    def with_servers(self, *names: str) -> "Plan":
        """Return the same plan for these servers only."""
        return msgspec.structs.replace(self, servers=tuple(name for name in self.servers if name in names))


def read_plan() -> Plan:
    """Return the plan from `MEW_BENCH`, `MEW_BENCH_SERVERS`, `MEW_BENCH_ROUNDS` and `MEW_BENCH_QUICK`."""
    quick = os.environ.get("MEW_BENCH_QUICK", "") not in ("", "0")
    servers = _words("MEW_BENCH_SERVERS") or NAMES
    unknown = [name for name in servers if name not in NAMES]
    if unknown:
        raise SystemExit(f"bench: no server {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    return Plan(
        servers=tuple(name for name in NAMES if name in servers),
        scenarios=_words("MEW_BENCH"),
        rounds=int(os.environ.get("MEW_BENCH_ROUNDS", "") or (1 if quick else 3)),
        seconds=1.0 if quick else 1.6,
    )


def _words(variable: str) -> tuple[str, ...]:
    return tuple(os.environ.get(variable, "").replace(",", " ").split())


@contextmanager
def all_seated(plan: Plan, table: Table, count: int, writers: int, wishes: Wishes) -> Iterator[list[Clients]]:
    """Start every available server with its clients. For the others, a note in the table has the reason."""
    with ExitStack() as stack:
        servers = []
        for name in plan.servers:
            machine.say(f"{name}: starting, {count} clients")
            try:
                servers.append(stack.enter_context(seated(name, count, writers, wishes)))
            except Unavailable as reason:
                table.note(f"not measured – {reason}")
        yield servers
