"""Reading fairly: in which order segments are given, and that each is given once."""

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker.errors import StoreError
from acker.inspect.locate.stuck import stuck
from acker.ledger.client import Ledger
from acker.store import keys
from acker.store.operation import command
from acker.streams import StreamWriter
from acker.streams.commits import scripts as commit_scripts
from acker.streams.log import fairness, fencing, scripts, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.stream_totals import stream_totals
from acker.streams.log.subscriptions import HOLD_TTL, Range
from acker.streams.upkeep import retention
from tests.helpers.builders.streaming import ack, counters, slot_of, take, track

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def slot(ledger: Ledger) -> int:
    slot = ledger.run(subscriptions.subscribe(ledger.core, "rows", "fair"))
    ledger.run(fairness.declare(ledger.core, "rows", "key", slot))
    return slot


def publish(ledger: Ledger, *members: tuple[int, int]) -> list[str]:
    """Publishes segments of so many rows, each in a lane; returns their ids."""
    slot = slot_of(ledger, "rows", "fair")
    published = [
        Segment(segments.new_hex_id(), rows, 1, 10, (), (slot,), "", lane, size=100 * rows)
        for rows, lane in members
    ]
    own = keys.Stream("t", "rows")
    ledger.store.send([command("SET", own.payload(one.id), "x", "EX", HOLD_TTL) for one in published])
    for first in range(0, len(published), 100):
        ledger.store.send([commit_scripts.publish(ledger.config, own, published[first : first + 100])])
    return [one.id for one in published]


class Reader:
    """A reader of the subscription, and what it was given: rows of each segment, by id."""

    def __init__(self, ledger: Ledger, slot: int, name: str = "reader") -> None:
        self.ledger, self.slot, self.name, self.at = ledger, slot, name, 0

    def claim(self, rows: int, most: int = 500, size: int = 10**15) -> list[tuple[str, int]]:
        limits = {"rows": rows, "segments": most, "bytes": size}
        core = self.ledger.core
        end = self.ledger.run(
            subscriptions.claim(core, "rows", self.slot, self.name, self.at, name="fair", **limits)  # type: ignore[arg-type]
        )
        claimed = Range("rows", self.slot, self.name, self.at, end)
        self.at = end
        return [
            (one.segment.id, one.segment.rows)
            for one in self.ledger.run(subscriptions.all_delivered(self.ledger.core, claimed))
        ]


def test_a_claim_is_bounded_by_bytes_and_one_segment_is_always_taken(ledger: Ledger, slot: int) -> None:
    """Each lane has a quarter of them; what is given again is bounded, too."""
    publish(ledger, *[(10, 3)] * 10, *[(10, 1)] * 10, *[(10, 0)] * 10)
    reader = Reader(ledger, slot)
    assert len(reader.claim(10**6, size=20_000)) == 20
    again = Reader(ledger, slot)
    assert [len(again.claim(10**6, size=size)) for size in (3_000, 1, 10**6)] == [3, 1, 16]
    assert [len(reader.claim(10**6, size=size)) for size in (999, 10**6)] == [1, 9]


def test_each_lane_has_a_quarter_of_a_batch_and_then_what_is_left(ledger: Ledger, slot: int) -> None:
    publish(ledger, *[(10, 3)] * 100, *[(10, 1)] * 100, *[(10, 0)] * 100)
    reader = Reader(ledger, slot)
    segment_ids = reader.claim(400)
    assert len(segment_ids) == 40
    [totals] = ledger.run(stream_totals(ledger.core, ["rows"]))
    assert totals.subscriptions[0].unread_age is not None
    [found] = ledger.run(stuck(ledger.core)).stuck
    assert sorted(one.segments for one in found.shares) == [40, 260]
    while reader.claim(400):
        pass
    assert reader.at == 300
    assert ledger.run(stream_totals(ledger.core, ["rows"]))[0].subscriptions[0].unread_age is None


def test_what_is_larger_than_a_batch_has_its_turn(ledger: Ledger, slot: int) -> None:
    large = publish(ledger, (900, 2), (900, 2))
    small = publish(ledger, *[(10, 0)] * 100)
    reader = Reader(ledger, slot)
    given = [[segment_id for segment_id, _ in reader.claim(100)] for _ in range(4)]
    assert [len(one) for one in given] == [10, 1, 10, 1]
    assert [given[1][0], given[3][0]] == large
    assert given[0] + given[2] == small[:20]


def test_a_lane_is_found_behind_any_number_of_others(ledger: Ledger, slot: int) -> None:
    publish(ledger, *[(10, 3)] * 1_100)
    [small] = publish(ledger, (1, 0))
    found = Reader(ledger, slot).claim(100)
    assert (small, 1) in found
    assert len(found) == 10


