"""An interrupt at any step of a reader or writer in plain Python: no row is lost, or acked unseen."""

import itertools

import pyarrow as pa
import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams import SpoutOptions, Stream, StreamReader, StreamSpout, StreamWriter
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress
from tests.helpers.builders.streaming import counters, rows, track
from tests.helpers.faults.interrupts import each


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=2)


class Reading:
    """A reader of a stream, and the rows that it has seen."""

    def __init__(self, ledger: Ledger, by: str) -> None:
        self.ledger = ledger
        self.by = by
        self.writer, self.reader = StreamWriter(ledger, "lines"), StreamReader(ledger, "lines")
        self.written = self.tracked = 0
        self.seen: set[object] = set()

    def write(self) -> None:
        for _ in range(2):
            numbers = [self.written, self.written + 1]
            batch = self.writer.batch(pa.table({"n": numbers}))
            self.writer.publish(batch, track(self.ledger, batch.ids()))
            self.written += 2

    def read(self) -> None:
        if self.by == "tables":
            for table in self.reader.tables():
                self.seen.update(table.column("n").to_pylist())
        else:
            for row in self.reader.rows():
                self.seen.add(row["n"])
        self.reader.ack()

    def check(self) -> None:
        self.read()
        assert self.seen == {*range(self.written)}
        assert self.reader.count() == 0
        assert counters(self.ledger) == {"tracked": self.written, "acked": self.written}
        self.write()


@pytest.mark.parametrize("by", ["tables", "rows"])
def test_a_reader_goes_on_and_has_seen_what_it_acks(ledger: Ledger, by: str) -> None:
    reading = Reading(ledger, by)
    reading.write()
    assert each(("acker/streams/reader.py",), reading.read, reading.check) > 50


def test_a_writer_goes_on(ledger: Ledger) -> None:
    writer, batches = StreamWriter(ledger, "lines"), itertools.count()

    def work() -> None:
        batch = writer.batch(pa.table({"n": [next(batches)]}))
        anchors = track(ledger, batch.ids())
        writer.publish(batch, anchors)
        writer.publish(batch, anchors)

    def check() -> None:
        before = next(batches)
        work()
        numbers = [row["n"] for row in rows(ledger, "lines")]
        assert len({*numbers}) == len(numbers)
        assert numbers[-1] == before + 1

    assert each(("acker/streams/writer.py", "acker/streams/batch.py"), work, check) > 20


def test_a_spout_goes_on_and_tells_each_outcome(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    stream.subscribe("default")
    how = SpoutOptions("numbers", "lines", "n", attempts=2, backoff=0.0)
    spout, reader = StreamSpout(ledger, how), StreamReader(ledger, "lines")
    numbers = itertools.count()
    reported, written = set[int](), set[int]()
    progress: dict[str, SettleProgress] = {}

    def outcomes(table: pa.Table) -> None:
        reported.update(int(one) for one in table.column("message_id").to_pylist())

    def work() -> None:
        n = next(numbers)
        spout.write(pa.table({"n": [n]}))
        written.add(n)
        for _ in reader.tables():
            pass
        reader.ack()
        settler.settle(ledger, "numbers", outcomes, readings=progress)

    def check() -> None:
        work()
        assert reported >= written, written - reported

    files = ("acker/streams/spout.py", "acker/streams/spouts/settler.py", "acker/streams/spouts/replays.py")
    assert each(files, work, check) > 50
