"""Faults of the store: how each is brought about, and how it ends."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker.embedded import EmbeddedServer
from acker.errors import AckerError
from acker.store import keys
from acker.store.client import Store as AckerStore
from acker.store.operation import command
from harness.chaos.injected import HOUR, Injected, NoEffect
from harness.chaos.pipeline import TOPOLOGY, Pipeline
from harness.chaos.plan import CLIENT_TIMEOUT, Fault

_STEPS = (10.0, -10.0, 2 * HOUR, -2 * HOUR, 48 * HOUR, -48 * HOUR)
"""By so many seconds the server's clock steps, and back again."""


_SYNC = 20.0
"""Seconds that a new replica may take to get a copy."""


_FAILOVER = 5.0
"""Seconds after a node is back in which a master that was replaced may still tell what was lost."""


@contextmanager
def client(server: EmbeddedServer) -> Iterator[Any]:
    """A plain client of one server, which does not wait long."""
    retry = Retry(NoBackoff(), 0)
    with redis.Redis("127.0.0.1", server.port, socket_timeout=1.0, retry=retry, protocol=2) as made:
        yield made


def _masters(servers: Sequence[EmbeddedServer]) -> list[EmbeddedServer]:
    """The masters that answer."""
    found = []
    for server in servers:
        with contextlib.suppress(redis.RedisError):
            if server.running:
                with client(server) as raw:
                    if raw.execute_command("ROLE")[0] == b"master":
                        found.append(server)
    return found


def _target(pipeline: Pipeline, fault: Fault) -> EmbeddedServer:
    masters = _masters(pipeline.servers())
    if not masters:
        raise NoEffect("no master answers")
    return masters[fault.choose(len(masters))]


def _server_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    [server] = pipeline.servers()
    if not server.running:
        raise NoEffect("the server is down already")
    began = time.monotonic()
    with client(server) as raw:
        # What it answered while its file took nothing is in its memory alone.
        if raw.info("persistence")["aof_last_write_status"] != "ok":
            pipeline.rollbacks.append((began, began))
    server.kill()
    return Injected(lambda: server.start().running)


def _master_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    assert pipeline.cluster is not None
    servers = pipeline.cluster.servers
    if not all(server.running for server in servers):
        raise NoEffect("a node is down already")
    masters = _masters(servers)
    if len(masters) != pipeline.cluster.masters:
        raise NoEffect("a node is being replaced")
    doomed = masters[fault.choose(len(masters))]
    others = [server for server in servers if server is not doomed]
    began = time.monotonic()
    doomed.kill()

    def end() -> bool:
        # Its data are gone with it: back before a replica has its place, it would be an empty master.
        if len(_masters(others)) < len(masters):
            return False
        doomed.start()
        pipeline.rollbacks.append((began, time.monotonic() + _FAILOVER))
        return True

    return Injected(end)


def _replica_promoted(pipeline: Pipeline, fault: Fault) -> Injected:
    """A replica that has not heard of the last moments takes the place of its master."""
    [server] = pipeline.servers()
    options = {"replicaof": f"127.0.0.1 {server.port}"}
    replica = pipeline.another_server(options=options)
    deadline = time.monotonic() + _SYNC

    def synced(raw: Any) -> bool:
        file = raw.info("persistence")
        busy = file["aof_rewrite_in_progress"] or file["aof_rewrite_scheduled"]
        return bool(raw.role()[3] == b"connected" and not busy)

    try:
        with client(server) as raw:
            raw.ping()
        with client(replica.start()) as raw:
            while not synced(raw):
                if time.monotonic() > deadline or not server.running:
                    raise NoEffect("the replica got no copy")
                time.sleep(0.05)
            raw.execute_command("REPLICAOF", "NO", "ONE")
        cut = time.monotonic()
        time.sleep(fault.duration)  # what is answered now is lost
        server.kill()
    finally:
        replica.stop()
    pipeline.server = pipeline.another_server(replica.directory, port=server.port).start()
    pipeline.rollbacks.append((cut, time.monotonic() + _FAILOVER))
    return Injected()


def _file_cut(pipeline: Pipeline, fault: Fault) -> Injected:
    """The server ends, and the end of its file is gone, as by power."""
    [server] = pipeline.servers()

    def end_of_file() -> tuple[Path, int]:
        files = (server.directory / "appendonlydir").glob("*.incr.aof")
        newest = max(files, key=lambda file: file.stat().st_mtime)
        return newest, newest.stat().st_size

    with client(server) as raw:
        raw.ping()
    cut, (file, size) = time.monotonic(), end_of_file()
    time.sleep(fault.duration)
    if end_of_file()[0] != file or end_of_file()[1] <= size:
        raise NoEffect("nothing was written, or another file was begun")
    server.kill()
    os.truncate(file, size)
    server.start()
    pipeline.rollbacks.append((cut, time.monotonic() + _FAILOVER))
    return Injected()


