"""A gateway with one space, whose time the test sets: the common part of the transports of a gateway.

Each transport decides how a client connects, and how it waits for results.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from mew.config.models import GatewayConfig, LoggingConfig, ParticipantConfig, SpaceConfig, Timeouts
from mew.gateway.gateway import Gateway
from mew.gateway.hub import Hub
from mew.journal import JournalSettings
from mew.protocol import AttachOutputLog, Command, Record, ReportLoss, SpaceCore, SpaceState, Tick
from mew.protocol.timestamps import SECOND
from mew.testing import NOON, Client, MemoryTokens, settings
from tests.requirements.transports.message_reader import LogReader
from tests.support.record_collector import Collected

T = TypeVar("T")
QUICK = Timeouts(failed_join_seconds=0)
"""A failed join is answered in the next iteration of the event loop, so a test need not wait."""


class GatewaySpace:
    """A space behind a gateway, with the interface of `MemorySpace`."""

    gateway: Gateway
    logging = LoggingConfig()

    def __init__(self, *, now: int = NOON, **configuration: Any) -> None:
        self.settings = settings(**configuration)
        self.tokens = MemoryTokens()
        self.now = now
        self._is_open = True
        self._records: list[Record] = []
        self._folder = TemporaryDirectory()
        self._logs: dict[str, LogReader] = {}
        for participant in self.settings.participants:
            self.tokens.issue(self.settings.space_id, participant)

    # Different at each transport

    def act(self, work: Callable[[], T]) -> T:
        """Run this on the gateway's event loop, and return its result after everything that follows from it."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the gateway, and raise an exception that no task received."""
        raise NotImplementedError

    def connect(self, *, token: str | None = None, space: str | None = None) -> Client:
        """Open a connection. With a token, it joins immediately."""
        raise NotImplementedError

    def settle(self) -> None:
        """Run the waiting actions, at a transport that does not wait for each of them."""

    # The same at all transports

    def new_gateway(self) -> Gateway:
        """A gateway before its start."""
        directory = Path(self._folder.name)
        participants = {name: ParticipantConfig(output_log=Path(f"{name}.log")) for name in self.settings.output_logs}
        space = SpaceConfig(
            settings=self.settings,
            directory=directory,
            file=directory / "space.yaml",
            name="under test",
            participants=participants,
            logging=self.logging,
            journal=JournalSettings(enabled=False),
        )
        self.gateway = Gateway(
            GatewayConfig(port=0, spaces=(space,), timeouts=QUICK),
            self.tokens,
            clock=lambda: self.now,
            recorder=Collected(self._records),
        )
        return self.gateway

    def close(self) -> None:
        """Stop the gateway once, and remove its folder."""
        if self._is_open:
            self._is_open = False
            self.stop()
            self._folder.cleanup()

    @property
    def hub(self) -> Hub:
        return self.gateway.first_hub

    @property
    def space(self) -> SpaceCore:
        return self.hub.space

    @property
    def state(self) -> SpaceState:
        self.settle()
        return self.space.state

    @property
    def records(self) -> list[Record]:
        """The records that a journal would receive."""
        self.settle()
        return self._records

    @property
    def directory(self) -> Path:
        """The space directory with everything written so far."""
        self.settle()
        return Path(self._folder.name)

    def token(self, participant: str) -> str:
        return self.tokens.issue(self.settings.space_id, participant)

    def join(self, participant: str) -> Client:
        return self.connect(token=self.token(participant))

    def observe(self, name: str = "viewer") -> Client:
        return self.connect(token=self.tokens.issue(self.settings.space_id, name, observer=True))

    def run(self, command: Command) -> None:
        self.act(lambda: self.hub.run(command))

    def lose(self, participant: str, stream_id: str, first: int, last: int) -> None:
        dropped = last - first + 1
        self.run(ReportLoss(participant=participant, stream_id=stream_id, first=first, last=last, dropped=dropped))

    def advance(self, seconds: float) -> None:
        def pass_time() -> None:
            self.now += round(seconds * SECOND)
            self.hub.run(Tick())

        self.act(pass_time)

    def log(self, participant: str) -> Client:
        self.run(AttachOutputLog(participant))
        if participant not in self._logs:
            self._logs[participant] = LogReader(self.directory / f"{participant}.log", self.settle)
        return self._logs[participant]
