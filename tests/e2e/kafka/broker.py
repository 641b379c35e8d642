"""A real Kafka for tests: one node that is its own controller, started, stopped, killed, and started again.

Its jars are fetched once for an environment, like those of Spark; each is of one content, whatever is served.
"""

import base64
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from mew.pipeline.jars import Artifact, JarList, fetch_jars
from mew.pipeline.java import find_java
from tests.support.ports import free_ports

UP_SECONDS: Final = 40.0
DOWN_SECONDS: Final = 20.0
GLANCE: Final = 0.05
_JARS: Final = Path(__file__).with_name("jars.txt")
BROKER: Final = JarList(
    "kafka", tuple(Artifact(*line.split()) for line in _JARS.read_text(encoding="ascii").splitlines())
)
_QUICK: Final = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")


class Broker:
    """One broker in a folder of its own, on two ports of its own."""

    def __init__(self, folder: Path) -> None:
        """Not started."""
        self.folder = folder
        self.port, controller = free_ports(2)
        self._java = str(find_java().command)
        jars = fetch_jars(BROKER, say=lambda line: None)
        self._classes = ":".join(map(str, jars))
        self._settings = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text("\n".join(self._lines(controller)), encoding="ascii")
        self._run("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._settings))

    def _lines(self, controller: int) -> list[str]:
        return [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"log.dirs={self.folder / 'data'}",
            "num.partitions=2",
            "auto.create.topics.enable=false",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
        ]

    def address(self, topic: str) -> str:
        return f"kafka://127.0.0.1:{self.port}/{topic}"

    def start(self) -> "Broker":
        """Start it, and wait until it takes transactions."""
        log = (self.folder / "broker.log").open("ab")
        command = [self._java, *_QUICK, "-cp", self._classes, "kafka.Kafka", str(self._settings)]
        with log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + UP_SECONDS
        while not self._answers():
            assert self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(GLANCE)
        # It takes connections before it takes transactions.
        ready = {"bootstrap.servers": f"127.0.0.1:{self.port}", "transactional.id": "test/ready", "log_level": 0}
        Producer(ready).init_transactions(UP_SECONDS)
        return self

    def stop(self) -> None:
        """In an orderly way."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(DOWN_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def output(self) -> str:
        return (self.folder / "broker.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, *arguments: str) -> None:
        command = [self._java, *_QUICK, "-cp", self._classes, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=UP_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _cluster_id() -> str:
    # Without a sign at its front, which would be taken for an option.
    return base64.b64encode(uuid.uuid4().bytes, b"ab").decode().rstrip("=")
