"""Opens and closes Spark: one quiet session per process, on the Java and with the jars of this machine.

It does not read or write tables.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import mew
from mew.errors import MewError
from mew.pipeline import class_archive
from mew.pipeline.jars import find_jars
from mew.pipeline.java import Java, find_java
from mew.pipeline.settings import PipelineSettings, machine_memory, memory_bytes

LOGS: Final = "_logs"
ENDING_SECONDS: Final = 20
REACHING_SECONDS: Final = 10
WORKERS_SECONDS: Final = 90
"""How long a cluster may take to give us a first worker; Spark itself would wait for ever, and say nothing."""
_GLANCE_SECONDS: Final = 0.1
_JVM_LOG_BYTES: Final = 2**20
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_HERE: Final = "127.0.0.1"
_NOT_OURS: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_GATEWAY_PORT")
"""Variables that make PySpark use a Spark that another program has started."""
UI_PORTS: Final = range(4040, 4057)
"""Where Spark looks for a free port for its web UI. If there is none, its JVM ends, and only its log says why."""
_TOO_LITTLE_MEMORY: Final = re.compile(
    r"reserve (?:enough space|memory)|allocate (?:memory|metaspace|compressed class space|\w+ heap)"
    r"|insufficient memory|maximum heap|OutOfMemoryError|without a message",
    re.IGNORECASE,
)
_SILENT_END: Final = "its JVM ended without a message"
"""The system kills a process in this way when memory runs out."""
_TABLES: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A space called 007 is not 7.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # `format("mew")` applies filters while it reads.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Workers come with their modules loaded.
    "spark.python.daemon.module": "mew.pipeline.daemon",
    # The tables' logs are small: fifty tasks to read one, Delta's default, take seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
}


class SparkStartError(MewError):
    """Spark did not start."""


class SessionConflict(MewError):
    """This process has a Spark session already, and of another kind."""


class SessionOptions(msgspec.Struct, frozen=True):
    """What a session was opened with; another like it is the same session."""

    settings: PipelineSettings
    master: str
    ui: bool = False
    java_options: tuple[str, ...] = ()


class _Opened(msgspec.Struct, frozen=True):
    wanted: SessionOptions
    session: SparkSession
    sharing: int = 0
    """How many have opened it to share it."""
    owned: bool = False
    """Whether a caller has opened it explicitly: then it ends when that caller closes it."""


_lock = threading.Lock()
_opened: _Opened | None = None


def open_session(
    settings: PipelineSettings,
    *,
    lake: Path,
    master: str | None = None,
    ui: bool = False,
    java_options: tuple[str, ...] = (),
    shared: bool = False,
) -> SparkSession:
    """This process's Spark. Opened again with the same settings it is the same, whatever the lake.

    Its log is in the lake it was first opened for. `shared` is for independent callers: each closes it once, as
    `shared`, and it ends with the last of them.
    """
    global _opened  # noqa: PLW0603 - Spark itself is one a process
    wanted = SessionOptions(settings, master or settings.master, ui, java_options)
    with _lock:
        if _opened is not None and _has_died():
            _close(_opened.session, 0)
        active = SparkContext._active_spark_context
        if active is None:
            _opened = _Opened(wanted, _start(wanted, lake))
        elif _opened is None or _opened.session.sparkContext is not active:
            raise SessionConflict("this process has a Spark session that mew did not open: stop it first")
        elif _opened.wanted != wanted:
            raise SessionConflict(f"this process has a Spark session with other settings: {_differences(wanted)}")
        sharing, owned = _opened.sharing + shared, _opened.owned or not shared
        _opened = msgspec.structs.replace(_opened, sharing=sharing, owned=owned)
        return _opened.session


def close_session(session: SparkSession, *, patience: float = ENDING_SECONDS, shared: bool = False) -> None:
    """End a session, and its JVM, by force where that takes too long; nothing where it was done before.

    One that was opened as `shared` continues while others share it, or if a caller has opened it explicitly.
    """
    global _opened  # noqa: PLW0603
    with _lock:
        if _opened is None or _opened.session is not session:
            return
        if shared:
            _opened = msgspec.structs.replace(_opened, sharing=_opened.sharing - 1)
            if _opened.owned or _opened.sharing > 0:
                return
        _opened = None
        _close(session, patience)


def log_files(lake: Path) -> tuple[Path, Path]:
    """Where Spark logs, and where goes what its JVM says by itself."""
    return lake / LOGS / "spark.log", lake / LOGS / "jvm.log"


def one_line(error: BaseException) -> str:
    """What an error out of Java comes down to: the last cause that says anything, without the page around it."""
    try:
        text = str(error)
    except Exception:  # an error of Java's asks Java for its words, which may be gone
        text = "its JVM has ended"
    causes = re.findall(r"^Caused by: (\S+: .+)$", text, re.MULTILINE)
    thrown = re.findall(r"^: (\S+(?:Exception|Error): .+)$", text, re.MULTILINE)
    line = [*(text.strip().splitlines() or [type(error).__name__])[:1], *thrown[:1], *causes][-1]
    out_of_memory = re.search(r"OutOfMemoryError: ([^\n]+)", text)
    if out_of_memory is not None:
        return f"Spark has too little memory ({out_of_memory[1].strip()}): raise pipeline.driver_memory in space.yaml"
    return re.sub(r"^(?:[\w$]+\.)+(?=[\w$]+(?:Exception|Error|Throwable)\b)", "", line).strip()


def _differences(wanted: SessionOptions) -> str:
    assert _opened is not None
    here, there = (
        {**msgspec.to_builtins(each.settings), **msgspec.to_builtins(each)} for each in (_opened.wanted, wanted)
    )
    names = [name for name in here if name != "settings" and here[name] != there[name]]
    return ", ".join(f"{name} {here[name]!r}, not {there[name]!r}" for name in names)


# Starting


def _start(wanted: SessionOptions, lake: Path) -> SparkSession:
    _end_jvm()  # one that a stopped session has left has its settings, not ours
    _check_memory(wanted.settings)
    if wanted.ui:
        _check_ui_ports(_HERE if _is_here(wanted.master) else "0.0.0.0")
    _reach(wanted.master)
    java = find_java()
    conf = SparkConf(loadDefaults=False)
    for name, value in spark_settings(wanted, lake, java).items():
        conf.set(name, value)
    log, jvm_log = log_files(lake)
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "MEW_SPARK_LOG": str(log.resolve()),
        "PYSPARK_PYTHON": _workers_python(wanted.master),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **({"SPARK_LOCAL_IP": _HERE} if _is_here(wanted.master) else {}),
    }
    with _environment(environment), _jvm_output(jvm_log) as output, _own_interrupts():
        session = _connect(conf, output, jvm_log, wanted.settings)
    try:
        _await_worker(session, wanted)
    except BaseException:
        _close(session, ENDING_SECONDS)
        raise
    return session


def _check_memory(settings: PipelineSettings) -> None:
    """Raise `SparkStartError` if the driver may use more memory than the machine has: the system would kill it."""
    memory = machine_memory()
    if memory_bytes(settings.driver_memory) > memory:
        raise SparkStartError(
            f"too little memory: pipeline.driver_memory is {settings.driver_memory}, and this machine has "
            f"{memory // 2**20}m. Set pipeline.driver_memory to at most half of that in space.yaml"
        )


def _check_ui_ports(host: str) -> None:
    """Raise `SparkStartError` if every port for the web UI is occupied."""
    for port in UI_PORTS:
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue
        return
    raise SparkStartError(
        f"Spark's web UI needs a free port, and all from {UI_PORTS[0]} to {UI_PORTS[-1]} are occupied: "
        "end a program that uses one of them, or start without --ui"
    )


def _connect(conf: SparkConf, output: IO[bytes], jvm_log: Path, settings: PipelineSettings) -> SparkSession:
    length_before = output.tell()
    try:
        gateway = launch_gateway(conf, {"stdout": output, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
        return SparkSession.builder.getOrCreate()
    except Exception as error:  # of Python's, PySpark's or Java's making: all mean the same
        why = one_line(error)  # as long as Java can be asked
        _end_jvm()
        if "JAVA_GATEWAY_EXITED" in why:
            why = _first_complaint(jvm_log.read_bytes()[length_before:]) or _SILENT_END
        raise SparkStartError(
            f"Spark did not start: {_start_problem(why, settings)} (more in {jvm_log.parent})"
        ) from error
    except BaseException:
        _end_jvm()
        raise


def _start_problem(why: str, settings: PipelineSettings) -> str:
    """The reason of a failed start, with what to do if the reason is memory."""
    if _TOO_LITTLE_MEMORY.search(why):
        return (
            f"too little memory for a driver with {settings.driver_memory} ({why}): end other programs, "
            "or set pipeline.driver_memory to less in space.yaml"
        )
    return why


def _first_complaint(output: bytes) -> str:
    """The first two lines of a JVM that did not start: they have the reason."""
    lines = (line.strip() for line in output.decode(errors="replace").splitlines())
    return ": ".join([line for line in lines if line and not line.startswith("WARNING:")][:2])


def spark_settings(wanted: SessionOptions, lake: Path, java: Java) -> dict[str, str]:
    """The options of Spark."""
    here = _is_here(wanted.master)
    cores = os.cpu_count() or 1
    return {
        **_TABLES,
        "spark.app.name": "mew",
        "spark.master": wanted.master,
        "spark.driver.memory": wanted.settings.driver_memory,
        "spark.executor.memory": wanted.settings.worker_memory,
        "spark.driver.maxResultSize": "0",
        "spark.driver.extraJavaOptions": _java_options(java, wanted.java_options),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_import_roots()),
        "spark.jars": ",".join(jar.as_uri() for jar in find_jars()),
        "spark.sql.warehouse.dir": (lake.resolve() / "_warehouse").as_uri(),
        "spark.ui.enabled": str(wanted.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **({"spark.driver.host": _HERE, "spark.driver.bindAddress": _HERE} if here else {}),
        **({"spark.sql.shuffle.partitions": str(2 * cores)} if wanted.master.startswith("local") else {}),
    }


def _java_options(java: Java, more: tuple[str, ...]) -> str:
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", "-XX:-UsePerfData", *more]
    archive = class_archive.find_archive(java)
    if archive is not None:
        options.append(class_archive.use_option(java, archive))
    # Quoted as Spark's launcher reads it: a folder's name may have a space.
    return " ".join('"' + re.sub(r'(["\\])', r"\\\1", option) + '"' for option in options)


def _reach(master: str) -> None:
    """Whether a master of Spark's own kind is there: Spark itself would try for a minute, then end its JVM."""
    if not master.startswith("spark://"):
        return
    problem: OSError | ValueError | None = None
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHING_SECONDS).close()
        except (OSError, ValueError) as error:
            problem = error
        else:
            return
    raise SparkStartError(f"no Spark master answers at {master}: {problem}")


