"""Replays of dead letters: a KafkaSpout reads the rows that the store kept, and emits them once more.

A replay publishes the letter's row to the stream `<spout>.replays`, in a tree of the spout `<spout>.failed`.
The row is the record, as its topic had it when it became a letter: the topic may have another record at its
offset since. Rows are taken over as by a bolt: each of their tuples gets a child, and then their segment is
acked. A crash in between leaves trees that expire, and these rows are published again.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece.
"""

import logging
from typing import Any

import numpy as np

from acker.collectors.tuples import Owner, TupleVector
from acker.errors import AckerError
from acker.kafka.failed import dead_letters
from acker.kafka.record import KafkaBatch, KeptMessage
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.reader import StreamReader
from acker.streams.sources.spout_options import replays_stream
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress

GONE = "its dead letter has no row: there is nothing to replay"
_log = logging.getLogger(__name__)


class Replays:
    """Reads the replays of a spout's dead letters. Not for several threads.

    Members of a group may read the same rows at the same moment: each row goes to one of them.
    """

    def __init__(self, ledger: Ledger, owner: Owner, spout: str) -> None:
        self._ledger, self._owner, self._spout = ledger, owner, spout
        self._reader: StreamReader | None = None
        self._progress: dict[str, SettleProgress] = {}
        self._ready: list[dict[str, Any]] = []
        self._edges: list[int] = []

    def take(self, most: int) -> KafkaBatch:
        """Rows that were read by `look`, at most so many."""
        rows, edges = self._ready[:most], self._edges[:most]
        self._ready, self._edges = self._ready[most:], self._edges[most:]
        anchors = np.array([row[ANCHORS] for row in rows], np.int64)
        tuples = TupleVector(self._owner, anchors, np.array(edges, np.int64))
        return KafkaBatch(
            [KeptMessage(row) for row in rows], tuples, {at: row["attempt"] for at, row in enumerate(rows)}
        )

    def look(self) -> None:
        """Settles earlier replays, and reads a segment of new ones, unless rows of an earlier one wait."""
        if self._ready or not self._ledger.config.ackers:
            return
        # A reader that was cut short must not ack what it has read, nor must one that has acked: a store that
        # was set back has these rows again. Another one begins anew.
        reader, self._reader = self._reader, None
        unread = True
        try:
            reader = reader or StreamReader(self._ledger, replays_stream(self._spout), self._spout)
            settler.settle(self._ledger, dead_letters.spout_of(self._spout), readings=self._progress)
            for table in reader.tables():
                unread = False
                self._take_over(reader, [row for one in table.to_batches() for row in segments.values(one)])
                if self._ready:
                    break
        except AckerError as error:
            _log.warning("spout %s: replays of dead letters wait: %s", self._spout, error)
            return
        self._reader = reader if unread else None

    def _take_over(self, reader: StreamReader, rows: list[dict[str, Any]]) -> None:
        """Makes the rows of a segment this spout's, unless another member has them."""
        gone = [row for row in rows if row["timestamp"] is None]
        there = [row for row in rows if row["timestamp"] is not None]
        anchors, edges = [int(row[ANCHORS]) for row in there], ids.new_ids(len(there)).tolist()
        if gone:  # fails and children first: no tree looks complete in between
            self._ledger.fail([int(row[ANCHORS]) for row in gone], GONE, retry=False)
        if there:
            self._ledger.update(anchors, edges)
        if reader.ack():
            self._ready, self._edges = there, edges
        elif there:
            self._ledger.update(anchors, edges)  # by XOR that takes them back
