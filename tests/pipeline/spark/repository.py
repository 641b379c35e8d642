"""A repository of jars on this machine, as Maven lays one out, over HTTP or HTTPS."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mew.pipeline.jars import Artifact, JarList


class Repository:
    """Serves what it is given, and remembers what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self._refused: dict[str, int] = {}
        self._cut: set[str] = set()
        self.url = ""

    def publish(self, name: str, content: bytes) -> Artifact:
        """A jar, as it is described to those who want exactly this one."""
        artifact = Artifact("org.example.one", name, "1.2.3", hashlib.sha256(content).hexdigest())
        self.files[f"/org/example/one/{name}/1.2.3/{artifact.file}"] = content
        return artifact

    def refuse(self, name: str, status: int) -> None:
        """Answer requests for a jar with this status."""
        self._refused[self._path(name)] = status

    def cut_short(self, name: str) -> None:
        """Announce a jar completely and send half of it."""
        self._cut.add(self._path(name))

    def _path(self, name: str) -> str:
        return next(path for path in self.files if f"/{name}/" in path)

    def answer(self, path: str) -> tuple[int, int, bytes]:
        """Status, announced length and content for a path."""
        content = self.files.get(path, b"")
        status = self._refused.get(path, 200 if path in self.files else 404)
        if status != 200:
            return status, 0, b""
        return status, len(content), content[: len(content) // 2] if path in self._cut else content

    def publish_list(self) -> JarList:
        """Three jars of a few kilobytes."""
        names = ("alpha_2.13", "beta", "gamma-0-10")
        return JarList("few", tuple(self.publish(name, name.encode() * 1000) for name in names))


@contextmanager
def serving(trusting: ssl.SSLContext | None = None) -> Iterator[Repository]:
    """A repository for as long as it is needed."""
    repository = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append(self.path)
            repository.logins.append(self.headers["Authorization"])
            status, length, content = repository.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if trusting is not None:
            server.socket = trusting.wrap_socket(server.socket, server_side=True)
        repository.url = f"{'https' if trusting else 'http'}://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, name="repository")
        thread.start()
        try:
            yield repository
        finally:
            server.shutdown()
            thread.join()
