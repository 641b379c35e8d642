"""Property of the fan-out: each reader gets every message for it exactly once, in order, in any sequence of events."""

from typing import Final, TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from mew.protocol import EVERYONE, AllExcept, Audience, OneConnection, Recipients
from tests.gateway.fanout.fake_space import FakeSpace, connection_of, running
from tests.support.hypothesis_settings import examples

NAMES: Final = ("p0", "p1", "p2", "p3", "p4")


class Operation:
    """One step of a test."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"

    def apply(self, space: FakeSpace) -> None:
        raise NotImplementedError


class Join(Operation):
    def __init__(self, name: str, direct: bool, role: str) -> None:
        self.name, self.direct, self.role = name, direct, role

    def apply(self, space: FakeSpace) -> None:
        space.join(self.name, self.role, direct=self.direct)


class Leave(Operation):
    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, space: FakeSpace) -> None:
        space.leave(self.name)


class Serve(Operation):
    """The close handshake of a peer: it gets everything first."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, space: FakeSpace) -> None:
        if self.name in space.present:  # the gateway serves only open connections
            space.fanout.flush_to(connection_of(self.name))


class Put(Operation):
    """A message; `late` ones are added when the batch is recorded, as the frames of a run are."""

    def __init__(self, audience: str, names: tuple[str, ...], frames: int, low_priority: bool, late: bool) -> None:
        self.audience, self.names, self.frames = audience, names, frames
        self.low_priority, self.late = low_priority, late

    def apply(self, space: FakeSpace) -> None:
        audience: Audience
        match self.audience:
            case "everyone":
                audience = EVERYONE
            case "all except":
                audience = AllExcept(self.names[0])
            case "recipients":
                audience = Recipients(self.names)
            case _:
                audience = OneConnection(connection_of(self.names[0]))
        space.put(audience, self.frames, low_priority=self.low_priority, late=self.late)


class Read(Operation):
    """A socket has been read: it is paused if the next flush is delayed."""

    def apply(self, space: FakeSpace) -> None:
        if space.fanout.deferral is not None:
            space.fanout.deferral.pause(space.socket)


class Flush(Operation):
    def apply(self, space: FakeSpace) -> None:
        space.end_run()
        space.fanout.flush()


class Iterate(Operation):
    def __init__(self, times: int) -> None:
        self.times = times

    def apply(self, space: FakeSpace) -> None:
        for _ in range(self.times):
            space.loop.iterate()


class Wait(Operation):
    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds

    def apply(self, space: FakeSpace) -> None:
        space.loop.now += self.milliseconds / 1000
        space.loop.iterate()


class Stuck(Operation):
    """The journal cannot be written: nothing may be sent until it can."""

    def apply(self, space: FakeSpace) -> None:
        space.stuck = True


class Resume(Operation):
    def apply(self, space: FakeSpace) -> None:
        space.resume()


names = st.sampled_from(NAMES)
audiences = st.sampled_from(["everyone", "everyone", "everyone", "all except", "recipients", "one connection"])
several_names = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
puts = st.builds(Put, audiences, several_names, st.integers(0, 3), st.booleans(), st.sampled_from([False, False, True]))
joins = st.builds(Join, names, st.booleans(), st.sampled_from(["participant", "participant", "observer", "stranger"]))
operations = st.one_of(
    puts,
    puts,
    puts,
    joins,
    st.builds(Leave, names),
    st.builds(Serve, names),
    st.just(Read()),
    st.just(Flush()),
    st.just(Iterate(1)),
    st.just(Iterate(1)),
    st.builds(Iterate, st.integers(2, 4)),
    st.builds(Wait, st.integers(1, 5)),
    st.just(Stuck()),
    st.just(Resume()),
)
Operations: TypeAlias = list[Operation]
MESSAGE: Final = Put("everyone", ("p0",), 0, False, False)


@examples(400)
@example(False, 1, [MESSAGE, Join("p4", True, "participant"), MESSAGE])
@example(False, 1, [MESSAGE, Leave("p0"), MESSAGE, Join("p0", False, "participant"), MESSAGE])
@example(False, 1, [Join("p4", True, "stranger"), Put("one connection", ("p4",), 0, False, False), Serve("p4")])
@example(False, 1, [Leave("p0"), MESSAGE, Serve("p0"), MESSAGE, Join("p0", False, "participant"), MESSAGE, MESSAGE])
@given(load=st.booleans(), slice_size=st.integers(1, 3), operations=st.lists(operations, min_size=8, max_size=40))
def test_each_reader_gets_every_message_for_it_exactly_once_in_order_and_one_flush_at_most_is_planned(
    load: bool, slice_size: int, operations: Operations
) -> None:
    space = FakeSpace(slice_size)
    with running(space.loop):
        for name in NAMES[:4]:
            space.join(name, "participant", direct=True)
        if load:
            space.load()
        for operation in operations:
            operation.apply(space)
            space.check()
        space.resume()
        space.loop.run_until_idle()
        assert not space.socket.paused
        for presence in (*space.present.values(), *space.past):
            assert presence.listener.received == presence.expected
        received = sum(len(presence.expected) for presence in (*space.present.values(), *space.past))
        assert space.counts.deliveries == received
