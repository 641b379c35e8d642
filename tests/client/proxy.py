"""A network with configurable faults: it delays, loses, cuts off or half closes connections.

A plain TCP proxy on the event loop of the test. It does not read what it carries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

Way = Literal["up", "down"]
"""The direction of data: up to the gateway, or down to the client."""


class Flow:
    """One connection through the proxy."""

    def __init__(self, proxy: "Proxy", client: asyncio.StreamWriter, gateway: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._ends: dict[Way, asyncio.StreamWriter] = {"up": gateway, "down": client}

    async def pump(self, source: asyncio.StreamReader, way: Way) -> None:
        """Carry the data of one direction until it ends."""
        sink = self._ends[way]
        try:
            while data := await source.read(65_536):
                await self._proxy.passed(way)
                if way in self._proxy.swallowing:
                    continue
                allowed = self._proxy.left.get(way)
                if allowed is not None and len(data) > allowed:
                    sink.write(data[:allowed])
                    self._proxy.left.clear()
                    self.cut()
                    return
                if allowed is not None:
                    self._proxy.left[way] = allowed - len(data)
                sink.write(data)
                await sink.drain()
            sink.close()
        except (ConnectionError, RuntimeError):
            self.cut()

    def cut(self) -> None:
        """Break the connection for both ends at the same time."""
        for end in self._ends.values():
            end.transport.abort()

    def half_close(self, way: Way) -> None:
        """Close one end for reading; what it sends is still carried."""
        self._ends[way].write_eof()


class Proxy:
    """The connections to a gateway, and the faults of their network."""

    def __init__(self, port: int) -> None:
        self.port = port
        """The port of the gateway; a restarted gateway may have another."""
        self.refusing = False
        """Whether the proxy refuses every new connection."""
        self.delay: Callable[[], float] | None = None
        self.swallowing: set[Way] = set()
        """The directions in which all data are lost without a sign."""
        self.left: dict[Way, int] = {}
        """The number of bytes that each direction still carries before the connection is cut."""
        self.connections = 0
        self.flows: list[Flow] = []
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._tasks: set[asyncio.Task[None]] = set()
        for gate in self._open.values():
            gate.set()

    def hold(self, way: Way) -> None:
        """Hold back the data of a direction."""
        self._open[way].clear()

    def release(self, way: Way) -> None:
        """Carry the data of a direction again."""
        self._open[way].set()

    async def passed(self, way: Way) -> None:
        """Wait for the delay, and while the direction is held."""
        if self.delay is not None:
            await asyncio.sleep(self.delay())
        await self._open[way].wait()

    def cut(self) -> None:
        """Break every connection."""
        flows, self.flows = self.flows, []
        for flow in flows:
            flow.cut()

    def behave(self) -> None:
        """End all faults."""
        self.refusing, self.delay = False, None
        self.swallowing.clear()
        self.left.clear()
        for gate in self._open.values():
            gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection of a client."""
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            from_gateway, to_gateway = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        flow = Flow(self, writer, to_gateway)
        self.flows.append(flow)
        for source, way in ((reader, "up"), (from_gateway, "down")):
            task = asyncio.create_task(flow.pump(source, way), name=f"proxy, {way}")  # type: ignore[arg-type]
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Break every connection and end every task."""
        self.behave()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[tuple[Proxy, str]]:
    """Run a proxy to the gateway at this port; gives the proxy and its address."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await proxy.stop()
        await asyncio.sleep(0)
