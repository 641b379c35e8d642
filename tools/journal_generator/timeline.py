"""The story of one space: what happens when, from the first start to the last record.

First everything once, in an order that is always the same, then by chance; most of all frames. Knows no rule of the
protocol: acts do.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from mew.journal.generator import acts, membership, stream_acts, streaming, talk
from mew.journal.generator.cast import GRACE_SECONDS, HOST, POSITIONS, REGULARS, SORTS
from mew.journal.generator.channel import Channel
from mew.journal.generator.material import POOL
from mew.journal.generator.play import Play
from mew.journal.generator.talk import Scene
from mew.protocol.timestamps import SECOND

FEWEST: Final = 1_000
"""Records of the shortest story."""
LAST: Final = 400
"""So many records before the end nothing happens any more but frames; no scene has more between two yields."""
BUSY: Final = 1_000
"""Records a second of a long story; a short one goes slower, so that graces and pauses fit into it."""
USUAL: Final = 500
"""Records a second when every writer keeps to the rate of its sort of stream."""
SHORTEST_SECONDS: Final = 120
SLICE: Final = (0.05, 0.15)
DATA: Final = 0.015
"""The most of the records that are `stream/data`."""
CONTROL: Final = 0.03
"""The most of them that are neither that nor raw frames, once everything has happened once."""
FIRST_ACTS: Final = (0.02, 0.55)
"""The part of a story in which everything happens once."""
CRASH: Final = 0.7
"""The part of each such stretch after which the gateway crashes."""
CRASH_RECORDS: Final = 1_500_000
BREAK_RECORDS: Final = 250_000
STREAMS: Final = 14
"""Open at once, about."""

_Begin = Callable[[Play], Scene]
_FIRST: Final[tuple[_Begin, ...]] = (
    *(partial(streaming.opening, sort=sort) for sort in SORTS),
    *streaming.orphanings(),
    streaming.renewal,
    streaming.sharing,
    membership.shutting_down,
    membership.invitation,
    streaming.slowness,
    membership.kicking,
    membership.trolling,
    membership.pausing,
    membership.granting,
    membership.takeover,
    membership.visit,
    membership.absence,
    streaming.handover,
    streaming.refused_data,
    streaming.pretending,
    membership.refusals,
    talk.posting,
    talk.onlooking,
    *(partial(talk.proposal, luck=luck) for luck in (0.1, 0.2, 0.9)),
    *(partial(talk.request, luck=luck) for luck in (0.0, 1.0)),
    talk.reasoning,
    talk.housekeeping,
    talk.game,
    talk.chat,
    streaming.desertion,
    *(partial(streaming.ending, kind=f"stream/{kind}") for kind in ("complete", "close", "error")),
)  # fmt: skip
_LATER: Final[dict[_Begin, int]] = {
    talk.chat: 30,
    talk.request: 30,
    talk.proposal: 20,
    talk.reasoning: 10,
    talk.game: 5,
    talk.posting: 4,
    talk.housekeeping: 3,
    talk.onlooking: 2,
    streaming.sharing: 8,
    streaming.handover: 4,
    streaming.slowness: 6,
    streaming.refused_data: 1,
    streaming.pretending: 1,
    streaming.renewal: 1,
    streaming.opening: 3,
    streaming.ending: 3,
    streaming.desertion: 3,
    membership.absence: 8,
    membership.gathering: 6,
    membership.takeover: 2,
    membership.visit: 2,
    membership.granting: 4,
    membership.invitation: 2,
    membership.kicking: 1,
    membership.pausing: 2,
    membership.shutting_down: 1,
    membership.refusals: 1,
}
"""How often each happens, against each other."""
_SCENES: Final = tuple(_LATER)
_OFTEN: Final = tuple(accumulate(_LATER.values()))


class Story:
    """One space's records, to be told in slices of time."""

    def __init__(self, play: Play, records: int) -> None:
        """So many records, the start's included."""
        self.play = play
        self._records = records
        self._tempo = records / max(SHORTEST_SECONDS, records / BUSY) / USUAL
        self._agenda: list[tuple[int, int, Scene]] = []
        self._scenes = 0
        self._first = list(_FIRST)
        begin, end = FIRST_ACTS
        self._first_at = [records * (begin + (end - begin) * index / len(_FIRST)) for index in range(len(_FIRST))]
        stretch = records / max(1, records // CRASH_RECORDS)
        self._crashes = [round(stretch * (index + CRASH)) for index in range(max(1, records // CRASH_RECORDS))]
        self._checkpoint_every = max(1_000, min(100_000, records // 8))
        self._break_at = BREAK_RECORDS
        self._quiet_until = 0
        for name in REGULARS:
            acts.join(play, name)
            play.pass_time(play.rng.uniform(0, 0.2))
        stream_acts.open_stream(play, HOST, POSITIONS)

    @property
    def is_over(self) -> bool:
        """Whether every record is written."""
        return self.play.written >= self._records

    def tell_on(self) -> None:
        """What happens within the next tenth of a second."""
        play = self.play
        seconds = play.rng.uniform(*SLICE)
        end = play.now + round(seconds * SECOND)
        if self._left > LAST:
            play.tick()
            self._happenings()
        if play.now >= self._quiet_until:
            for channel in list(play.world.streams.values()):
                self._flow(channel, seconds)
        if self._left <= LAST and not any(True for _ in play.world.writing()):
            acts.beat(play, HOST)
        play.now = max(play.now, end)

    @property
    def _left(self) -> int:
        return self._records - self.play.written

    # What happens

    def _happenings(self) -> None:
        play = self.play
        if self._crashes and play.written >= self._crashes[0]:
            self._crashes.pop(0)
            self._crash()
        checkpoints = play.truth.checkpoints
        if play.written - (checkpoints[-1] if checkpoints else 0) >= self._checkpoint_every:
            play.checkpoint()
        while self._agenda and self._agenda[0][0] <= play.now and self._left > LAST:
            self._go_on(heappop(self._agenda)[2])
        if play.now >= self._quiet_until:
            self._begin_something()
        if play.written >= self._break_at:
            self._break_at += BREAK_RECORDS
            self._quiet_until = play.now + play.rng.randrange(180, 600) * SECOND

    def _begin_something(self) -> None:
        play = self.play
        while self._first and play.written >= self._first_at[-len(self._first)] and self._left > LAST:
            self._go_on(self._first.pop(0)(play))
        if not any(True for _ in play.world.writing()):
            stream_acts.open_stream(play, HOST, POSITIONS)
        if self._left > LAST and play.control - self._data_so_far < CONTROL * play.written:
            self._go_on(self._chosen()(play))

    def _chosen(self) -> _Begin:
        """What comes by chance: there are neither too few streams in the long run nor too many."""
        rng, spare = self.play.rng, STREAMS - len(self.play.world.streams)
        if rng.random() < 0.02 * abs(spare):
            return streaming.opening if spare > 0 else streaming.ending
        return rng.choices(_SCENES, cum_weights=_OFTEN)[0]

    @property
    def _data_so_far(self) -> int:
        return self.play.truth.kinds.get("stream/data", 0)

    def _go_on(self, scene: Scene) -> None:
        """Play a scene until its next pause."""
        seconds = next(scene, None)
        if seconds is not None:
            self._scenes += 1
            heappush(self._agenda, (self.play.now + round(seconds * SECOND), self._scenes, scene))

    def _crash(self) -> None:
        """The gateway dies and comes back; so do the participants, some of them too late."""
        play = self.play
        self._agenda.clear()
        play.crash(play.rng.uniform(1, 4))
        acts.join(play, HOST)
        streams = play.world.streams.values()
        writing = sorted({name for channel in streams for name in channel.writers} & set(membership.OTHERS))
        late = play.rng.sample(writing, min(2, len(writing)))
        for name in play.rng.sample(membership.OTHERS, len(membership.OTHERS)):
            seconds = GRACE_SECONDS + 2 if name in late else play.rng.uniform(0.1, 4)
            self._go_on(_return(play, name, seconds))

    # Frames

    def _flow(self, channel: Channel, seconds: float) -> None:
        """What the writers of a stream send within so many seconds."""
        if not channel.live:
            return
        play, sort = self.play, channel.sort
        for writer in channel.writers:
            if not play.world.may_speak(writer):
                continue
            flow = channel.flow(writer, play.rng)
            flow.frames_due += sort.hertz * seconds * self._tempo
            count = min(int(flow.frames_due), POOL, self._left)
            if count > 0:
                flow.frames_due -= count
                stream_acts.write(play, channel, writer, count, spoilt=play.rng.random() < 0.01)
            flow.data_due += sort.data_hertz * seconds * self._tempo
            if flow.data_due >= 1 and self._left > LAST and self._data_so_far < DATA * play.written:
                flow.data_due -= 1
                self._data(channel, writer)

    def _data(self, channel: Channel, writer: str) -> None:
        rng = self.play.rng
        skip = rng.randrange(1, 9) if rng.random() < 0.04 else 0
        may_misfit = bool(channel.truth.formats) and not channel.sort.validates
        stream_acts.write_data(self.play, channel, writer, skip=skip, fits=not may_misfit or rng.random() > 0.02)


def _return(play: Play, name: str, seconds: float) -> Scene:
    yield seconds
    membership.come_back(play, name)
