"""One gateway: its spaces, counters, clock, shared limits and readiness (`GET /ready`)."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from mew.config.models import GatewayConfig, SpaceConfig, Timeouts
from mew.gateway.connections import (
    MAX_WAITING_CONNECTIONS,
    Connections,
    OpenConnection,
    RefusalLog,
    TrustedProxies,
)
from mew.gateway.fanout.fanout import USUAL_FANOUT, FanoutOptions
from mew.gateway.fanout.sinks import FileSink
from mew.gateway.history_log import CapabilityDecisions, EnvelopeHistory, LineLog
from mew.gateway.hub import Hub, NullRecorder, Outputs, Recorder
from mew.gateway.journaling import Journals
from mew.gateway.scheduling import SHARE_SECONDS, TURN_SECONDS, LoopThrottle
from mew.protocol import Admission, Checkpoint, JoinRequest, ProtocolError, RefuseConnection, SpaceCore, Start, Tokens
from mew.protocol.errors import JournalUnavailable, Unauthenticated
from mew.protocol.interface import Transport

if TYPE_CHECKING:
    from mew.gateway.websocket import WebSocketConnection


NANOSECONDS: Final = 1_000
"""Nanoseconds per microsecond."""


class SteadyClock:
    """A clock that never runs backward: the later of the wall clock and the last time plus the elapsed time."""

    def __init__(self, wall: Callable[[], int] | None = None, monotonic: Callable[[], int] | None = None) -> None:
        """`wall` returns nanoseconds since 1970, `monotonic` nanoseconds since an arbitrary start."""
        self._wall = wall or time.time_ns
        self._monotonic = monotonic or time.monotonic_ns
        self._ahead = self._wall() - self._monotonic()
        """Offset of this clock from the monotonic clock, in nanoseconds."""

    def __call__(self) -> int:
        """Return microseconds since 1970."""
        wall, monotonic = self._wall(), self._monotonic()
        now = monotonic + self._ahead
        if wall > now:
            self._ahead, now = wall - monotonic, wall
        return now // NANOSECONDS

    def not_before(self, moment: int) -> None:
        """Never return less than `moment` (microseconds since 1970): a journal already has records of that time."""
        self._ahead = max(self._ahead, moment * NANOSECONDS - self._monotonic())


Phase: TypeAlias = Literal["starting", "ready", "stopping"]
Check: TypeAlias = Callable[[], str | None]
"""Returns a short description of a fault, or None if there is none."""


class Readiness:
    """The phase of one gateway, and the checks that must pass while it serves."""

    def __init__(self) -> None:
        """Start in the phase `starting`, without checks."""
        self.phase: Phase = "starting"
        self._checks: dict[str, Check] = {}

    def need(self, name: str, check: Check) -> None:
        """Add a check, such as the journal's; the gateway is not ready while it reports a fault."""
        self._checks[name] = check

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the gateway accepts work, and the body of the answer to `GET /ready`."""
        if self.phase != "ready":
            return False, {"status": self.phase}
        wrong = {name: check() for name, check in self._checks.items()}
        ready = not any(wrong.values())
        checks = {name: fault or "ok" for name, fault in wrong.items()}
        return ready, {"status": "ready" if ready else "not_ready", "checks": checks}

    def require(self) -> None:
        """Raise `JournalUnavailable` during startup and shutdown: no work would be recorded then."""
        if self.phase != "ready":
            raise JournalUnavailable(f"the gateway is {self.phase}")


CHECKS_BEFORE_PING: Final = 12
"""Number of consecutive checks that find a peer silent before it receives a ping."""
MIN_CHECKS_AFTER_PING: Final = 2
"""Minimum number of checks between the ping and the close."""


class JournalApiOptions(msgspec.Struct, frozen=True):
    """The limits of the journal over HTTP."""

    page_bytes: int = 8 * 2**20
    """Maximum bytes of payloads in one page, unless a single payload is larger."""
    live_readers: int = 64
    heartbeat_seconds: float = 15.0
    slow_seconds: float = 1.0
    """Seconds after which the files are closed for a reader that accepts no data. Its position is kept."""


class GatewayOptions(msgspec.Struct, frozen=True):
    """The limits of a gateway that the configuration does not have. Tests use other values."""

    fanout: FanoutOptions = USUAL_FANOUT
    journal_api: JournalApiOptions = JournalApiOptions()
    share_seconds: float = SHARE_SECONDS
    throttle_seconds: float = TURN_SECONDS
    waiting_connections: int = MAX_WAITING_CONNECTIONS


USUAL_OPTIONS: Final = GatewayOptions()


class Gateway:
    """All spaces of one process."""

    def __init__(
        self,
        config: GatewayConfig,
        tokens: Tokens,
        clock: Callable[[], int] | None = None,
        *,
        recorder: Recorder | None = None,
        options: GatewayOptions = USUAL_OPTIONS,
    ) -> None:
        """Start without spaces; `start` opens them. A `clock` replaces the default `SteadyClock`.

        `recorder` receives the events of spaces whose journal is disabled; without it, they are not recorded.
        """
        self.options = options
        self._steady = SteadyClock()
        self._clock = self._steady if clock is None else clock
        self.config = config
        self.tokens = tokens
        self.started = time.monotonic()
        self.readiness = Readiness()
        self.readiness.need("spaces", self._closed_spaces)
        self.journals = Journals(self._clock, self._journal_changed)
        self.readiness.need("journal", self._journal_problem)
        self.proxies = TrustedProxies(config.trusted_proxies)
        self.connections = Connections(
            unadmitted=config.unadmitted.unadmitted_connections,
            per_address=config.unadmitted.unadmitted_per_address,
            max_waiting=options.waiting_connections,
        )
        self.refusals = RefusalLog(self._clock)
        self.sockets: set[WebSocketConnection] = set()
        self.join_throttle = LoopThrottle(turn_seconds=options.throttle_seconds)
        self.leave_throttle = LoopThrottle(turn_seconds=options.throttle_seconds)
        self.losses = 0
        self.hubs: dict[str, Hub] = {}
        """The hub of each open space."""
        self._spaces: dict[str, SpaceCore] = {}
        self._recorder = recorder or NullRecorder()
        self.lobby = Admission(self._spaces, tokens)
        self.message_bytes = max(space.settings.limits.message_bytes for space in config.spaces)
        self._connections = 0
        self._next_check: asyncio.TimerHandle | None = None

    def _open(self, space: SpaceConfig) -> None:
        """Open a space in the state recovered from its journal, and create its hub."""
        name, folder = space.settings.space_id, space.directory / ".mew" / "logs"
        journal, state = self.journals.open(space) or (self._recorder, None)
        history, decisions = None, None
        if space.logging.envelope_history:
            history = EnvelopeHistory(LineLog(folder / "envelope-history.jsonl"), name)
        if space.logging.capability_decisions:
            decisions = CapabilityDecisions(LineLog(folder / "capability-decisions.jsonl"), name)
        log_files = {
            participant: FileSink(space.directory / settings.output_log)
            for participant, settings in space.participants.items()
            if settings.output_log is not None
        }
        core = SpaceCore(space.settings, self.tokens, state)
        outputs = Outputs(log_files, self.config.queues.data_bytes, history, decisions)
        self.hubs[name] = Hub(
            core,
            journal,
            clock=self._clock,
            outputs=outputs,
            fanout_options=self.options.fanout,
            share_seconds=self.options.share_seconds,
        )
        self._spaces[name] = core

    @property
    def first_hub(self) -> Hub:
        """The hub of the first configured space, which is the default if none is named."""
        return next(iter(self.hubs.values()))

    def _closed_spaces(self) -> str | None:
        """Return the names of the spaces that are not open, or None if all are open."""
        names = [space.settings.space_id for space in self.config.spaces]
        return ", ".join(name for name in names if name not in self.hubs) or None

    def _journal_changed(self, space: str) -> None:
        self.hubs[space].journal_changed()

    def _journal_problem(self) -> str | None:
        """Return why messages are rejected, or None."""
        wrong = [f"{name}: {hub.journal.problem}" for name, hub in self.hubs.items() if hub.refusing]
        return "; ".join(wrong) or None

    @property
    def uptime(self) -> float:
        """Seconds since the gateway was created."""
        return time.monotonic() - self.started

    def listens_on(self, port: int) -> None:
        """Set the port that is used in invitations; call this before `start`."""
        self.config = self.config.listening_on(port=port)

    def record_refusal(
        self, refusal: ProtocolError, request: JoinRequest, connection: OpenConnection, transport: Transport
    ) -> None:
        """Record a rejected connection in the requested space, or in the first space if there is no such space."""
        hub = self.hubs.get(request.space or "", self.first_hub)
        if not hub.refusing:
            hub.run(
                RefuseConnection(
                    error=refusal.code,
                    peer=connection.peer,
                    source=connection.source,
                    transport=transport,
                    participant=request.participant,
                )
            )

    def is_guess(self, refusal: ProtocolError, token: str | None) -> bool:
        """Return whether an unknown token was rejected; the answer is then delayed by `failed_join_seconds`."""
        return isinstance(refusal, Unauthenticated) and token is not None and self.tokens.identify(token) is None

    def new_connection(self) -> str:
        """Return a unique id for a new connection."""
        self._connections += 1
        return f"ws-{self._connections}"

    def must_wait(
        self, connection: OpenConnection, address: str, resume: Callable[[], None], give_up: Callable[[], object]
    ) -> bool:
        """Return whether a connection must wait because its address has too many unadmitted ones.

        A trusted proxy is not limited, because it carries connections of many clients.
        """
        if not address or self.proxies.trusts(address):
            return False
        return connection.await_turn(address, resume, give_up)

    def count_loss(self) -> None:
        """Count a reader that has begun to lose frames."""
        self.losses += 1

    def start(self) -> None:
        """Open the spaces in the state recovered from their journals, and start the timers."""
        for space in self.config.spaces:
            self._open(space)
        self._steady.not_before(max(hub.space.state.time for hub in self.hubs.values()))
        for space in self.config.spaces:
            hub = self.hubs[space.settings.space_id]
            hub.run(Start(secrets.token_hex(4)))
            hub.start(
                [
                    name
                    for name, participant in space.participants.items()
                    if participant.output_log is not None and participant.auto_connect
                ]
            )
        self.journals.start()
        self._check_sockets()

    def _check_sockets(self) -> None:
        """Find silent peers; one timer for all sockets costs less than one timer per socket."""
        period, end = silence_checks(self.config.timeouts)
        for socket in list(self.sockets):
            socket.check_idle(CHECKS_BEFORE_PING, end)
        self._next_check = asyncio.get_running_loop().call_later(period, self._check_sockets)

    def stop(self) -> None:
        """Stop the spaces and start the close handshake on every socket."""
        if self._next_check is not None:
            self._next_check.cancel()
        for hub in self.hubs.values():
            hub.stop()
        for socket in list(self.sockets):
            socket.close(1001, "the gateway is stopping")

    def finish(self) -> None:
        """Close the refusal log, and write and seal the journals; call this after all connections are closed."""
        self.refusals.close()
        for name in self.journals.open_journals:
            self.hubs[name].run(Checkpoint())
        self.journals.close()


def silence_checks(times: Timeouts) -> tuple[float, int]:
    """Return the seconds between two silence checks, and after how many silent checks a peer is closed.

    Silence may begin up to one period before a check first detects it, and the close takes `close_seconds`. A peer that
    answers nothing is disconnected after 1.5 times `idle_seconds`.
    """
    period = times.idle_seconds / CHECKS_BEFORE_PING
    end = int((1.5 * times.idle_seconds - times.close_seconds) / period) - 1
    return period, max(end, CHECKS_BEFORE_PING + MIN_CHECKS_AFTER_PING)