def test_a_bundle_is_given_whole_wherever_it_begins(ledger: Ledger, slot: int) -> None:
    """It has more segments than are looked at where the lanes are at different places."""
    stream_keys, members = keys.Stream("t", "rows"), 300

    def entry(rows: int, lane: int, *bundle: str) -> None:
        record = Segment(segments.new_hex_id(), rows, 1, 10, (), (0,)).dump()
        fields: list[str | int] = ["segment", record, "rows", rows, "slots", str(slot), *bundle, "lane", lane]
        ledger.store.send([command("XADD", stream_keys.entries, "*", *fields)])

    for lane in (3, 2, 1):
        publish(ledger, *[(1, lane)] * 130)
    for left in range(members, 0, -1):
        entry(1, 0, *(("bundle", f"{left - 1} {left}") if left > 1 else ()))
    publish(ledger, *[(1, 0)] * 10)
    reader, sizes = Reader(ledger, slot), list[int]()
    while found := reader.claim(40):
        sizes.append(len(found))
    assert max(sizes) == members
    assert sum(sizes) == 3 * 130 + members + 10


def test_what_is_given_back_is_given_in_its_turn(ledger: Ledger, slot: int) -> None:
    publish(ledger, *[(100, 3)] * 20)
    dead = Reader(ledger, slot, "dead")
    had = [segment_id for segment_id, _ in dead.claim(2_000)]
    back, _ = ledger.run(fencing.take_back(ledger.core, "rows", slot, "dead"))
    assert back == len(had) == 20
    small = publish(ledger, *[(1, 0)] * 20)
    reader, given = Reader(ledger, slot), list[str]()
    while found := reader.claim(200):
        given += [segment_id for segment_id, _ in found]
    assert sorted(given) == sorted(had + small)
    assert max(map(given.index, small)) < len(given) / 2 + len(small)
    [left] = ledger.store.send([command("EXISTS", keys.Stream("t", "rows").returned(slot))])
    assert not left


def test_who_reads_fairly_goes_on_where_it_was_and_begins_with_what_was_there(ledger: Ledger) -> None:
    slot = ledger.run(subscriptions.subscribe(ledger.core, "rows", "fair"))
    before = publish(ledger, *[(10, 0)] * 10)
    reader = Reader(ledger, slot)
    had = [segment_id for segment_id, _ in reader.claim(50)]
    ledger.run(fairness.declare(ledger.core, "rows", "key", slot))
    ledger.run(fairness.declare(ledger.core, "rows", "key", slot))
    after = publish(ledger, (10, 2), (10, 0))
    while found := reader.claim(50):
        had += [segment_id for segment_id, _ in found]
    assert sorted(had) == sorted(before + after)


@pytest.mark.parametrize("seed", range(4))
def test_each_segment_is_given_once_whoever_takes_it(ledger: Ledger, slot: int, seed: int) -> None:
    """Late copies of claims, readers that die, batches of any size, a window that ends early."""
    chance = random.Random(seed)
    published, done = list[str](), list[str]()
    readers = [Reader(ledger, slot, f"r{n}") for n in range(3)]
    held: dict[str, list[str]] = {one.name: [] for one in readers}
    copies = []
    stream_keys = keys.Stream("t", "rows")
    for step in range(120):
        if step < 80:
            some = [(chance.randrange(1, 200), chance.randrange(4)) for _ in range(chance.randrange(30))]
            published += publish(ledger, *some)
        at = chance.randrange(3)
        reader = readers[at]
        rows, most = chance.choice((1, 50, 500, 10**6)), chance.choice((1, 3, 500))
        size = chance.choice((1, 5_000, 10**9))
        words = rows, size, most, "+", HOLD_TTL, 0, "fair", ""
        copies.append(scripts.claim_segments(stream_keys, slot, reader.name, reader.at, *words))
        held[reader.name] += [segment_id for segment_id, _ in reader.claim(rows, most, size)]
        if chance.random() < 0.3:
            with contextlib.suppress(StoreError):  # it is refused
                ledger.store.send([copies.pop(chance.randrange(len(copies)))])
        if chance.random() < 0.2:  # it dies
            ledger.run(fencing.take_back(ledger.core, "rows", slot, reader.name))
            held[reader.name] = []
            readers[at] = Reader(ledger, slot, f"r{step + 3}")
            held[readers[at].name] = []
            copies = []
        elif chance.random() < 0.5:
            read_range = Range("rows", slot, reader.name, 0, reader.at)
            delivered = ledger.run(subscriptions.all_delivered(ledger.core, read_range))
            assert [one.segment.id for one in delivered] == held[reader.name]
            assert ledger.run(subscriptions.note(ledger.core, read_range, delivered)) == len(delivered)
            ledger.run(subscriptions.note(ledger.core, read_range, delivered, forget=True))
            done += held[reader.name]
            held[reader.name] = []
    for reader in readers:
        while found := reader.claim(10**6):
            held[reader.name] += [segment_id for segment_id, _ in found]
    every = done + [segment_id for segment_ids in held.values() for segment_id in segment_ids]
    assert sorted(every) == sorted(published)


