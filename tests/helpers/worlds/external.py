"""A world of external streams: a source, two members of a group and a sink, with rows in transports of lists.

Each actor is a process: it begins with nothing but committed offsets, and dies anywhere. The truth is the
work of each: a record is acked only when each row that was stamped for it was worked on by a process
that came to its flush, and so was each row that this process made of it. Where nothing of the store was lost,
records of completed flushes are acked, or fail where a row of theirs fails, without a tick.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from acker import Topology
from acker.collectors.spout import Spout
from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.streams.log import subscriptions
from acker.streams.staging.external import declaring
from tests.helpers.faults.simulator import World
from tests.helpers.worlds.commits import Outcomes, pass_time

RECORDS, BATCH, FAILING = 6, 2, 4
"""Records of the source, records of a batch, and a record of which a row fails."""


@dataclass(eq=False)
class Carried:
    """A row in a transport. parent: the record, or the work, that it was stamped in."""

    headers: Any
    record: int
    parent: "Work"


@dataclass(eq=False)
class Work:
    """The work of a process on a row: the rows that it made, and True if it came to its flush.

    row: None for the source's work on a record. tracked: the trees that the process saw of the row.
    """

    row: Carried | None
    tracked: tuple[int, ...]
    made: list[Carried] = field(default_factory=list)
    flushing: bool = False
    failed: bool = False


def session(ledger: Ledger) -> Topology:
    """A topology object over the ledger of an actor."""
    made = Topology.__new__(Topology)
    made._set_up(ledger, None)
    return made


class ExternalWorld(World):
    """See the module. By some seeds rows have two trees, and segments one row."""

    actors: ClassVar = ("source", "step", "other", "sink")
    events: ClassVar[tuple[str, ...]] = ("look", "tick")
    scripts: ClassVar = ("announce", "send", "apply_staged", "receive", "note_received", "track", "subscribe")
    settings: ClassVar[dict[str, Any]] = {"ackers": 2, "message_timeout": 600.0}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.streams: dict[str, list[Carried]] = {"items": [], "words": []}
        self.offsets = {"records": 0, "items": 0, "words": 0}
        self.works: list[Work] = []
        self.roots: dict[int, list[Work]] = {}
        self.completed: dict[int, int] = {}
        self.sent: set[str] = set()
        self.ticks = 0
        core = self.ledger.core
        for stream, name in (("items", "count"), ("words", "sink")):
            self.ledger.run(declaring.declare(core, stream))
            self.ledger.run(subscriptions.subscribe(core, stream, name, "external"))

    # The processes

    def source(self, ledger: Ledger) -> None:
        """Reads records from its committed offset, and sends rows of them."""
        topology = session(ledger)
        spout, out = Spout(topology, "s"), topology.outgoing("items", segment_rows=3 - self.seed % 3)
        spout.register()
        while self.offsets["records"] < RECORDS:
            first = self.offsets["records"]
            batch, works = range(first, min(first + BATCH, RECORDS)), list[Work]()
            for record in batch:
                [made] = spout.emit(f"{record}")
                work = Work(None, made.anchors)
                works.append(work)
                self.roots.setdefault(made.anchors[0], []).append(work)
                for _ in range(1 + record % 2):
                    work.made.append(Carried(out.inject(None, made), record, work))
                self.streams["items"] += work.made
            self._flush(topology, works)
            for record, work in zip(batch, works, strict=True):
                self.completed[record] = work.tracked[0]
            self.offsets["records"] = max(self.offsets["records"], batch.stop)

    def step(self, ledger: Ledger) -> None:
        """Works on rows, and makes a row of each."""
        self._consume(ledger, "items", "count", "words")

    def other(self, ledger: Ledger) -> None:
        """Another member of its group, which has the same rows at times."""
        self._consume(ledger, "items", "count", "words")

    def sink(self, ledger: Ledger) -> None:
        """Works on the rows that steps have made."""
        self._consume(ledger, "words", "sink", "")

    def _consume(self, ledger: Ledger, stream: str, subscription: str, to: str) -> None:
        topology = session(ledger)
        incoming = topology.incoming(stream, subscription=subscription)
        out = topology.outgoing(to, segment_rows=2 - self.seed % 2) if to else None
        at = self.offsets[stream]
        while at < len(self.streams[stream]):
            part = self.streams[stream][at : at + 2]
            rows, works = [incoming.extract(one.headers) for one in part], list[Work]()
            # Two rows together, by some seeds: what is made of them belongs to the trees of both.
            together = self.seed % 2 == 0 and len(rows) > 1
            for one, row in zip(part, rows, strict=True):
                work = Work(one, row.anchors)
                works.append(work)
                if to and one.record == FAILING and stream == "items":
                    incoming.fail(row, "bad")
                    work.failed = True
                    continue
                if out is not None and not together:
                    work.made.append(Carried(out.inject(None, row), one.record, work))
                    self.streams[to] += work.made
            if out is not None and together:
                good = [(row, work) for row, work in zip(rows, works, strict=True) if not work.failed]
                for row, work in good[:1]:
                    made = Carried(out.inject(None, row, *[other for other, _ in good[1:]]), -1, work)
                    for _, each in good:
                        each.made.append(made)
                    self.streams[to].append(made)
            incoming.ack([row for row in rows if not row.ended])
            self._flush(topology, works)
            at += len(part)
            self.offsets[stream] = max(self.offsets[stream], at)

    def _flush(self, topology: Topology, works: list[Work]) -> None:
        self.works += works
        for work in works:
            work.flushing = True
        topology.flush()
        exchange: Any = topology._exchange
        self.sent |= exchange.recent.keys()

    # Events and the check

    def tick(self) -> None:
        """A ticker's round."""
        self.ticks += 1
        pass_time(self.ledger)

    def look(self) -> None:
        """No record is acked before all that was made of it was worked on."""
        outcomes = Outcomes(self.ledger, self.slabs())
        for anchor, [root] in self.roots.items():
            if outcomes.of(anchor) == "acked":
                assert all(self.is_done(row, anchor) for row in root.made), f"a false ack of {anchor}"

    def is_done(self, row: Carried, anchor: int) -> bool:
        """True if a process that came to its flush has worked on a row, and on what it made of it."""
        return any(
            work.row is row and work.flushing and not work.failed and anchor in work.tracked
            and all(self.is_done(one, anchor) for one in work.made)
            for work in self.works
        )  # fmt: skip

    def check(self) -> None:
        """See the module."""
        self.look()
        for _ in range(3):  # all that died is started again
            for act in (self.source, self.step, self.sink):
                try:
                    act(self.ledger)
                except AckerError:
                    assert self.simulator.losses, "only a store that has lost something refuses a flush"
        self.look()
        outcomes = Outcomes(self.ledger, self.slabs())
        if self.simulator.losses:
            return
        for record, anchor in self.completed.items():
            late = {"expired"} if self.ticks > 2 else set()
            wanted = {"failed"} if record == FAILING else {"acked"}
            assert outcomes.of(anchor) in wanted | late, (record, anchor, outcomes.of(anchor))
        self.tick()
        early = [key for key in self.raw.scan_iter("acker:{t:*:staged:*") if self.raw.hexists(key, "early")]
        again = {key.split(b":")[-2].decode() for key in early} & self.sent
        assert not again, "a row of an acked segment makes a key"

    def slabs(self) -> dict[bytes, int]:
        """The slabs of all records that were emitted."""
        sizes: dict[bytes, int] = {}
        for anchor in self.roots:
            slab = ids.slab_of(anchor)
            sizes[slab] = max(sizes.get(slab, 0), ids.index_of(anchor) + 1)
        return sizes
