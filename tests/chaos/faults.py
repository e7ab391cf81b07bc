"""How each kind of fault is brought about, and how it ends."""

import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker.embedded import EmbeddedServer
from tests.chaos import clock
from tests.chaos.network import Copies, Slow
from tests.chaos.pipeline import Pipeline, Supervised
from tests.chaos.plan import Fault
from tests.chaos.records import HANG, POISON
from tests.proxy import Proxy, every_call_once

HOUR = 3600.0
_POISONED = 3
_FAILOVER = 5.0
"""Seconds after a node is back in which a master that was replaced may still tell what was lost."""


class NoEffect(Exception):
    """The fault can not take effect now, for the reason given."""


class Injected:
    """A fault under way. end: undoes it; False: not yet, ask again. took: whether it has taken effect."""

    def __init__(
        self, end: Callable[[], bool] = lambda: True, took: Callable[[], bool] = lambda: True
    ) -> None:
        self.end = end
        self.took = took


def inject(pipeline: Pipeline, fault: Fault) -> Injected:
    """Brings a fault about. Raises NoEffect where it can not be: its target is not there."""
    try:
        return _FAULTS[fault.kind](pipeline, fault)
    except redis.RedisError as error:
        raise NoEffect(f"the store does not answer: {error}") from error


@contextmanager
def client(server: EmbeddedServer) -> Iterator[Any]:
    """A plain client of one server, which does not wait long."""
    retry = Retry(NoBackoff(), 0)
    with redis.Redis("127.0.0.1", server.port, socket_timeout=1.0, retry=retry, protocol=2) as made:
        yield made


def _target(pipeline: Pipeline, fault: Fault) -> EmbeddedServer:
    servers = [server for server in pipeline.servers() if server.running]
    if not servers:
        raise NoEffect("no server runs")
    return servers[fault.choose(len(servers))]


def _is_master(server: EmbeddedServer) -> bool:
    with client(server) as raw:
        return bool(raw.execute_command("ROLE")[0] == b"master")


def _server_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    server = _target(pipeline, fault)
    began = time.monotonic()
    with contextlib.suppress(redis.RedisError), client(server) as raw:
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
    masters = [server for server in servers if _is_master(server)]
    if len(masters) != pipeline.cluster.masters:
        raise NoEffect("a node is being replaced")
    doomed = masters[fault.choose(len(masters))]
    others = [server for server in servers if server is not doomed]
    began = time.monotonic()
    doomed.kill()

    def end() -> bool:
        # Its data are gone with it: back before a replica has its place, it would be an empty master.
        if sum(map(_is_master, others)) < len(masters):
            return False
        doomed.start()
        pipeline.rollbacks.append((began, time.monotonic() + _FAILOVER))
        return True

    return Injected(end)


def _killed(process: Supervised, fault: Fault) -> Injected:
    if not process.kill(fault.duration):
        raise NoEffect(f"{process.name} is down already")
    return Injected()


def _executor_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    found = []
    for pid in pipeline.split.members():
        with contextlib.suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    if not found:
        raise NoEffect("there is no executor")
    os.kill(found[fault.choose(len(found))], signal.SIGKILL)
    return Injected()


def _driver_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    return _killed((pipeline.split, pipeline.count)[fault.choose(2)], fault)


def _tickers_killed(pipeline: Pipeline, fault: Fault) -> Injected:
    killed = [ticker.kill(fault.duration) for ticker in pipeline.tickers]
    if not any(killed):
        raise NoEffect("they are down already")
    return Injected()


def _each(pipeline: Pipeline, *words: str) -> int:
    """Has each master do a command; returns how many have."""
    done = 0
    for server in pipeline.servers():
        with contextlib.suppress(redis.RedisError), client(server) as raw:
            if server.running and _is_master(server):
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


def _proxy(pipeline: Pipeline, fault: Fault) -> Proxy:
    assert pipeline.network is not None
    return pipeline.network.proxies[fault.choose(len(pipeline.network.proxies))]


