"""Who plays what, and when they come on: `examples/` as a score.

Only values. What is said and done is written in the examples.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tools.demo.stage import ROOT

PICTURE: Final = ROOT / "docs" / "images" / "inspector-space.png"
"""What the file transfer carries."""
RECEIVED: Final = "received"
AGAIN: Final = "spectator again"
ANYTHING: Final = ""
"""Whatever it says: it is there."""
WORKERS: Final = ("worker-1", "worker-2", "worker-3")


class Cue(msgspec.Struct, frozen=True):
    """When a part begins: another one of its story has said something, or is over."""

    part: str
    words: str | None = None
    """None: when it is over."""


class Part(msgspec.Struct, frozen=True):
    """One process: a role of an example, in the name of a participant."""

    participant: str
    program: str
    words: tuple[str, ...]
    cues: tuple[Cue, ...] = ()
    """It begins when all of them were given."""
    name: str = ""

    @property
    def called(self) -> str:
        """What it is called in its story: the participant, where that plays once only."""
        return self.name or self.participant


class Story(msgspec.Struct, frozen=True):
    """Parts that play together."""

    name: str
    title: str
    parts: tuple[Part, ...]


class Pace(msgspec.Struct, frozen=True):
    """How long it all takes."""

    seconds: float = 6.0
    """For each who steers the cat."""
    frames: int = 120
    """That a spectator stays for."""
    malformed: int = 5
    lose: int = 20
    tokens: int = 30
    """Per second, also of words and thoughts."""
    words: int = 8
    thoughts: int = 2
    jobs: int = 12


QUICK: Final = Pace(seconds=1.5, frames=20, tokens=200, words=60, thoughts=20, jobs=6)


def stories(pace: Pace, folder: Path) -> tuple[Story, ...]:
    """Everything that the demo plays, in the order in which it begins."""
    return (
        Story("movement", "A cat changes hands", tuple(_movement(pace))),
        Story("tokens", "A model answers, token by token", tuple(_tokens(pace))),
        Story("workers", "Three workers, one stream of results", tuple(_workers(pace))),
        Story("approval", "A tool that a human has to allow", tuple(_approval())),
        Story("transcript", "Speech becomes text", tuple(_transcript(pace))),
        Story("reasoning", "An agent thinks aloud", tuple(_reasoning(pace))),
        Story("transfer", "A file, piece by piece", tuple(_transfer(folder))),
        Story("slow", "A reader that is too slow", tuple(_slow())),
    )


def _movement(pace: Pace) -> Iterator[Part]:
    seconds = ("--seconds", f"{pace.seconds:g}")
    stay = ("spectator", "--frames", str(pace.frames))
    yield Part("character-server", "movement.py", ("server",))
    yield Part("player1", "movement.py", ("player1", *seconds, "--malformed", str(pace.malformed)))
    yield Part("player2", "movement.py", ("player2",))
    yield Part("spectator", "movement.py", stay, (Cue("player2"),))
    yield Part("spectator", "movement.py", stay, (Cue("spectator"), Cue("player1")), AGAIN)
    # There is a cat to look at until the agent is done: it waits until the second visit has begun.
    steers = ("ai-agent", *seconds, "--lose", str(pace.lose))
    yield Part("ai-agent", "movement.py", steers, (Cue(AGAIN, ANYTHING),))


def _tokens(pace: Pace) -> Iterator[Part]:
    yield Part("assistant", "tokens.py", ("assistant", "--rate", str(pace.tokens)))
    yield Part("reader", "tokens.py", ("reader",))


def _workers(pace: Pace) -> Iterator[Part]:
    yield Part("boss", "workers.py", ("boss", "--jobs", str(pace.jobs)))
    for worker in WORKERS:
        yield Part(worker, "workers.py", (worker,))


def _approval() -> Iterator[Part]:
    yield Part("file-tools", "approval.py", ("tools",))
    yield Part("human", "approval.py", ("human", "--yes"))
    yield Part("cleaner", "approval.py", ("agent",), (Cue("file-tools", ANYTHING), Cue("human", ANYTHING)))


def _transcript(pace: Pace) -> Iterator[Part]:
    yield Part("speaker", "transcript.py", ("speaker", "--rate", str(pace.words)))
    yield Part("listener", "transcript.py", ("reader",))


def _reasoning(pace: Pace) -> Iterator[Part]:
    yield Part("thinker", "reasoning.py", ("agent", "--rate", str(pace.thoughts)))
    yield Part("follower", "reasoning.py", ("reader",))


def _transfer(folder: Path) -> Iterator[Part]:
    yield Part("receiver", "file_transfer.py", ("receiver", str(folder / RECEIVED)))
    yield Part("sender", "file_transfer.py", ("sender", str(PICTURE)))


def _slow() -> Iterator[Part]:
    yield Part("camera", "slow_reader.py", ("camera",))
    yield Part("slow-reader", "slow_reader.py", ("reader", "--seconds", "5"))
