"""Kinds of faults: how each begins and ends; faults of the store are in store_faults.py."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import redis

from harness.chaos import clock, store_faults
from harness.chaos.injected import HOUR, Injected, NoEffect
from harness.chaos.network import Copies, Slow
from harness.chaos.pipeline import Pipeline, Supervised
from harness.chaos.plan import Fault
from harness.chaos.records import HANG, POISON
from harness.chaos.source import INTERRUPTS
from tests.helpers.faults.proxy import Proxy, every_call_once

_POISONED = 3


def inject(pipeline: Pipeline, fault: Fault) -> Injected:
    """Brings a fault about. Raises NoEffect where it cannot be: its target is not there."""
    try:
        return _FAULTS[fault.kind](pipeline, fault)
    except redis.RedisError as error:
        raise NoEffect(f"the store does not answer: {error}") from error


def _spout_interrupted(pipeline: Pipeline, fault: Fault) -> Injected:
    if not pipeline.source.ready:
        raise NoEffect("the source is not at work")
    before = pipeline.records.fact(INTERRUPTS) or 0.0
    chance, deadline = random.Random(fault.target), time.monotonic() + fault.duration
    while time.monotonic() < deadline:
        for pid in pipeline.source.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        time.sleep(chance.uniform(0.0, 0.2))
    return Injected(took=lambda: (pipeline.records.fact(INTERRUPTS) or 0.0) > before)


def _killed(fault: Fault, *processes: Supervised) -> Injected:
    """Kills processes that are at work; a process that still starts is left alone."""
    for process in processes:
        if not process.ready:
            raise NoEffect(f"{process.name} is not at work")
    for process in processes:
        process.kill(fault.duration)
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
    return _killed(fault, (pipeline.split, pipeline.count)[fault.choose(2)])


def _proxy(pipeline: Pipeline, fault: Fault) -> Proxy:
    assert pipeline.network is not None
    return pipeline.network.proxies[fault.choose(len(pipeline.network.proxies))]


def _connections_cut(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy = _proxy(pipeline, fault)
    proxy.refuse = True
    if not proxy.cut_all():
        proxy.refuse = False
        raise NoEffect("there is no connection")

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


def _hook(proxy: Proxy, hook: Slow | Copies) -> None:
    if isinstance(proxy.passed, Slow | Copies):
        raise NoEffect("its requests are slow or doubled already")
    proxy.passed = hook


def _unhook(proxy: Proxy) -> None:
    proxy.passed = lambda *_: None


def _slow_network(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy, slow = _proxy(pipeline, fault), Slow(fault.target)
    _hook(proxy, slow)

    def end() -> bool:
        _unhook(proxy)
        return True

    return Injected(end, lambda: slow.delayed > 0)


def _doubled(pipeline: Pipeline, fault: Fault) -> Injected:
    proxy, copies, delivered = _proxy(pipeline, fault), Copies(), list[int]()
    _hook(proxy, copies)

    def end() -> bool:
        _unhook(proxy)
        [server] = pipeline.servers()
        delivered.append(copies.deliver(server.port, random.Random(fault.target)))
        return True

    return Injected(end, lambda: bool(copies.held) or sum(delivered) > 0)


def _clock_jumps(pipeline: Pipeline, fault: Fault) -> Injected:
    clock.jump(pipeline.clock, HOUR if fault.choose(2) else -HOUR)

    def end() -> bool:
        clock.jump(pipeline.clock, 0.0)
        return True

    return Injected(end)


def _poison(pipeline: Pipeline, fault: Fault) -> Injected:
    pipeline.records.wish(POISON, _POISONED)
    return Injected()


def _bolt_hangs(pipeline: Pipeline, fault: Fault) -> Injected:
    before = pipeline.hangs()
    if pipeline.hangs_wished <= before:  # or else one is on its way, which is slow
        pipeline.records.wish(HANG)
        pipeline.hangs_wished += 1
    return Injected(took=lambda: pipeline.hangs() > before)


_FAULTS: dict[str, Callable[[Pipeline, Fault], Injected]] = {
    **store_faults.FAULTS,
    "spout interrupted": _spout_interrupted,
    "executor killed": _executor_killed,
    "driver killed": _driver_killed,
    "spout killed": lambda pipeline, fault: _killed(fault, pipeline.source),
    "every ticker killed": lambda pipeline, fault: _killed(fault, *pipeline.tickers),
    "service killed": lambda pipeline, fault: _killed(fault, pipeline.service),
    "connections cut": _connections_cut,
    "replies lost": _replies_lost,
    "slow network": _slow_network,
    "clock jumps": _clock_jumps,
    "messages doubled": _doubled,
    "poison": _poison,
    "bolt hangs": _bolt_hangs,
}
