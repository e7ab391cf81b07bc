"""A claim on one server reads with its segments the same facts as single reads do elsewhere."""

import itertools
import secrets
from typing import Any

import numpy as np
import pyarrow as pa
import redis

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Reply
from acker.streams import Stream, StreamWriter
from acker.streams.commits.contents import Commit
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import DEFAULT, Claimed
from acker.streams.reader import payload_of
from acker.streams.staging import vectors
from acker.streams.staging.skipped import Skipped
from acker.streams.upkeep import stale
from tests.helpers.builders.line_job import new_first
from tests.helpers.builders.streaming import commit, emit, slot_of, stage, track

NUMBERS = itertools.count()
LINES = keys.Stream("t", "lines")


def ready(url: str) -> Ledger:
    ledger = open_ledger(Store(url), "t", ackers=3)
    Stream(ledger, "lines").subscribe(DEFAULT)
    return ledger


def claim(ledger: Ledger, at: int = 0, **most: Any) -> Claimed:
    """The answer to a reader: the same each time that it asks."""
    claimed = Claimed()
    claiming = subscriptions.claim(
        ledger.core, "lines", slot_of(ledger), "reader", at, name=DEFAULT, claimed=claimed, **most
    )
    ledger.run(claiming)
    return claimed


def write(ledger: Ledger, anchors: ids.Ids) -> ids.Ids:
    """Publishes a segment of a row for each tree."""
    assert commit(ledger, next(NUMBERS), Commit((stage(ledger, anchors, "lines"),)))
    return anchors


def along(ledger: Ledger, claimed: Claimed) -> tuple[Skipped, dict[bytes, Reply], list[Any]]:
    heads = dict[bytes, Reply]()
    members = [one.segment for one in claimed.delivered]
    skipped = stale.judge_seen(ledger.core, members, slot_of(ledger), claimed.looks, heads)
    return skipped, heads, [one[0] for one in claimed.looks]


def one_by_one(ledger: Ledger, claimed: Claimed) -> tuple[Skipped, dict[bytes, Reply], list[Any]]:
    heads = dict[bytes, Reply]()
    members = [one.segment for one in claimed.delivered]
    skipped = ledger.run(stale.judge(ledger.core, members, slot_of(ledger), heads))
    return skipped, heads, ledger.run(payload_of(ledger, "lines", members))


def test_what_a_claim_reads_along_is_what_is_read_one_by_one(url: str, raw: "redis.Redis") -> None:
    ledger = ready(url)
    slabs = ((50, 1000), (3, 1), (4, 1000), (2, 1), (2, 1000), (2, 1000))
    tracked = [write(ledger, track(ledger, ids.new_ids(count), slab)) for count, slab in slabs]
    dense, ones, over, over_ones, *_ = tracked
    ledger.fail(np.concatenate([dense[::2], ones[:1], over, over_ones]))
    # What comes for a tree that nobody knows waits for its track; one of a line had that before its rows.
    write(ledger, ids.anchors_from(new_first(1), 2))
    write(ledger, ids.new_anchors(2))
    acked, gone = [one.segment for one in claim(ledger).delivered[4:6]]
    raw.delete(*(key for key, _ in vectors.keys_of(ledger.core, acked, slot_of(ledger))))
    raw.delete(LINES.payload(gone.id))
    claimed = claim(ledger)
    skipped, heads, payloads = expected = one_by_one(ledger, claimed)
    assert (len(skipped.over), len(skipped.parts), payloads.count(None)) == (3, 2, 1)
    assert [reply for reply in heads.values() if reply[0] is None]
    assert along(ledger, claimed) == expected
    assert claimed.now > 0


def test_much_is_not_read_along(valkey_url: str) -> None:
    ledger = ready(valkey_url)
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": [secrets.token_hex(70_000)]}))
    writer.publish(batch, track(ledger, batch.ids()))
    for _ in range(2):
        emit(ledger, 90, slab=1)
    claim(ledger)
    for at, segments, looks in ((0, 1, 0), (1, 1, 1), (1, 2, 0), (2, 1, 1)):
        claimed = claim(ledger, at, segments=segments)
        assert (len(claimed.delivered), len(claimed.looks)) == (segments, looks), (at, segments)


def test_unreadable_rows_are_told_by_their_reader(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = ready(valkey_url)
    emit(ledger, 2)
    [segment] = [one.segment for one in claim(ledger).delivered]
    valkey_raw.delete(LINES.payload(segment.id))
    valkey_raw.hset(LINES.payload(segment.id), "no", "payload")
    claimed = claim(ledger)
    assert [one.segment for one in claimed.delivered] == [segment]
    assert claimed.looks == []
    valkey_raw.delete(LINES.payload(segment.id))
