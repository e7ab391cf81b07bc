"""The world of workers that share the rows of a stream: they claim, die, are taken for dead, and commit."""

from collections import Counter
from typing import Any, ClassVar

import pyarrow as pa

from acker.errors import PermanentFailure
from acker.ledger.client import Ledger
from acker.streams import SpoutOptions, StreamReader, StreamSpout
from acker.streams.log.heartbeats import Lease
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.workers.out import Out
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.faults.simulator import World
from tests.helpers.models.leaks import assert_settled

ROWS = 6


class ClaimWorld(World):
    """Three workers of one step, which take two rows at a time. Of each row they emit another, and one fails.

    The model: of each row one is emitted, once, whichever worker dies or is taken for dead meanwhile.
    """

    once = False
    actors: ClassVar = ("one", "two", "three")
    events: ClassVar = ("expire", "read", "tick")
    scripts: ClassVar = (
        "lease", "claim_segments", "claim_and_read", "return_segments", "end_lease", "begin_commit",
        "bind_reader", "advance_commit", "apply_staged", "publish", "note_segments", "chain",
    )  # fmt: skip

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.worker(self.ledger).work()  # subscribes
        self.reader = StreamReader(self.ledger, "made")
        self.made = Counter[str]()
        self.worked = Counter[str]()
        self.settled = Counter[str]()
        self.acked = set[str]()
        self.read_before = False
        """True if rows were read that the store may have lost since."""
        self.ticks = 0
        self.slot = -1
        spout = StreamSpout(self.ledger, SpoutOptions("asks", "asks", "id", attempts=1))
        for first in range(0, ROWS, 2):
            spout.write(pa.table({"id": [str(first), str(first + 1)]}))

    def worker(self, ledger: Ledger) -> Worker:
        """A worker of the step."""
        return Worker(ledger, FunctionStep("step", "asks", self.step), most_rows=2, once=self.once)

    def step(self, row: dict[str, Any], out: Out) -> None:
        """Works on a row."""
        self.worked[row["id"]] += 1
        if row["id"] == "3":
            raise PermanentFailure("bad")
        out.emit("made", {"id": row["id"]})

    def one(self, ledger: Ledger) -> None:
        """A worker that lives for three batches, and first takes over from dead ones."""
        worker = self.worker(ledger)
        for _ in range(3):
            worker.work()
            worker.recover()
        worker.end()

    two = three = one

    def expire(self) -> None:
        """All workers are taken for dead."""
        take_for_dead(self.raw)

    def read(self) -> None:
        """Reads what is made, and acks it; settles what is over."""
        self.made.update(str(row["id"]) for row in self.reader.rows())
        self.reader.ack()
        self.settled.update(vars_of(settler.settle(self.ledger, "asks", self.note)))

    def note(self, table: pa.Table) -> None:
        """Notes which rows are acked."""
        rows = table.to_pylist()
        self.acked.update(row["message_id"].decode() for row in rows if row["status"] == "acked")

    def lose(self) -> None:
        """Notes a loss of the store: rows that were read may be made, and read, again."""
        self.read_before = bool(self.made)

    def tick(self) -> None:
        """Time passes."""
        self.ticks += 1
        self.ledger.tick(force=True)

    def check(self) -> None:
        """All rows are worked on, and each has come out once."""
        self.expire()
        last = self.worker(self.ledger)
        for _ in range(2):
            last.work()
            last.recover()
            while last.work():
                pass
        last.end()
        self.read()
        if not self.simulator.losses:
            wanted = {str(n) for n in range(ROWS)} - {"3"}
            if self.once:
                begun = set(self.worked.values())  # after three ticks some may have expired unworked
                assert begun == {1} if self.ticks < 3 else begun <= {1}, self.worked
                assert set(self.made.values()) <= {1}
            elif self.ticks < 3:
                assert self.made == Counter(wanted)
                assert +self.settled == {"acked": ROWS - 1, "dead": 1}
            else:
                assert set(self.made.values()) <= {1}
                assert set(self.made) <= wanted
        for _ in range(4):
            self.ledger.tick(force=True)
            self.read()
        if self.simulator.losses:
            self.check_lost()
        else:
            assert self.settled["acked"] + self.settled["dead"] == ROWS
            assert_settled(self.raw)

    def check_lost(self) -> None:
        """Checks after a loss of the store: each acked record was read."""
        assert self.acked <= set(self.made)
        if not self.read_before and not self.simulator.cluster:
            assert set(self.made.values()) <= {1}, self.made


class OnceWorld(ClaimWorld):
    """Workers that begin no row a second time, whatever becomes of it."""

    once = True


def take_for_dead(raw: Any) -> None:
    """Makes all workers count as dead, also the ones that were paused for so long."""
    for key in raw.scan_iter("*:workers:*"):
        for reader, text in raw.hgetall(key).items():
            if (lease := Lease.parse(text)) is not None and not reader.startswith((b"!", b"?")):
                raw.hset(key, reader, b"%d %d" % (lease.until - 60_000, lease.length))


def vars_of(stepped: Stepped) -> dict[str, int]:
    """The records that a step of the settler has settled, by outcome."""
    return {"acked": stepped.acked, "dead": stepped.dead}
