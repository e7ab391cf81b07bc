"""The source: a spout in plain Python that survives anything, because its records are its own.

Its list of them is in SQLite (records.py). The collectors' spout tells outcomes, by its own timer also for
trees that the store has lost; trees of an earlier life of this process, which was killed, are looked after
here in the same way. Each ack is checked when it is reported: the tree's words must be in the sink by then.
"""

import argparse
import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa

from acker import Outcome, Topology
from acker.cli.demo.processes import READY
from acker.collectors.spout import Spout
from acker.errors import AckerError
from acker.streams import StreamWriter
from harness.chaos import clock
from harness.chaos.interrupts import Interrupted, Interrupts
from harness.chaos.plan import CLIENT_TIMEOUT
from harness.chaos.records import FALSE_ACK, Records, Reported, words

SPOUT = "source"
FLYING = 600
"""Most records in flight."""
AT_ONCE = 200
EVERY = 0.5
"""Seconds between two emissions."""
OWN_TIMER = 1.8
"""Message timeouts after which trees of an earlier life are taken for lost; the store needs 1.5 to tell."""
BEAT, OPEN, LIFE, INTERRUPTS = "beat", "open", "life", "interrupts"
"""Facts: when the source was last at work; whether it makes records; which of its lives this is; how many
interrupts have come in a call of acker."""


class Source:
    """Emits, learns, and notes."""

    def __init__(self, topology: Topology, records: Records, sink: Path, rate: float) -> None:
        self.topology = topology
        self.records = records
        self.sink = sink
        self.rate = rate
        self.life = int(records.fact(LIFE) or 0) + 1
        records.note(LIFE, self.life)
        self._interrupted = int(records.fact(INTERRUPTS) or 0)
        self.began = time.monotonic()
        self._spout: Spout | None = None
        self._interrupts = Interrupts()
        self._writer = StreamWriter(topology.ledger, "lines")
        self._next = self.began
        self._made = 0.0

    def step(self) -> None:
        """Takes what has come, and emits what is due. An error of the store ends the step, no more."""
        try:
            if self._spout is None:
                self._spout = self.topology.spout(SPOUT)
            self._take(self._spout)
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + EVERY
                self._make()
                self._emit(self._spout)
        except AckerError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        except Interrupted:
            self.records.note(INTERRUPTS, self._interrupted + self._interrupts.count)
        self._look_after_earlier_lives()
        self.records.note(BEAT, time.monotonic())

    def _make(self) -> None:
        if not self.records.fact(OPEN):
            self.records.add(0)
            return
        self._made += self.rate * EVERY
        whole = int(self._made)
        self._made -= whole
        self.records.add(whole)

    def _emit(self, spout: Spout) -> None:
        made = self.records.emit(AT_ONCE, FLYING, self.life)
        if not made:
            return
        names, lines, _ = zip(*made, strict=True)
        rows = pa.table({"message_id": pa.array(names, pa.string()), "line": pa.array(lines, pa.string())})
        # What goes wrong from here on leaves trees that nobody completes: they expire, and their records are
        # tried again.
        try:
            with self._interrupts:
                batch = self._writer.batch(rows)
                anchors, _ = spout.emit_many(names, values=batch.ids(), timeout=CLIENT_TIMEOUT)
        except (AckerError, Interrupted) as error:
            # The spout tells nothing of these, or that they expired.
            reason = f"not emitted: {type(error).__name__}"
            self.records.tell((Reported(name, "expired", reason, ledger=False) for name in names), self.life)
            raise
        self.records.track(dict(zip(names, anchors.tolist(), strict=True)))
        with self._interrupts:
            self._writer.publish(batch, anchors)

    def _take(self, spout: Spout) -> None:
        found: list[Outcome] = []
        try:
            with self._interrupts:
                for outcome in spout.outcomes(timeout=0.1):
                    found.append(outcome)  # noqa: PERF402 - each is here before an interrupt can come
        finally:
            self._tell(spout, found)

    def _tell(self, spout: Spout, found: list[Outcome]) -> None:
        reported = []
        for outcome in found:
            name = outcome.message_id.decode()
            if outcome.status == "acked" and (missing := self._missing(name)):
                self.records.odd(FALSE_ACK, f"{name}: {missing}")
            ledger = outcome.latency is not None
            reported.append(
                Reported(name, outcome.status, outcome.reason, ledger, outcome.anchor if ledger else None)
            )
        self.records.tell(reported, self.life)
        for outcome in found:
            with suppress(Interrupted), self._interrupts:
                spout.confirm(outcome)
            spout.confirm(outcome)  # again, which changes nothing

    def _missing(self, name: str) -> str:
        """The words of an acked tree that the sink lacks."""
        line = self.records.line(int(name.split("/")[0]))
        with closing(sqlite3.connect(self.sink, timeout=60.0)) as database:
            found = database.execute(
                "SELECT word FROM words WHERE message_id = ? ORDER BY position", (name,)
            ).fetchall()
        have = [word for (word,) in found]
        return "" if have == words(line) else f"the sink has {have}, not {words(line)}"

    def _look_after_earlier_lives(self) -> None:
        timeout = self.topology.config.message_timeout
        if time.monotonic() < self.began + OWN_TIMER * timeout:
            return
        lost = self.records.silent(self.life, self.began)
        if lost:
            reason = "nothing was heard of it in an earlier life"
            self.records.tell((Reported(name, "expired", reason, ledger=False) for name in lost), self.life)


def _opened(options: argparse.Namespace, stop: threading.Event) -> Topology | None:
    """The topology, as soon as the store lets it be opened; None where it is to stop before."""
    while not stop.is_set():
        try:
            return Topology(
                options.url, options.topology, message_timeout=options.message_timeout, timeout=CLIENT_TIMEOUT
            )
        except AckerError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            stop.wait(EVERY)
    return None


def main() -> None:
    """Runs until SIGTERM."""
    clock.install()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", default=os.environ.get("ACKER_URL"))
    parser.add_argument("--topology", required=True)
    parser.add_argument("--message-timeout", type=float, required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--sink", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True, help="records per second")
    options = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    records = Records(options.records)
    topology = _opened(options, stop)
    if topology is None:
        return
    source = Source(topology, records, options.sink, options.rate)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while not stop.is_set():
        source.step()


if __name__ == "__main__":
    main()
