"""Runs a plan on a pipeline, waits until it has come to rest, and collects what there is."""

import bisect
import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from acker.errors import AckerError
from acker.ledger import open_ledger
from acker.store import Store as AckerStore
from acker.totals import Totals, totals
from tests.chaos.faults import Injected, NoEffect, inject
from tests.chaos.pipeline import TOPOLOGY, Pipeline, pipeline
from tests.chaos.plan import Fault, Store, plan
from tests.chaos.report import Done, Report
from tests.chaos.source import BEAT, OPEN
from tests.chaos.verdict import Collected, judge

READY_WITHIN = 600.0
CALM_WITHIN = 600.0
REST_WITHIN = 900.0
DRIVER_WITHIN = 60.0
"""Seconds that the plan waits at most for a driver that was killed."""
_LOOK = 0.1
_AGAIN = 0.5


class NotReady(Exception):
    """The pipeline did not come to what was waited for."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for. every: seconds from one fault to the next, about. rate: records per second."""

    seed: int
    minutes: float
    store: Store = "server"
    kind: str = "valkey"
    every: float = 3.0
    rate: float = 20.0
    message_timeout: float = 15.0


@dataclass(slots=True)
class _Active:
    """A fault that has not ended."""

    done: Done
    injected: Injected
    due: float


