"""A repository of jars on this machine, as Maven lays one out, over HTTP or HTTPS."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mew.pipeline.connectors import JarList
from mew.pipeline.ivy import Artifact


class Repository:
    """Serves what it is given, and remembers what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.url = ""

    def publish(self, name: str, content: bytes) -> Artifact:
        """A jar, as it is described to those who want exactly this one."""
        artifact = Artifact("org.example.one", name, "1.2.3", hashlib.sha256(content).hexdigest())
        self.files[f"/org/example/one/{name}/1.2.3/{artifact.file}"] = content
        return artifact

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
            self._answer(with_content=True)

        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def _answer(self, *, with_content: bool) -> None:
            content = repository.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if with_content and content:
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
