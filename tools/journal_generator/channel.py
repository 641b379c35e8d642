"""An open stream of a story: its truth so far, and the frames that its writers have ready.

Decides nothing: who may write is the world's to know, when somebody does the story's.
"""

from random import Random

from mew.journal.generator.cast import Sort
from mew.journal.generator.material import POOL, Matter, Pool, spoil_content
from mew.journal.generator.truth import StreamTruth, Written
from mew.protocol.frames import header


class Flow:
    """What one writer has sent to a stream, and what comes next."""

    __slots__ = ("cursor", "data_due", "frames_due", "sequence", "written")

    def __init__(self, written: Written, cursor: int) -> None:
        """Nothing has been sent."""
        self.written = written
        self.cursor = cursor
        self.frames_due = 0.0
        self.data_due = 0.0
        self.sequence = -1
        """The last of its `stream/data`."""


class Channel:
    """A stream that is open."""

    def __init__(self, truth: StreamTruth, sort: Sort, matter: Matter, pool: Pool) -> None:
        """Its first frame is still to come."""
        self.truth = truth
        self.sort = sort
        self.matter = matter
        self.stream_id = truth.stream_id
        self.live = truth.way == "request"
        self.number = 0
        """Of the last frame or data."""
        self.header = header(truth.stream_id)
        self.flows: dict[str, Flow] = {}
        self.told: dict[str, int] = {}
        """Per reader, the number of the frame up to which nothing more can be lost to it."""
        self._pool = pool
        self._messages = pool.messages(self.header) if sort.hertz else []

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.truth.owners[-1].owner

    @property
    def writers(self) -> tuple[str, ...]:
        """Who may write, the owner first."""
        return self.truth.writers[-1].writers

    def flow(self, writer: str, rng: Random) -> Flow:
        """What this writer sends."""
        flow = self.flows.get(writer)
        if flow is None:
            written = self.truth.by_writer[writer] = Written()
            flow = self.flows[writer] = Flow(written, rng.randrange(POOL))
        return flow

    def take(self, flow: Flow, count: int) -> list[bytes]:
        """The writer's next frames, up to `POOL`, as accepted."""
        start = flow.cursor
        flow.cursor = (start + count) % POOL
        flow.written.frames += count
        flow.written.bytes += self._pool.size(start, count)
        return self._messages[start : start + count]

    def payload(self, rng: Random) -> bytes:
        """The bytes of one frame."""
        return rng.choice(self._pool.payloads)

    def content(self, rng: Random, *, fits: bool = True) -> bytes:
        """What one `stream/data` carries: JSON."""
        payload = self.payload(rng)
        return payload if fits else spoil_content(rng, payload)
