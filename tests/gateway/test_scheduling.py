"""A participant that has used up its share of a turn waits for the next; others do not wait; the order stays."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from mew.gateway.gateway import GatewayOptions
from mew.gateway.scheduling import ROUNDS, SHARE_SECONDS, Turns
from tests.gateway.raw import BINARY, TEXT, Raw, frame, joined, running, upgrade


def step_of(done: list[str], name: str, times: int, spend: Callable[[], None]) -> Callable[[], bool]:
    left = [times]

    def step() -> bool:
        done.append(name)
        left[0] -= 1
        spend()
        return left[0] > 0

    return step


def test_each_participant_has_its_share_and_it_ends_with_the_turn() -> None:
    async def spend() -> list[bool]:
        shared = Turns()
        shared.spend("alice", SHARE_SECONDS / 2)
        is_over = [shared.is_over("alice")]
        shared.spend("alice", SHARE_SECONDS / 2)
        is_over += [shared.is_over("alice"), shared.is_over("bob")]
        await asyncio.sleep(0)
        return [*is_over, shared.is_over("alice")]

    assert asyncio.run(spend()) == [False, True, False, False]


def test_the_time_of_the_work_is_measured() -> None:
    async def spend() -> bool:
        now = iter((5.0, 6.0))
        shared = Turns(lambda: next(now))
        with shared.spending("alice"):
            pass
        return shared.is_over("alice")

    assert asyncio.run(spend())


def test_each_participant_uses_its_share_and_the_loop_iterates_between_turns() -> None:
    async def wait() -> list[list[str]]:
        shared, done = Turns(lambda: 0.0), list[str]()

        def half(name: str) -> Callable[[], None]:
            return lambda: shared.spend(name, SHARE_SECONDS / 2)

        for name in ("alice", "bob"):
            shared.wait(name, step_of(done, name, 3, half(name)))
        progress = []
        for _ in range(3 * ROUNDS):
            progress.append(list(done))
            await asyncio.sleep(0)
        return progress

    progress = asyncio.run(wait())
    first, second = ["alice", "alice", "bob", "bob"], ["alice", "alice", "bob", "bob", "alice", "bob"]
    assert [names for names in progress if names not in ([], first, second)] == []
    assert progress.count(first) >= ROUNDS
    assert progress[-1] == second


def test_requests_of_one_participant_run_one_per_turn_and_those_of_others_immediately() -> None:
    async def ask() -> list[str]:
        shared, done = Turns(lambda: 0.0), list[str]()

        async def request(participant: str) -> None:
            shared.spend("alice", SHARE_SECONDS)
            await shared.share(participant)
            done.append(participant)

        tasks = [asyncio.create_task(request(participant)) for participant in ("alice", "alice", "bob")]
        await asyncio.sleep(0)
        tasks[0].cancel()  # its peer has disconnected
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert asyncio.run(ask()) == ["bob", "alice"]


ONE_MESSAGE_PER_TURN = GatewayOptions(share_seconds=1e-9)
"""A share ends with the first message."""


def test_waiting_messages_and_frames_keep_their_order(tmp_path: Path) -> None:
    with running(tmp_path, work=ONE_MESSAGE_PER_TURN) as gateway, closing(joined(gateway)) as alice:
        prefix = alice.open_stream()
        sent = []
        for number in range(50):
            chat = frame(TEXT, b'{"kind":"chat","payload":{"text":"%d"}}' % number)
            sent += [chat, frame(BINARY, prefix + b"%d" % number)]
        alice.send(*sent)
        received = [alice.frame() for _ in range(100)]
        assert all(b'"text":"%d"' % number in received[2 * number].payload for number in range(50))
        assert [message.payload for message in received[1::2]] == [prefix + b"%d" % number for number in range(50)]


def test_messages_sent_before_a_disconnect_are_handled_before_the_sender_leaves(tmp_path: Path) -> None:
    with running(tmp_path, work=ONE_MESSAGE_PER_TURN) as gateway, closing(joined(gateway, "bob")) as bob:
        alice = Raw(gateway.port)
        alice.send(upgrade(Authorization=f"Bearer {gateway.token('alice')}"))
        assert alice.answer().status == 101
        alice.envelope("system/welcome")
        alice.send(*(frame(TEXT, b'{"kind":"chat","payload":{"text":"%d"}}' % number) for number in range(20)))
        alice.close()
        received = []
        while True:
            envelope = bob.frame()
            received.append(envelope.payload)
            if b'"leave"' in envelope.payload:
                break
        chats = [payload for payload in received if b'"chat"' in payload]
        assert [b'"text":"%d"' % number in payload for number, payload in enumerate(chats)] == [True] * 20