def _connections_cut(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy = _proxy(pipeline, fault)
    proxy.refuse = True
    proxy.cut_all()

    def end() -> bool:
        proxy.refuse = False
        return True

    return Injected(end)


def _replies_lost(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy = _proxy(pipeline, fault)
    before = proxy.cuts
    proxy.swallow = every_call_once()

    def end() -> bool:
        proxy.swallow = lambda _: False
        return True

    return Injected(end, lambda: proxy.cuts > before)


def _slow_network(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy, slow = _proxy(pipeline, fault), Slow(fault.target)
    proxy.passed = slow

    def end() -> bool:
        if proxy.passed is slow:
            proxy.passed = lambda *_: None
        return True

    return Injected(end, lambda: slow.delayed > 0)


def _doubled(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy, copies, delivered = _proxy(pipeline, fault), Copies(), list[int]()
    proxy.passed = copies

    def end() -> bool:
        if proxy.passed is copies:
            proxy.passed = lambda *_: None
        [server] = pipeline.servers()
        delivered.append(copies.deliver(server.port, random.Random(fault.target)))
        return True

    return Injected(end, lambda: sum(delivered) > 0)


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
    full: list[bool] = []

    def end() -> bool:
        if not server.running or server.pid != pid:
            return True
        with contextlib.suppress(redis.RedisError), client(server) as raw:
            full.append(raw.info("persistence")["aof_last_write_status"] != "ok")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        return True

    return Injected(end, lambda: any(full))


def _memory_full(pipeline: Pipeline, fault: Fault) -> Injected:
    servers = [server for server in pipeline.servers() if server.running and _is_master(server)]
    if not servers:
        raise NoEffect("no master runs")
    server = servers[fault.choose(len(servers))]
    pid = server.pid
    with client(server) as raw:
        raw.config_set("maxmemory", 1)
        try:
            raw.execute_command("SET", "chaos:{0}:probe", 1, "EX", 1)
            refused = False
        except redis.OutOfMemoryError:
            refused = True
        except redis.ResponseError:
            refused = True  # of a cluster: the probe's slot is elsewhere

    def end() -> bool:
        if not server.running or server.pid != pid:
            return True
        try:
            with client(server) as raw:
                raw.config_set("maxmemory", 0)
        except redis.RedisError:
            return False
        return True

    return Injected(end, lambda: refused)


def _clock_jumps(pipeline: Pipeline, fault: Fault) -> Injected:
    clock.jump(pipeline.clock, HOUR if fault.choose(2) else -HOUR)

    def end() -> bool:
        clock.jump(pipeline.clock, 0.0)
        return True

    return Injected(end)


def _wish(word: str, count: int) -> Callable[[Pipeline, Fault], Injected]:
    def inject(pipeline: Pipeline, fault: Fault) -> Injected:
        pipeline.records.wish(word, count)
        return Injected()

    return inject


_FAULTS: dict[str, Callable[[Pipeline, Fault], Injected]] = {
    "server killed": _server_killed,
    "master killed": _master_killed,
    "executor killed": _executor_killed,
    "driver killed": _driver_killed,
    "spout killed": lambda pipeline, fault: _killed(pipeline.source, fault),
    "every ticker killed": _tickers_killed,
    "service killed": lambda pipeline, fault: _killed(pipeline.service, fault),
    "everything flushed": _flushed,
    "scripts flushed": _scripts_flushed,
    "connections cut": _connections_cut,
    "replies lost": _replies_lost,
    "short stall": _stall,
    "long stall": _stall,
    "slow network": _slow_network,
    "disk full": _disk_full,
    "memory full": _memory_full,
    "clock jumps": _clock_jumps,
    "messages doubled": _doubled,
    "poison": _wish(POISON, _POISONED),
    "bolt hangs": _wish(HANG, 1),
}