def _await_worker(session: SparkSession, wanted: SessionOptions) -> None:
    """Until a cluster of Spark's own kind has given us a worker; what has no such master has its own ways to say no."""
    if not wanted.master.startswith("spark://"):
        return
    context = session.sparkContext._jsc.sc()
    deadline = time.monotonic() + WORKERS_SECONDS
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one
        if time.monotonic() > deadline:
            memory = wanted.settings.worker_memory
            raise SparkStartError(
                f"{wanted.master} has no worker for us after {WORKERS_SECONDS} s: "
                f"one needs a free core and {memory}, which is pipeline.worker_memory"
            )
        time.sleep(_GLANCE_SECONDS)


def _is_here(master: str) -> bool:
    """Whether it runs on this machine only: then no other machine needs to reach it."""
    return re.match(r"local\b|local-cluster\b|spark://(localhost|127\.[\d.]+):", master) is not None


def _workers_python(master: str) -> str:
    """On other machines Python can have another path, from `PYSPARK_PYTHON`."""
    return sys.executable if _is_here(master) else os.environ.get("PYSPARK_PYTHON", sys.executable)


def _import_roots() -> list[str]:
    """Where our modules are imported from, beyond what the environment's Python finds by itself."""
    own = [str(Path(mew.__file__).resolve().parents[1])]
    installed = {Path(sys.prefix), Path(sys.base_prefix)}
    given = [path for path in sys.path if path and not installed & {Path(path), *Path(path).parents}]
    return list(dict.fromkeys([*own, *(str(Path(path).resolve()) for path in given)]))


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """The environment in which a JVM is started, and PySpark looks about; then it is as it was."""
    before = {name: os.environ.get(name) for name in (*values, *_NOT_OURS)}
    for name in _NOT_OURS:
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _jvm_output(path: Path) -> Iterator[IO[bytes]]:
    if path.exists() and path.stat().st_size > _JVM_LOG_BYTES:
        os.truncate(path, 0)
    with path.open("ab") as output:  # the file can be truncated meanwhile: later output is appended
        yield output


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Ctrl-C stays whose it was: PySpark would take it for itself."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


# Ending


def _has_died() -> bool:
    process = SparkContext._gateway.proc if SparkContext._gateway is not None else None
    return process is not None and process.poll() is not None


def _close(session: SparkSession, patience: float) -> None:
    with suppress(Exception), warnings.catch_warnings():  # a JVM that has died is closed
        warnings.simplefilter("ignore")
        session.stop()
    # Where the JVM has died PySpark stops half-way.
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    _end_jvm(patience)


def _end_jvm(patience: float = ENDING_SECONDS) -> None:
    """The JVM that PySpark holds on to for the next session goes too."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    with suppress(Exception):  # it may be gone
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    assert process.stdin is not None
    process.stdin.close()  # the end of its input is its sign to go
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
