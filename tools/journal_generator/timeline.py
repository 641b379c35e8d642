"""Timeline of one simulated space: runs the scenarios and writes frames, from the first start to the last record.

Every scenario runs once in a fixed order, then scenarios are chosen at random. Most records are frames.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from mew.protocol.timestamps import SECOND
from tools.journal_generator import actions, conversations, scenarios
from tools.journal_generator.conversations import Scenario
from tools.journal_generator.observation import OpenStream
from tools.journal_generator.participants import GRACE_SECONDS, HOST, POSITIONS, REGULARS, STREAM_TEMPLATES
from tools.journal_generator.payloads import POOL
from tools.journal_generator.simulation import Simulation

FINAL_RECORDS: Final = 400
"""The last records of a space are only frames; no scenario writes more records than this between two pauses."""
MAX_RECORDS_PER_SECOND: Final = 1_000
"""Records per second of a long timeline. Short timelines are slower, so that grace periods and pauses fit in."""
NOMINAL_RECORDS_PER_SECOND: Final = 500
"""Records per second if every writer keeps the rate of its stream template."""
MIN_SECONDS: Final = 120
SLICE_SECONDS: Final = (0.05, 0.15)
MAX_DATA_SHARE: Final = 0.015
"""The largest share of records that are `stream/data`."""
MAX_CONTROL_SHARE: Final = 0.03
"""The largest share of records that are neither `stream/data` nor raw frames, after every scenario has run once."""
FIRST_PASS_SPAN: Final = (0.02, 0.55)
"""The part of a timeline in which every scenario runs once."""
CRASH_FRACTION: Final = 0.7
"""The gateway crashes after this part of each stretch of `CRASH_RECORDS`."""
CRASH_RECORDS: Final = 1_500_000
BREAK_RECORDS: Final = 250_000
TARGET_STREAMS: Final = 14
"""Approximate number of open streams."""

_StartScenario = Callable[[Simulation], Scenario]
_FIRST_PASS: Final[tuple[_StartScenario, ...]] = (
    *(partial(scenarios.opening, template=template) for template in STREAM_TEMPLATES),
    *scenarios.owner_disconnects(),
    scenarios.reopened_movement,
    scenarios.sharing,
    scenarios.shutting_down,
    scenarios.invitation,
    scenarios.slow_reader,
    scenarios.kicking,
    scenarios.permanent_kick,
    scenarios.pausing,
    scenarios.granting,
    scenarios.takeover,
    scenarios.visit,
    scenarios.absence,
    scenarios.handover,
    scenarios.rejected_data,
    scenarios.envelopes_without_effect,
    scenarios.rejections,
    conversations.http_posting,
    conversations.observing,
    *(partial(conversations.proposal, luck=luck) for luck in (0.1, 0.2, 0.9)),
    *(partial(conversations.request, luck=luck) for luck in (0.0, 1.0)),
    conversations.reasoning,
    conversations.housekeeping,
    conversations.custom_kind,
    conversations.chat,
    scenarios.writer_disconnect,
    *(partial(scenarios.ending, kind=f"stream/{kind}") for kind in ("complete", "close", "error")),
)  # fmt: skip
_WEIGHTS: Final[dict[_StartScenario, int]] = {
    conversations.chat: 30,
    conversations.request: 30,
    conversations.proposal: 20,
    conversations.reasoning: 10,
    conversations.custom_kind: 5,
    conversations.http_posting: 4,
    conversations.housekeeping: 3,
    conversations.observing: 2,
    scenarios.sharing: 8,
    scenarios.handover: 4,
    scenarios.slow_reader: 6,
    scenarios.rejected_data: 1,
    scenarios.envelopes_without_effect: 1,
    scenarios.reopened_movement: 1,
    scenarios.opening: 3,
    scenarios.ending: 3,
    scenarios.writer_disconnect: 3,
    scenarios.absence: 8,
    scenarios.return_of_absent: 6,
    scenarios.takeover: 2,
    scenarios.visit: 2,
    scenarios.granting: 4,
    scenarios.invitation: 2,
    scenarios.kicking: 1,
    scenarios.pausing: 2,
    scenarios.shutting_down: 1,
    scenarios.rejections: 1,
}
"""Relative frequency of each scenario."""
_SCENARIOS: Final = tuple(_WEIGHTS)
_CUMULATIVE_WEIGHTS: Final = tuple(accumulate(_WEIGHTS.values()))


class Timeline:
    """The sequence of events in one space, advanced in slices of time."""

    def __init__(self, simulation: Simulation, records: int) -> None:
        """Prepare `records` records, including those of the start."""
        self.simulation = simulation
        self._records = records
        self._rate_factor = records / max(MIN_SECONDS, records / MAX_RECORDS_PER_SECOND) / NOMINAL_RECORDS_PER_SECOND
        self._agenda: list[tuple[int, int, Scenario]] = []
        self._started = 0
        self._first = list(_FIRST_PASS)
        begin, end = FIRST_PASS_SPAN
        self._first_at = [
            records * (begin + (end - begin) * index / len(_FIRST_PASS)) for index in range(len(_FIRST_PASS))
        ]
        stretch = records / max(1, records // CRASH_RECORDS)
        self._crashes = [round(stretch * (index + CRASH_FRACTION)) for index in range(max(1, records // CRASH_RECORDS))]
        self._checkpoint_every = max(1_000, min(100_000, records // 8))
        self._break_at = BREAK_RECORDS
        self._quiet_until = 0
        for name in REGULARS:
            actions.join(simulation, name)
            simulation.pass_time(simulation.rng.uniform(0, 0.2))
        actions.open_stream(simulation, HOST, POSITIONS)

    @property
    def is_finished(self) -> bool:
        """Whether all records have been written."""
        return self.simulation.written >= self._records

    def advance(self) -> None:
        """Simulate the next slice of time."""
        simulation = self.simulation
        seconds = simulation.rng.uniform(*SLICE_SECONDS)
        end = simulation.now + round(seconds * SECOND)
        if self._left > FINAL_RECORDS:
            simulation.tick()
            self._run_due()
        if simulation.now >= self._quiet_until:
            for stream in list(simulation.streams.values()):
                self._flow(stream, seconds)
        if self._left <= FINAL_RECORDS and not any(True for _ in simulation.writing()):
            actions.send_heartbeat(simulation, HOST)
        simulation.now = max(simulation.now, end)

    @property
    def _left(self) -> int:
        return self._records - self.simulation.written

    # Scenarios

    def _run_due(self) -> None:
        simulation = self.simulation
        if self._crashes and simulation.written >= self._crashes[0]:
            self._crashes.pop(0)
            self._crash()
        checkpoints = simulation.truth.checkpoints
        if simulation.written - (checkpoints[-1] if checkpoints else 0) >= self._checkpoint_every:
            simulation.checkpoint()
        while self._agenda and self._agenda[0][0] <= simulation.now and self._left > FINAL_RECORDS:
            self._resume(heappop(self._agenda)[2])
        if simulation.now >= self._quiet_until:
            self._start_scenarios()
        if simulation.written >= self._break_at:
            self._break_at += BREAK_RECORDS
            self._quiet_until = simulation.now + simulation.rng.randrange(180, 600) * SECOND

    def _start_scenarios(self) -> None:
        simulation = self.simulation
        while self._first and simulation.written >= self._first_at[-len(self._first)] and self._left > FINAL_RECORDS:
            self._resume(self._first.pop(0)(simulation))
        if not any(True for _ in simulation.writing()):
            actions.open_stream(simulation, HOST, POSITIONS)
        if (
            self._left > FINAL_RECORDS
            and simulation.control - self._data_so_far < MAX_CONTROL_SHARE * simulation.written
        ):
            self._resume(self._choose_scenario()(simulation))

    def _choose_scenario(self) -> _StartScenario:
        """Choose a random scenario that keeps the number of open streams near the target."""
        rng, spare = self.simulation.rng, TARGET_STREAMS - len(self.simulation.streams)
        if rng.random() < 0.02 * abs(spare):
            return scenarios.opening if spare > 0 else scenarios.ending
        return rng.choices(_SCENARIOS, cum_weights=_CUMULATIVE_WEIGHTS)[0]

    @property
    def _data_so_far(self) -> int:
        return self.simulation.truth.kinds.get("stream/data", 0)

    def _resume(self, scenario: Scenario) -> None:
        """Run a scenario until its next pause."""
        seconds = next(scenario, None)
        if seconds is not None:
            self._started += 1
            heappush(self._agenda, (self.simulation.now + round(seconds * SECOND), self._started, scenario))

    def _crash(self) -> None:
        """Crash and restart the gateway; participants reconnect, two of the writers after the grace period."""
        simulation = self.simulation
        self._agenda.clear()
        simulation.crash(simulation.rng.uniform(1, 4))
        actions.join(simulation, HOST)
        streams = simulation.streams.values()
        writers = sorted({name for stream in streams for name in stream.writers} & set(scenarios.REGULARS_WITHOUT_HOST))
        late = simulation.rng.sample(writers, min(2, len(writers)))
        for name in simulation.rng.sample(scenarios.REGULARS_WITHOUT_HOST, len(scenarios.REGULARS_WITHOUT_HOST)):
            seconds = GRACE_SECONDS + 2 if name in late else simulation.rng.uniform(0.1, 4)
            self._resume(_return_later(simulation, name, seconds))

    # Frames

    def _flow(self, stream: OpenStream, seconds: float) -> None:
        """Write the frames and data that are due for one stream."""
        if not stream.live:
            return
        simulation, template = self.simulation, stream.template
        for writer in stream.writers:
            if not simulation.may_send(writer):
                continue
            flow = stream.flow(writer, simulation.rng)
            flow.frames_due += template.hertz * seconds * self._rate_factor
            count = min(int(flow.frames_due), POOL, self._left)
            if count > 0:
                flow.frames_due -= count
                actions.write_frames(simulation, stream, writer, count, one_invalid=simulation.rng.random() < 0.01)
            flow.data_due += template.data_hertz * seconds * self._rate_factor
            if (
                flow.data_due >= 1
                and self._left > FINAL_RECORDS
                and self._data_so_far < MAX_DATA_SHARE * simulation.written
            ):
                flow.data_due -= 1
                self._data(stream, writer)

    def _data(self, stream: OpenStream, writer: str) -> None:
        rng = self.simulation.rng
        skip = rng.randrange(1, 9) if rng.random() < 0.04 else 0
        may_misfit = bool(stream.truth.formats) and not stream.template.validates
        actions.write_data(self.simulation, stream, writer, skip=skip, fits=not may_misfit or rng.random() > 0.02)


def _return_later(simulation: Simulation, name: str, seconds: float) -> Scenario:
    yield seconds
    scenarios.return_if_possible(simulation, name)
