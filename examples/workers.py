"""A pool of workers that write their results into one stream.

    python examples/workers.py boss        opens the stream, lends it to the workers, hands out jobs, and adds up
    python examples/workers.py worker-1    does what it is given; so do worker-2 and worker-3

The job is to count the primes between n thousand and n + 1 thousand. Each worker gets its next job when its last result
has come. A result is a `stream/data`: it says who wrote it, and the gateway has taken it when `send_data` returns.
"""

from argparse import Namespace
from collections import Counter

import msgspec

import mew
from roles import Arguments

WORKERS = ("worker-1", "worker-2", "worker-3")


class Result(msgspec.Struct):
    """So many primes are in a thousand."""

    thousand: int
    primes: int


async def lead(options: Namespace) -> None:
    """The boss: the stream is its own, and it alone says who writes."""
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
            await stream.grant(worker, reason="works for us")
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
    """A worker: it may write as long as the boss lets it, and only there."""
    async with mew.connect() as space:
        count = 0
        async for job in space.envelopes("job/*", to=space.participant_id):
            if job.kind == "job/over":
                break
            thousand = job.payload["thousand"]
            found = Result(thousand, sum(map(is_prime, range(thousand * 1000, thousand * 1000 + 1000))))
            await space.stream(job.payload["stream_id"]).send_data(found)
            print(f"{space.participant_id}: {found.primes} primes from {thousand * 1000} on")
            count += 1
        print(f"{space.participant_id} did {count} jobs")


def is_prime(number: int) -> bool:
    """Whether nothing divides it."""
    return number > 1 and all(number % each for each in range(2, int(number**0.5) + 1))


ROLES = {"boss": ("boss", lead), **{worker: (worker, work) for worker in WORKERS}}

if __name__ == "__main__":
    arguments = Arguments(ROLES, __doc__)
    arguments.add_argument("--jobs", type=int, default=12, help="so many jobs the boss has")
    arguments.play()
