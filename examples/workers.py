"""A pool of workers that write their results into one stream.

    python examples/workers.py boss        opens the stream, grants write access, distributes jobs, and sums up
    python examples/workers.py worker-1    does its jobs; so do worker-2 and worker-3

A job is to count the primes between n thousand and n + 1 thousand. Each worker gets its next job when its last result
has arrived. A result is a `stream/data`: it has the id of its writer, and when `send_data` returns, the gateway has
accepted it.
"""

from argparse import Namespace
from collections import Counter

import msgspec

import mew
from roles import Arguments

WORKERS = ("worker-1", "worker-2", "worker-3")


class Result(msgspec.Struct):
    """The number of primes in one thousand numbers."""

    thousand: int
    primes: int


async def lead(options: Namespace) -> None:
    """The boss owns the stream and decides who may write to it."""
    async with mew.connect() as space:
        stream = await space.announce_stream([Result], desired_id="results", on_owner_disconnect="close")
        await stream.start()
        results, jobs = stream.frames(Result), list(range(options.jobs))

        async def give(worker: str) -> None:
            if jobs:
                await space.send("job/assign", {"thousand": jobs.pop(0), "stream_id": stream.stream_id}, to=worker)
            else:
                await space.send("job/over", to=worker)

        print(f"{stream.stream_id} is open; waiting for {len(WORKERS)} workers")
        await space.wait_until(lambda view: view.participants.keys() >= set(WORKERS))
        for worker in WORKERS:
            await stream.grant(worker, reason="a worker")
            await give(worker)
        done, primes = Counter[str](), 0
        for _ in range(options.jobs):
            result = await anext(results)
            assert result.sender is not None
            assert result.value is not None
            done[result.sender] += 1
            primes += result.value.primes
            await give(result.sender)
        await stream.complete()
        print(f"{options.jobs} results, {', '.join(f'{done[worker]} by {worker}' for worker in WORKERS)}")
        print(f"there are {primes} primes below {options.jobs * 1000}")


async def work(options: Namespace) -> None:
    """A worker may write to this stream only, until the boss ends it."""
    async with mew.connect() as space:
        count = 0
        async for job in space.envelopes("job/*", to=space.participant_id):
            if job.kind == "job/over":
                break
            thousand = job.payload["thousand"]
            result = Result(thousand, sum(map(is_prime, range(thousand * 1000, thousand * 1000 + 1000))))
            await space.stream(job.payload["stream_id"]).send_data(result)
            print(f"{space.participant_id}: {result.primes} primes from {thousand * 1000} to {thousand * 1000 + 999}")
            count += 1
        print(f"{space.participant_id} did {count} jobs")


def is_prime(number: int) -> bool:
    """Whether the number is a prime."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


ROLES = {"boss": ("boss", lead), **{worker: (worker, work) for worker in WORKERS}}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--jobs", type=int, default=12, help="number of jobs")
    arguments.play()
