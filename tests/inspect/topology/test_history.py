"""The history: exact, whichever process writes it and however long none does."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker import Topology
from acker.inspect.topology import history
from acker.inspect.topology.history import STEPS, WINDOWS
from acker.inspect.topology.series import series
from acker.ledger.client import Ledger
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.counts import COUNTERS
from acker.store import keys
from acker.streams import Stream, StreamWriter
from tests.helpers.builders.ledgers import Trees, opened

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=2)


def record(ledger: Ledger, raw: Any) -> int:
    """Takes the next reading as if a second had gone by."""
    raw.delete(keys.turn("tested"))
    at = ledger.run(history.record(ledger.core))
    assert at is not None
    return at


def age(raw: Any, seconds: int) -> None:
    """Makes all readings older."""
    for window in WINDOWS:
        stream = keys.history("tested", STEPS[window])
        entries = raw.xrange(stream)
        raw.delete(stream)
        for entry_id, fields in entries:
            raw.xadd(stream, fields, id=b"%d-0" % (int(entry_id.split(b"-")[0]) - seconds * 1000))


def counts(ledger: Ledger, window: history.Window = "10m", step: int = 1) -> dict[str, list[int]]:
    found = series(ledger.run(history.window(ledger.core, window, step)))
    return {name: [int(value) for value in found.counts[name]] for name in COUNTERS}


def test_points_are_differences_of_exact_counters(ledger: Ledger, raw: Any) -> None:
    Trees(5).track(ledger)
    first = record(ledger, raw)
    age(raw, 2)
    trees = Trees(7).track(ledger)
    ledger.fail(trees.anchors[:2])
    second = record(ledger, raw)
    age(raw, 1)
    trees.complete(ledger, 2, 3, 4)
    third = record(ledger, raw)
    found = series(ledger.run(history.window(ledger.core, "10m")))
    assert counts(ledger)["tracked"] == [5, 7, 0]
    assert counts(ledger)["failed"] == [0, 2, 0]
    assert counts(ledger)["acked"] == [0, 0, 3]
    assert math.isnan(found.seconds[0])
    between = [(second - first) / 1000 + 2, (third - second) / 1000 + 1]
    assert list(found.seconds[1:]) == pytest.approx(between)
    assert [int(value) for value in found.gauges["nursery"]] == [5, 10, 7]
    assert [int(value) for value in found.gauges["outstanding"]] == [5, 12, 12]
    assert [value is None for value in found.percentiles(0.5)[0]] == [True, True, False]
    assert found.total_percentiles(0.5)[0] == pytest.approx(ledger.latency(0.5)[0])


def test_known_counts_are_not_read_again_and_outlive_a_loss(ledger: Ledger, raw: Any) -> None:
    known: dict[history.Window, list[history.Reading]] = {}

    def read() -> list[history.Reading]:
        found = ledger.run(history.window(ledger.core, "10m", 1, known))
        assert found == ledger.run(history.window(ledger.core, "10m"))
        return found

    assert read() == []
    for _ in range(3):
        Trees(5).track(ledger)
        record(ledger, raw)
        read()
        age(raw, 20)  # as if the store had lost these and had others
    before = read()
    assert len(before) == 4
    stream = keys.history("tested", 1)
    last = raw.xrevrange(stream, count=1)[0]
    raw.xadd(stream, last[1], id=b"%d-0" % (int(last[0].split(b"-")[0]) + 1000))
    found = read()
    assert [one is other for one, other in zip(found, before, strict=False)] == [True] * len(before)
    assert len(found) == len(before) + 1
    age(raw, 570)
    known["10m"] = [history.Reading(at - 570_000, packed) for at, packed in known["10m"]]
    assert len(read()) == 3  # three have left the window, and the last of them is the one before it
    raw.delete(stream)
    assert read() == []


def test_tuples_that_collectors_emit_are_counted_once(url: str, ledger: Ledger, raw: Any) -> None:
    def emitted() -> int:
        record(ledger, raw)
        age(raw, 2)
        return sum(
            int(value) for value in series(ledger.run(history.window(ledger.core, "10m"))).counts["emitted"]
        )

    with Topology(url, "tested") as topology:
        spout, bolt = topology.spout("lines"), topology.bolt("split")
        lines = [spout.emit(b"line", targets=2) for _ in range(5)]
        spout.emit(None)  # untracked, and so are its children
        bolt.emit(spout.emit(None))
        topology.flush()
        assert emitted() == 10
        words = bolt.emit([lines[0][0], lines[1][0]], targets=3)  # in two trees each
        bolt.ack(lines[0][0])
        bolt.fail(lines[1][0])
        bolt.ack(words[0])
        topology.flush()
        spout.emit_many([b"a", b"b"])
        topology.flush()
        assert emitted() == 10 + 3 + 2


def test_tuples_emitted_into_streams_are_counted_for_each_subscription(ledger: Ledger, raw: Any) -> None:
    record(ledger, raw)
    age(raw, 2)
    stream = Stream(ledger, "words")
    stream.subscribe("a")
    stream.subscribe("b")
    StreamWriter(ledger, "words").write(pa.table({"word": ["x"] * 30}))
    record(ledger, raw)
    age(raw, 2)
    stream.unsubscribe("b")
    StreamWriter(ledger, "words").write(pa.table({"word": ["x"] * 5}))
    record(ledger, raw)
    found = series(ledger.run(history.window(ledger.core, "10m")))
    assert [int(value) for value in found.counts["emitted"]] == [0, 60, 5]


def test_what_happened_while_nobody_wrote_is_one_longer_point(ledger: Ledger, raw: Any) -> None:
    Trees(5).track(ledger)
    record(ledger, raw)
    age(raw, 7200)
    Trees(6).track(ledger)
    record(ledger, raw)
    for window in WINDOWS:
        found = series(ledger.run(history.window(ledger.core, window)))
        assert int(found.counts["tracked"][-1]) == 6
        assert 7199 < found.seconds[-1] < 7260
    assert counts(ledger, "10m")["tracked"] == [6]
    assert counts(ledger, "1d")["tracked"] == [5, 6]


def test_steps_and_windows_add_up_to_the_same_totals(ledger: Ledger, raw: Any) -> None:
    for number in range(8):
        Trees(number + 1).track(ledger)
        record(ledger, raw)
        age(raw, 7)
    Trees(100).track(ledger)
    record(ledger, raw)
    for window in WINDOWS:
        for step in (1, 10, 60, 3600):
            found = counts(ledger, window, step)
            assert sum(found["tracked"]) == ledger.counters()["tracked"] == 136, (window, step)
    assert len(counts(ledger, "10m", 1)["tracked"]) == 9
    assert len(counts(ledger, "10m", 20)["tracked"]) <= 5


def test_it_is_written_once_however_many_write(ledger: Ledger, raw: Any) -> None:
    first = ledger.run(history.record(ledger.core))
    assert first is not None
    assert [ledger.run(history.record(ledger.core)) for _ in range(5)] == [None] * 5
    assert raw.xlen(keys.history("tested", 1)) == 2  # that before the history, and one


def test_a_reading_that_lost_its_turn_is_not_written(ledger: Ledger, raw: Any) -> None:
    operation = history.record(ledger.core)
    store = ledger.store
    [claim] = write = next(operation)
    while not write or write[0].script is None:
        write = operation.send(store.send(write))
    raw.delete(claim.key)
    assert ledger.run(history.record(ledger.core)) is not None
    with pytest.raises(StopIteration) as end:
        operation.send(store.send(write))
    assert end.value.value is None
    assert raw.xlen(keys.history("tested", 1)) == 2


def test_the_history_is_bounded(ledger: Ledger, raw: Any) -> None:
    stream = keys.history("tested", 1)
    pipe = raw.pipeline()
    for number in range(5000):
        pipe.xadd(stream, {"reading": b""}, id=b"%d-0" % (number + 1))
    pipe.execute()
    record(ledger, raw)
    assert raw.xlen(stream) == 601


def test_a_window_holds_no_more_than_itself(ledger: Ledger, raw: Any) -> None:
    Trees(5).track(ledger)
    record(ledger, raw)
    age(raw, 700)
    Trees(6).track(ledger)
    record(ledger, raw)
    age(raw, 10)
    Trees(7).track(ledger)
    record(ledger, raw)
    assert counts(ledger, "10m")["tracked"] == [6, 7]
    assert counts(ledger, "3h")["tracked"] == [5, 6, 7]


def test_a_range_is_read_from_the_finest_window_that_holds_it(ledger: Ledger, raw: Any) -> None:
    for trees, seconds in ((5, 900), (6, 200), (7, 0)):
        Trees(trees).track(ledger)
        record(ledger, raw)
        age(raw, seconds)
    now = raw.time()[0]
    for asked, window, step, tracked in (
        ((300,), "10m", 1, [6, 7]),
        ((1200,), "3h", 10, [5, 6, 7]),
        ((150, now - 100), "10m", 1, [6]),
        ((900, now - 1000), "3h", 10, [5]),
        ((60, now - 86_400), "all", 600, []),
        ((7200, None, 3600), "3h", 3600, None),
        ((30 * 86_400,), "all", 1728, None),
    ):
        piece = ledger.run(history.span(ledger.core, *asked))
        assert (piece.window, piece.step) == (window, step), asked
        if tracked is not None:
            assert series(piece.readings).counts["tracked"].tolist() == tracked, asked
    cache: dict[history.Window, list[history.Reading]] = {}
    first = ledger.run(history.span(ledger.core, 1200, cache=cache))
    assert ledger.run(history.span(ledger.core, 1200, cache=cache)) == first


def test_a_topology_may_have_no_history(url: str, ledger: Ledger) -> None:
    assert counts(ledger)["tracked"] == []
    untracked = opened(url, "untracked", ackers=0)
    assert untracked.run(history.record(untracked.core)) is None
    assert len(series(untracked.run(history.window(untracked.core, "all"))).at) == 0


def test_percentiles_of_rows_are_those_of_each() -> None:
    random = np.random.default_rng(1)
    rows = random.integers(0, 5, (50, 256)) * (random.random((50, 256)) < 0.05)
    rows[3] = 0
    for fraction in (0.0, 0.5, 0.95, 0.99, 1.0):
        found = latency_histogram.percentiles(
            rows[:, ::2].astype(float), np.arange(0, 256, 2), [0.7, fraction]
        )[1]
        for row, value in zip(rows, found, strict=True):
            each = {bucket: int(count) for bucket, count in enumerate(row) if count and bucket % 2 == 0}
            expected = latency_histogram.percentile(each, fraction)
            assert value == (None if expected is None else pytest.approx(expected))