def rows_of(*keys_: object) -> list[pa.RecordBatch]:
    column = pa.array(keys_)
    made: list[pa.RecordBatch] = pa.table({"key": column, "n": pa.array(range(len(keys_)))}).to_batches()
    return made


def test_rows_go_into_lanes_by_size_of_their_key(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 2)
    monkeypatch.setattr(fairness, "FACTOR", 2)

    def lanes(*keys_: object) -> list[tuple[int, list[int]]]:
        parts = ledger.run(fairness.cut(ledger.core, "rows", "key", rows_of(*keys_)))
        found = list[tuple[int, list[int]]]()
        for lane, part in parts:
            found.append((lane, [int(n) for one in part for n in one.column("n").to_pylist()]))
        return found

    assert lanes("a", "b", "a", "a", "c", "a", "a") == [(0, [0, 1, 2, 4]), (1, [3, 5]), (2, [6])]
    assert lanes("b", "a", "a", "a", "a") == [(0, [0]), (2, [1, 2, 3]), (3, [4])]
    assert lanes("d", None, None, None) == [(0, [0, 1, 2]), (1, [3])]
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 2)
    assert lanes("x", "y", "z", "u") == [(0, [0, 1]), (0, [2, 3])]


def test_rows_of_a_writer_go_into_lanes(ledger: Ledger, slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 30)
    writer = StreamWriter(ledger, "rows")
    batch = writer.batch(pa.table({"key": ["big"] * 50 + ["small"] * 10, "n": range(60)}))
    anchors = track(ledger, batch.ids(), slab=25)
    made = writer.publish(batch, anchors)
    assert writer.publish(batch, anchors) == made
    assert [(one.rows, one.lane) for one in made] == [(40, 0), (20, 1)]
    [later] = writer.write(pa.table({"key": ["big"], "n": [60]}))
    assert later.lane == 1
    read: list[tuple[int, int | None]] = []
    what = take(ledger, "rows", "fair")
    for one in ledger.run(subscriptions.all_delivered(ledger.core, what)):
        [payload] = ledger.store.send([command("GET", keys.Stream("t", "rows").payload(one.segment.id))])
        for rows in segments.decode(payload):
            read += zip(rows.column("n").to_pylist(), rows.column("_acker").to_pylist(), strict=True)
    assert sorted(read[:-1]) == list(enumerate(anchors.tolist()))  # each row has its own tree
    assert read[-1] == (60, None)
    ack(ledger, what)
    assert counters(ledger) == {"tracked": 60, "acked": 60}


def test_rows_with_a_tree_each_have_the_first_lane(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 2)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 4)
    slot = ledger.run(subscriptions.subscribe(ledger.core, "rows", "fair"))
    ledger.run(fairness.declare(ledger.core, "rows", "_acker", slot))
    writer = StreamWriter(ledger, "rows")
    batch = writer.batch(pa.table({"n": range(10)}))
    made = writer.publish(batch, track(ledger, batch.ids()))
    assert [(one.rows, one.lane) for one in made] == [(4, 0), (4, 0), (2, 0)]
    ack(ledger, take(ledger, "rows", "fair"))
    assert counters(ledger) == {"tracked": 10, "acked": 10}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None]),
        pa.array([[1, 3], [5], []], pa.list_(pa.int64())),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([b"\xff", b"", None]),
        pa.array([1.5, float("nan"), None]),
        pa.array([2**40, 2**62, None], pa.int64()).cast(pa.timestamp("s"), safe=False),
    ],
)
def test_any_column_may_be_a_key(ledger: Ledger, column: pa.Array) -> None:
    batches = pa.table({"key": column}).to_batches()
    for name in ("key", "nothing"):
        [(lane, part)] = ledger.run(fairness.cut(ledger.core, "rows", name, batches))
        assert lane == 0
        assert sum(one.num_rows for one in part) == 3


def test_keys_with_little_of_a_piece_are_not_counted(ledger: Ledger, raw: "redis.Redis") -> None:
    keys_ = np.concatenate([np.arange(2_000), np.full(2_000, -1)])
    batches = pa.table({"key": keys_}).to_batches()
    ledger.run(fairness.cut(ledger.core, "rows", "key", batches))
    [own] = ledger.store.send([command("BITCOUNT", keys.Stream("t", "rows").volumes)])
    assert own == 4 * (2_000).bit_count()


def test_a_stream_of_which_no_subscription_reads_fairly_has_lanes_no_more(ledger: Ledger, slot: int) -> None:
    assert ledger.run(subscriptions.staged_for(ledger.core, "rows")).fair == b"key"
    ledger.run(subscriptions.subscribe(ledger.core, "rows", "other"))
    ledger.run(retention.unsubscribe(ledger.core, "rows", "fair"))
    assert ledger.run(subscriptions.staged_for(ledger.core, "rows")).fair is None
    [stored] = ledger.store.send([command("HKEYS", keys.Stream("t", "rows").subscriptions)])
    assert not [name for name in stored if name.startswith((b"lanes", b"fair"))]