@dataclass(slots=True)
class Run:
    """One run. say: is told what happens, line by line."""

    options: Options
    directory: Path
    say: Callable[[str], None]
    _done: list[Done] = field(default_factory=list)
    _active: list[_Active] = field(default_factory=list)
    _began: float = 0.0
    _driver_killed: float = 0.0

    def run(self) -> Report:
        """Raises NotReady where the pipeline does not start, or does not run again after the faults."""
        asked = self.options
        with pipeline(self.directory, asked.store, asked.kind, asked.message_timeout, asked.rate) as running:
            self.say(f"store {running.url}; the pipeline starts")
            self._start(running)
            self._harm(running, plan(asked.seed, asked.minutes, asked.store, asked.every))
            running.records.note(OPEN, 0)
            calm = self._calm_down(running)
            self._rest(running)
            found = self._collect(running, calm)
            return self._report(running, found)

    def _wait(self, running: Pipeline, what: str, condition: Callable[[], bool], limit: float) -> bool:
        """Waits for a condition, while the processes are supervised; returns whether it came."""
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                self.say(f"not within {limit:.0f} s: {what}")
                return False
            running.look()
            time.sleep(_LOOK)
        return True

    def _start(self, running: Pipeline) -> None:
        spark = (running.split, running.count, running.source)
        if not self._wait(running, "ready", lambda: all(one.ready for one in spark), READY_WITHIN):
            raise NotReady(f"the pipeline did not start; its logs are in {running.directory}")
        running.records.note(OPEN, 1)
        first = self._wait(
            running, "acks", lambda: running.records.states().get("acked", 0) > 0, READY_WITHIN
        )
        if not first:
            raise NotReady("no record was acked before the first fault")

    def _harm(self, running: Pipeline, faults: list[Fault]) -> None:
        self._began = time.monotonic()
        self.say(f"{len(faults):,} faults in {self.options.minutes:g} minutes")
        left, last, stood = faults[::-1], 0.0, 0.0
        while left or self._active:
            now = time.monotonic() - self._began
            # A driver takes long to start on a slow machine. What happens to a pipeline that does nothing
            # meanwhile shows little, so the plan waits for it.
            absent = not (running.split.ready and running.count.ready)
            stand = now - last if absent and now - self._driver_killed < DRIVER_WITHIN else 0.0
            stood, last = stood + stand, now
            if left and left[-1].at <= now - stood:
                self._inject(running, left.pop())
                continue
            for one in [one for one in self._active if one.due <= now]:
                self._end(one)
            running.look()
            time.sleep(_LOOK)

    def _inject(self, running: Pipeline, fault: Fault) -> None:
        done = Done(fault, round(time.monotonic() - self._began, 3))
        self._done.append(done)
        self.say(f"{done.began:8.1f} s  {fault.kind} ({fault.duration:.1f} s)")
        try:
            injected = inject(running, fault)
        except NoEffect as error:
            done.ended, done.why = done.began, str(error)
            return
        if fault.kind == "driver killed":
            self._driver_killed = done.began
        self._active.append(_Active(done, injected, done.began + fault.duration))

    def _end(self, one: _Active) -> None:
        if not one.injected.end():
            one.due += _AGAIN
            return
        one.done.ended = round(time.monotonic() - self._began, 3)
        one.done.took = one.injected.took()
        self._active.remove(one)

    def _calm_down(self, running: Pipeline) -> float:
        """Waits until all processes run and work; returns when that was."""
        stopped = time.monotonic()
        self.say("the faults are over")

        def calm() -> bool:
            beat = running.records.fact(BEAT) or 0.0
            ready = all(process.ready for process in running.processes)
            return ready and beat > stopped and self._service(running) is not None

        self._wait(running, "calm", calm, CALM_WITHIN)
        return time.monotonic()

    def _rest(self, running: Pipeline) -> None:
        """Waits until each record has its end, and the ledger has nothing left."""

        def resting() -> bool:
            states = running.records.states()
            if running.records.wishes() or states.get("waiting") or states.get("flying"):
                return False
            held = self._totals(running)
            return held is not None and held.held == 0

        self._wait(running, "rest", resting, REST_WITHIN)

    def _totals(self, running: Pipeline) -> Totals | None:
        try:
            ledger = open_ledger(
                AckerStore(running.url), TOPOLOGY, message_timeout=self.options.message_timeout
            )
            return ledger.run(totals(ledger.core))
        except AckerError:
            return None

    def _service(self, running: Pipeline) -> dict[str, int] | None:
        """The counters that the service tells."""
        address = f"http://127.0.0.1:{running.port}/api/v1/topologies/{TOPOLOGY}"
        try:
            with urllib.request.urlopen(address, timeout=5.0) as reply:
                found: dict[str, int] = json.load(reply)["counters"]
                return found
        except (OSError, ValueError, KeyError):
            return None

    def _collect(self, running: Pipeline, calm: float) -> Collected:
        last = self._totals(running)
        if last is None:
            raise NotReady("the store does not answer at the end")
        return Collected(
            records=running.records.records(),
            trees=running.records.trees(),
            sink=dict(running.sink.records()),
            oddities=running.records.oddities(),
            counters=last.counters,
            pending=last.pending,
            held=last.held,
            service=self._service(running),
            calm=calm,
            message_timeout=self.options.message_timeout,
            rollbacks=running.rollbacks,
            died={process.name: process.ends for process in running.processes},
        )

    def _report(self, running: Pipeline, found: Collected) -> Report:
        asked = self.options
        acks = sorted(tree.told for tree in found.trees if tree.told and tree.status == "acked")
        for one in self._done:
            ended = self._began + one.ended
            place = bisect.bisect_right(acks, ended)
            one.recovery = round(acks[place] - ended, 3) if place < len(acks) else None
        return Report(
            seed=asked.seed,
            minutes=asked.minutes,
            store=asked.store,
            kind=asked.kind,
            message_timeout=asked.message_timeout,
            seconds=round(time.monotonic() - self._began, 1),
            records=len(found.records),
            acked=sum(one.state == "acked" for one in found.records),
            dead=sum(one.state == "dead" for one in found.records),
            trees=len(found.trees),
            expired=sum(tree.status == "expired" for tree in found.trees),
            failed=sum(tree.status == "failed" for tree in found.trees),
            counters=dict(found.counters),
            restarts={process.name: process.starts - 1 for process in running.processes},
            died=dict(found.died or {}),
            problems=judge(found),
            done=self._done,
        )
