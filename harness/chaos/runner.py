"""Runs a plan on a pipeline, waits until it has come to rest, and collects what there is."""

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from acker.errors import AckerError
from acker.inspect.topology.totals import Totals, totals
from acker.ledger.client import open_ledger
from acker.store.client import Store as AckerStore
from harness.chaos.faults import inject
from harness.chaos.injected import Injected, NoEffect
from harness.chaos.pipeline import TOPOLOGY, Pipeline, pipeline
from harness.chaos.plan import Fault, Store, plan
from harness.chaos.report import Done, Report, stand_stills
from harness.chaos.source import BEAT, OPEN
from harness.chaos.verdict import Collected, judge
from tests.helpers.models import leaks
from tests.helpers.servers.servers import raw_clients

READY_WITHIN = 600.0
CALM_WITHIN = 600.0
REST_WITHIN = 900.0
DRIVER_WITHIN = 180.0
"""Seconds that the plan waits at most for a driver that was killed."""
EFFECT_WITHIN = 60.0
"""Seconds for which a fault goes on beyond its time where it has not taken effect; then it is tried again."""
HARM_TIMES, HARM_MORE = 4.0, 900.0
"""All faults together have so many times the plan's length, and so many seconds: a bound, not a schedule."""
_LOOK = 0.1
_AGAIN = 0.5


class NotReady(Exception):
    """The pipeline did not come to what was waited for."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. every: seconds from one fault to the next, about. rate: records per second."""

    seed: int
    minutes: float
    store: Store = "server"
    kind: str = "valkey"
    every: float = 3.0
    rate: float = 20.0
    message_timeout: float = 15.0
    only: Sequence[str] = ()

    def plan(self) -> list[Fault]:
        """The faults of the run."""
        return plan(self.seed, self.minutes, self.store, self.every, self.kind, self.only)


@dataclass(slots=True)
class _Active:
    """A fault that has not ended. due: when to look whether it can; limit: when it has to, effect or none."""

    done: Done
    injected: Injected
    due: float
    limit: float


@dataclass(slots=True)
class Run:
    """One run. say: is called with what happens, line by line."""

    options: Options
    directory: Path
    say: Callable[[str], None]
    _done: list[Done] = field(default_factory=list)
    _active: list[_Active] = field(default_factory=list)
    _left: list[Fault] = field(default_factory=list)
    _began: float = 0.0
    _over: float = 0.0
    _driver_killed: float = 0.0

    def run(self) -> Report:
        """Raises NotReady where the pipeline does not start, or does not run again after the faults."""
        asked = self.options
        with pipeline(self.directory, asked.store, asked.kind, asked.message_timeout, asked.rate) as running:
            self.say(f"store {running.url}; the pipeline starts")
            self._start(running)
            self._harm(running, asked.plan())
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
        """Goes on until each fault of the plan took effect once, or the bound of time is reached."""
        self._began = time.monotonic()
        self.say(f"{len(faults):,} faults in {self.options.minutes:g} minutes")
        self._left, last, stood, again = faults[::-1], 0.0, 0.0, 0.0
        bound = HARM_TIMES * 60 * self.options.minutes + HARM_MORE
        while self._left or self._active:
            now = time.monotonic() - self._began
            if now > bound:
                self.say(f"not within {bound:.0f} s: the end of the plan")
                break
            # A driver takes long to start on a slow machine. What happens to a pipeline that does nothing
            # meanwhile shows little, so the plan waits for it; and for the target of the next fault.
            absent = not (running.split.ready and running.count.ready)
            waits = (absent and now - self._driver_killed < DRIVER_WITHIN) or again > 0
            stood, last = stood + waits * (now - last), now
            if self._left and self._left[-1].at <= now - stood and now >= again:
                if self._inject(running, self._left[-1]):
                    self._left.pop()
                    again = 0.0
                    continue
                again = now + _AGAIN
            for one in [one for one in self._active if one.due <= now]:
                self._end(one, now)
            running.look()
            time.sleep(_LOOK)
        for one in self._active:
            one.injected.end()
        self._over = time.monotonic()

    def _inject(self, running: Pipeline, fault: Fault) -> bool:
        """True if the fault took effect. One of a kind at a time: two would end together."""
        if any(one.done.fault.kind == fault.kind for one in self._active):
            return False
        began = round(time.monotonic() - self._began, 3)
        try:
            injected = inject(running, fault)
        except NoEffect:
            return False
        self.say(f"{began:8.1f} s  {fault.kind} ({fault.duration:.1f} s)")
        if fault.kind == "driver killed":
            self._driver_killed = began
        done = Done(fault, began)
        self._done.append(done)
        due = began + fault.duration
        self._active.append(_Active(done, injected, due, due + EFFECT_WITHIN))
        return True

    def _end(self, one: _Active, now: float) -> None:
        done = one.done
        try:
            done.took = done.took or one.injected.took()
        except NoEffect:
            one.limit = now
        if not (done.took or now >= one.limit) or not one.injected.end():
            one.due = now + _AGAIN
            return
        with suppress(NoEffect):
            done.took = one.injected.took()
        done.ended = round(time.monotonic() - self._began, 3)
        self._active.remove(one)
        if not done.took:
            self.say(f"{done.ended:8.1f} s  {done.fault.kind}: without effect, tried again")
            self._left.append(done.fault)

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
            running.rival.take()
            states = running.records.states()
            if running.records.wishes() or states.get("waiting") or states.get("flying"):
                return False
            found = self._totals(running)
            return found is not None and found.outstanding == 0

        self._wait(running, "rest", resting, REST_WITHIN)
        # Three ticks take what came late for trees that were over.
        limit = 3 * self.options.message_timeout + EFFECT_WITHIN
        self._wait(running, "no keys left", lambda: not self._keys_left(running), limit)

    @staticmethod
    def _keys_left(running: Pipeline) -> list[str]:
        """Keys that only trees, or calls under way, should have: none at rest.

        A store that was set back behind the ack of a segment has the segment until the stream's limit of age:
        the checkpoint of the reader is past it, and its records came again in another one.
        """
        back = (":payload:", ":unacked:") if running.rollbacks else ()
        clients = raw_clients(running.url)
        try:
            found = [
                problem
                for client in clients
                for problem in leaks.problems(client, settled=True)
                if not any(kind in problem for kind in back)
            ]
            return sorted([*found, *leaks.unowned(clients)])
        finally:
            for client in clients:
                client.close()

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
            outstanding=last.outstanding,
            service=self._service(running),
            calm=calm,
            message_timeout=self.options.message_timeout,
            rollbacks=running.rollbacks,
            died={process.name: process.ends for process in running.processes},
            left=self._keys_left(running),
        )

    def _report(self, running: Pipeline, found: Collected) -> Report:
        asked = self.options
        acks = [tree.reported for tree in found.trees if tree.reported and tree.status == "acked"]
        still = stand_stills(acks, self._began, self._over)
        problems = judge(found)
        if lacking := [fault.kind for fault in self._left]:
            problems.append(f"{len(lacking):,} faults took no effect: {', '.join(sorted(set(lacking)))}")
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
            harmed=round(self._over - self._began, 1),
            still=round(sum(still), 1),
            longest_still=round(max(still, default=0.0), 1),
            problems=problems,
            done=self._done,
        )
