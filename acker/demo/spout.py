"""The spout process: reads text, and emits each line to the stream `lines` as the root of a tree.

    python -m acker.demo.spout --url redis://127.0.0.1:6379/0 --topology demo --lines 1000

Lines that fail or expire are replayed, and are dead letters after their last attempt. It tells its counts as
lines of JSON on standard output (`acker.demo.records.Status`), and ends when each line has its final outcome.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from acker import Topology
from acker.demo.options import ATTEMPTS, MAX_SPOUT_PENDING
from acker.demo.records import Records
from acker.demo.text import Line, find_files, read_lines
from acker.ledger.client import Ledger
from acker.streams.commits.roots import Tracking
from acker.streams.spouts import settler
from acker.streams.spouts.settler import Settler
from acker.streams.spouts.spout import StreamSpout

SPOUT, LINES = "text", "lines"
"""The spout, and the stream that it writes."""
_BATCH = 5_000
_TELL_EVERY = 0.5
_WAIT = 0.1


class TextSpout:
    """Emits lines and learns their outcomes.

    lines: read as there is room, never more than `max_spout_pending` ahead of their outcomes. The store keeps
    those in flight, so replaying them needs nothing of this process.
    """

    def __init__(self, ledger: Ledger, lines: Iterator[Line], max_spout_pending: int, attempts: int) -> None:
        self.records = Records()
        self._ledger = ledger
        self._lines = lines
        self._most = max_spout_pending
        # Segments worth a micro-batch, several of which are in flight.
        self._batch = max(1, min(_BATCH, max_spout_pending // 4))
        self._exhausted = False
        how = Tracking(
            SPOUT, LINES, "message_id", attempts, attempt="attempt", max_spout_pending=max_spout_pending
        )
        self._spout = StreamSpout(ledger, how)
        own = [ledger.config.name]
        self._settler = Settler(ledger.store, own, spout=SPOUT, on_outcomes=self.records.take)

    @property
    def finished(self) -> bool:
        """Whether each line has its final outcome."""
        return self._exhausted and not self.records.status.in_flight

    def step(self) -> None:
        """Emits what there is room for, and takes the outcomes that have come."""
        waited = True
        while not self._exhausted and self._most - self.records.status.in_flight >= self._batch:
            lines = list(islice(self._lines, self._batch))
            self._exhausted = len(lines) < self._batch
            self._emit(lines)
            waited = False
        if not self._settler.step() and waited:
            time.sleep(_WAIT)

    def close(self) -> None:
        """Leaves what comes later, such as the replay of a dead letter, to whoever settles."""
        settler.settle(self._ledger, SPOUT)

    def _emit(self, lines: list[Line]) -> None:
        names, texts = [line.message_id for line in lines], [line.text for line in lines]
        # First: a tree may have its outcome before the call that tracks it returns.
        self.records.emitted(names)
        rows = {"message_id": pa.array(names, pa.string()), "line": pa.array(texts, pa.string())}
        self._spout.write(pa.table(rows))


def main() -> None:
    """Runs until each line has its final outcome."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    url = os.environ.get("ACKER_URL")
    parser.add_argument("--url", default=url, required=not url, help="default: ACKER_URL")
    parser.add_argument("--topology", required=True)
    parser.add_argument("--input", nargs="*", default=[])
    parser.add_argument("--lines", type=int, default=0, help="0: all")
    parser.add_argument("--max-spout-pending", type=int, default=MAX_SPOUT_PENDING)
    parser.add_argument("--message-timeout", type=float, help="seconds, for a topology that is new")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    options = parser.parse_args()
    lines = read_lines(find_files(options.input), options.lines)
    with Topology(options.url, options.topology, message_timeout=options.message_timeout) as topology:
        spout = TextSpout(topology.ledger, lines, options.max_spout_pending, options.attempts)
        reported = 0.0
        while not spout.finished:
            spout.step()
            if time.monotonic() - reported > _TELL_EVERY:
                _tell(spout)
                reported = time.monotonic()
        spout.close()
    spout.records.status.finished = True
    _tell(spout)


def _tell(spout: TextSpout) -> None:
    sys.stdout.write(json.dumps(spout.records.status.dump()) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