def _server_clock_steps(pipeline: Pipeline, fault: Fault) -> Injected:
    server, server_clock = _target(pipeline, fault), pipeline.server_clock
    assert server_clock is not None
    step = _STEPS[fault.choose(len(_STEPS))]
    server_clock.set(step)
    seen = False

    def took() -> bool:
        nonlocal seen
        if not seen:
            with contextlib.suppress(redis.RedisError), client(server) as raw:
                seen = abs(raw.time()[0] - time.time()) > 5
        return seen

    def end() -> bool:
        server_clock.set(0.0)
        return True

    return Injected(end, took)


def _registration_lost(pipeline: Pipeline, fault: Fault) -> Injected:
    """The configuration and the names of the spouts alone, as of their master in a cluster."""
    try:
        [gone] = AckerStore(pipeline.url, timeout=CLIENT_TIMEOUT).send(
            [command("DEL", keys.config(TOPOLOGY))]
        )
        if fault.choose(2):  # half the time another spout is the first to come
            pipeline.rival.work()
    except AckerError as error:
        raise NoEffect(f"the store does not answer: {error}") from error
    if not gone:
        raise NoEffect("there was no registration")
    return Injected()


def _each(pipeline: Pipeline, *words: str) -> int:
    """Has each master do a command; returns how many have."""
    done = 0
    for server in _masters(pipeline.servers()):
        with contextlib.suppress(redis.RedisError), client(server) as raw:
            raw.execute_command(*words)
            done += 1
    return done


def _flushed(pipeline: Pipeline, fault: Fault) -> Injected:
    if not _each(pipeline, "FLUSHALL"):
        raise NoEffect("no server answers")
    return Injected()


def _scripts_flushed(pipeline: Pipeline, fault: Fault) -> Injected:
    if not _each(pipeline, "SCRIPT FLUSH"):
        raise NoEffect("no server answers")
    return Injected()


def _stall(pipeline: Pipeline, fault: Fault) -> Injected:
    server, began = _target(pipeline, fault), time.monotonic()
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)

    def end() -> bool:
        if server.running and server.pid == pid:
            os.kill(pid, signal.SIGCONT)
            if pipeline.cluster is not None:
                pipeline.rollbacks.append((began, time.monotonic() + _FAILOVER))
        return True

    return Injected(end)


def _disk_full(pipeline: Pipeline, fault: Fault) -> Injected:
    """No file of the server may grow any more: writes of the append-only file fail with EFBIG."""
    server = _target(pipeline, fault)
    pid = server.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    sizes = [path.stat().st_size for path in server.directory.rglob("*.aof")]
    if not sizes:
        raise NoEffect("the server has no append-only file")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (min(sizes), hard))
    full = False

    def took() -> bool:
        nonlocal full
        if not full:
            _same(server, pid)
            with contextlib.suppress(redis.RedisError), client(server) as raw:
                full = raw.info("persistence")["aof_last_write_status"] != "ok"
        return full

    def end() -> bool:
        if server.running and server.pid == pid:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        return True

    return Injected(end, took)


def _same(server: EmbeddedServer, pid: int) -> None:
    if not server.running or server.pid != pid:
        raise NoEffect("the server was killed meanwhile")


def _refusals(server: EmbeddedServer) -> int:
    """The number of commands that a server has refused for want of memory."""
    with client(server) as raw:
        found: dict[str, int] = raw.info("errorstats").get("errorstat_OOM", {"count": 0})
        return found["count"]


def _memory_full(pipeline: Pipeline, fault: Fault) -> Injected:
    server = _target(pipeline, fault)
    pid, before = server.pid, _refusals(server)
    refused = False

    def took() -> bool:
        nonlocal refused
        if not refused:
            _same(server, pid)
            with contextlib.suppress(redis.RedisError):
                refused = _refusals(server) > before
        return refused

    with contextlib.suppress(redis.RedisError), client(server) as raw:
        # It may do so and its answer come late, so this is under way whatever is heard of it.
        raw.config_set("maxmemory", 1)

    def end() -> bool:
        if not server.running or server.pid != pid:
            return True
        try:
            with client(server) as raw:
                raw.config_set("maxmemory", 0)
        except redis.RedisError:
            return False
        return True

    return Injected(end, took)


FAULTS: dict[str, Callable[[Pipeline, Fault], Injected]] = {
    "server killed": _server_killed,
    "master killed": _master_killed,
    "replica promoted": _replica_promoted,
    "file cut": _file_cut,
    "server's clock steps": _server_clock_steps,
    "registration lost": _registration_lost,
    "everything flushed": _flushed,
    "scripts flushed": _scripts_flushed,
    "short stall": _stall,
    "long stall": _stall,
    "disk full": _disk_full,
    "memory full": _memory_full,
}
