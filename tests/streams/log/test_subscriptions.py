"""Subscriptions of one stream: each has all of it, from when it joined until it is dropped."""

from itertools import count

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError, UnknownSubscription, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store.client import Store
from acker.streams import Stream, StreamWriter
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.log import segments, subscriptions
from tests.helpers.builders.streaming import (
    ack,
    commit,
    consume,
    counters,
    delivered,
    emit,
    kept,
    rows,
    run_cut,
    slot_of,
    stage,
    take,
    track,
)
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.faults.unreadable import expire

pytestmark = pytest.mark.cluster(slow=True)


def behind(stream: Stream) -> dict[str | None, int]:
    return {one.name: one.rows_behind for one in stream.totals().subscriptions}


# Each subscription has all of a stream


def test_a_tree_is_complete_when_every_subscription_acked(ledger: Ledger, lines: Stream, url: str) -> None:
    emit(ledger, 1500)
    assert behind(lines) == {"a": 1500, "b": 1500}
    assert consume(ledger, "lines", "a") == 1
    assert counters(ledger) == {"tracked": 1500}
    assert behind(lines) == {"a": 0, "b": 1500}
    assert len(rows(ledger, "lines")) == 1500
    assert consume(ledger, "lines", "a") == 0
    assert counters(ledger) == {"tracked": 1500}
    assert consume(ledger, "lines", "b") == 1
    assert counters(ledger) == {"tracked": 1500, "acked": 1500}
    assert rows(ledger, "lines") == []
    for word in (b"staged", b"payload", b"unacked", b"delivered", b"readers"):
        assert not kept(url, word)


def test_what_a_bolt_emits_is_for_every_subscription(ledger: Ledger) -> None:
    names = ("a", "b", "c")
    for name in names:
        Stream(ledger, "words").subscribe(name)
    a, b, c = emit(ledger, 3).tolist()
    staged = stage(ledger, [[a, b], [c, c], [], None, [a, None]])
    assert staged.segments[0].slots == tuple(slot_of(ledger, "words", name) for name in names)
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    for name in ("c", "a"):
        assert consume(ledger, "words", name) == 1
        assert counters(ledger) == {"tracked": 3}
    assert consume(ledger, "words", "b") == 1
    assert counters(ledger) == {"tracked": 3, "acked": 3}


def test_tuple_ids_are_a_subscriptions_own() -> None:
    places = np.arange(5000, dtype=np.int64)
    ids = np.concatenate([segments.edge_ids(seed, slot, places) for seed in (1, 2) for slot in range(6)])
    assert len(np.unique(ids)) == len(ids)


@pytest.mark.parametrize("failed", [None, "why"])
def test_a_commit_cut_anywhere_is_exact_for_each_subscription(
    valkey_url: str, failed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_by_script(monkeypatch)
    for after in count():
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2)
        for stream in ("lines", "words"):
            for name in ("a", "b"):
                Stream(ledger, stream).subscribe(name)
        anchors = emit(ledger, 30)
        staged = (stage(ledger, np.repeat(anchors, 2), rows=25),)
        batch = (take(ledger, "lines", "a"),)
        what = Commit(staged, batch) if failed is None else Commit(inputs=batch, failed=failed)
        cut = run_cut(ledger, commits.commit(ledger.core, "writer", 7, what), after)
        assert commit(ledger, 7, what)
        assert counters(ledger).get("acked", 0) == 0
        consume(ledger, "lines", "b")
        for name in ("a", "b"):
            consume(ledger, "words", name)
        total = counters(ledger)
        total.pop("duplicates", None)
        late = total.pop("late", 0)
        assert late == (30 if failed else 0)
        assert total == {"tracked": 30, "failed" if failed else "acked": 30}
        if not cut:
            assert after > 5
            return


# The time at which a reader joins


def test_the_first_subscription_has_earlier_rows_and_later_ones_have_not(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    emit(ledger, 10)
    assert behind(stream) == {None: 10}
    stream.subscribe("first")
    stream.subscribe("second")
    emit(ledger, 5)
    assert behind(stream) == {"first": 15, "second": 5}
    assert sum(one.segment.rows for one in delivered(ledger, take(ledger, "lines", "second"))) == 5
    assert consume(ledger, "lines", "first") == 2
    assert counters(ledger) == {"tracked": 15, "acked": 10}


def test_who_joins_between_staging_and_commit_sees_nothing_of_it(ledger: Ledger) -> None:
    Stream(ledger, "words").subscribe("a")
    staged = stage(ledger, emit(ledger, 4))
    Stream(ledger, "words").subscribe("b")
    commit(ledger, 0, Commit((staged,), (take(ledger, "lines"),)))
    assert consume(ledger, "words", "b") == 0
    assert consume(ledger, "words", "a") == 1
    assert counters(ledger) == {"tracked": 4, "acked": 4}


def test_a_stream_has_64_subscriptions_at_most(ledger: Ledger) -> None:
    stream = Stream(ledger, "lines")
    for number in range(64):
        stream.subscribe(f"s{number}")
    with pytest.raises(AckerError, match="has 64 subscriptions already"):
        stream.subscribe("one-more")
    stream.subscribe("s7")
    stream.unsubscribe("s7")
    stream.subscribe("one-more")
    with pytest.raises(ValidationError, match="subscription: expected 1 to 64 of"):
        stream.subscribe("a b")


# A subscription that is dropped


@pytest.mark.parametrize("want", [False, True])
def test_dropping_a_subscription_ends_its_trees(ledger: Ledger, lines: Stream, url: str, want: bool) -> None:
    for _ in range(3):
        emit(ledger, 100)
    ack(ledger, take(ledger, "lines", "b", segments=1))
    take(ledger, "lines", "b", segments=1)
    consume(ledger, "lines", "a")
    assert counters(ledger) == {"tracked": 300, "acked": 100}
    slot = slot_of(ledger, "lines", "b")
    assert lines.unsubscribe("b", ack=want) == 2
    assert counters(ledger) == {"tracked": 300, "acked": 300} if want else {"acked": 100, "failed": 200}
    assert behind(lines) == {"a": 0}
    with pytest.raises(UnknownSubscription, match="no subscription 'b'"):
        lines.unsubscribe("b")
    with pytest.raises(UnknownSubscription, match="was dropped"):
        ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 2, name="b"))
    emit(ledger, 10)
    consume(ledger, "lines", "a")
    assert ledger.counters()["acked"] == (310 if want else 110)
    for word in (b"staged", b"payload", b"unacked", b"delivered", b"readers", b"returned"):
        assert not kept(url, word)


def test_rows_without_subscriptions_left_are_for_the_next(ledger: Ledger, lines: Stream) -> None:
    """No spout would write them again. What has trees fails."""
    writer = StreamWriter(ledger, "lines")
    both = writer.batch(pa.table({"line": ["x"]}))
    lines.unsubscribe("b")
    alone = writer.batch(pa.table({"line": ["x"]}))
    lines.unsubscribe("a")
    writer.publish(both)
    writer.publish(alone)
    totals = lines.totals()
    assert (totals.segments, totals.dropped) == (2, 0)
    emit(ledger, 3)
    assert behind(lines) == {None: 5}
    assert consume(ledger, "lines", "next") == 3
    assert counters(ledger) == {"tracked": 3, "acked": 3}


def test_trees_of_rows_that_are_for_nobody_any_more_fail_and_say_so(ledger: Ledger) -> None:
    Stream(ledger, "words").subscribe("a")
    staged = stage(ledger, emit(ledger, 5))
    Stream(ledger, "words").unsubscribe("a", ack=True)
    what = Commit((staged,), (take(ledger, "lines"),))
    for cut in (3, 5, 7):
        run_cut(ledger, commits.commit(ledger.core, "writer", 0, what), cut)
    assert commit(ledger, 0, what)
    assert behind(Stream(ledger, "words")) == {}
    [reported] = {
        slab.cause.reason
        for entry in ledger.outcomes(OutcomeReader(ledger.core, "s"))
        for slab in entry.slabs
    }
    assert reported == "every subscription of stream words that the row was for was dropped"
    assert counters(ledger)["failed"] == 5


@pytest.mark.parametrize("others", [True, False])
def test_rows_of_a_dropped_subscription_end(ledger: Ledger, lines: Stream, others: bool) -> None:
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["x", "y"]}))
    anchors = track(ledger, batch.ids())
    lines.unsubscribe("b")
    if not others:
        lines.unsubscribe("a")
    for _ in range(2):
        writer.publish(batch, anchors)
    if others:
        assert "acked" not in counters(ledger)
        assert consume(ledger, "lines", "a") == 1
    total = counters(ledger)
    assert total["acked" if others else "failed"] == 2


# In a store that has lost some or all of what it had


def test_a_batch_of_an_emptied_store_is_not_for_later(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """Trees of its rows expire, for nobody dropped a subscription; rows without go to all that are there."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    Stream(ledger, "lines").subscribe("a")
    writer = StreamWriter(ledger, "lines")
    tree, plain = writer.batch(pa.table({"line": ["x"]})), writer.batch(pa.table({"line": ["y"]}))
    valkey_raw.flushall()
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    for name in ("b", "a"):
        Stream(ledger, "lines").subscribe(name)
    writer = StreamWriter(ledger, "lines")
    anchors = track(ledger, tree.ids())
    writer.publish(tree, anchors)
    assert not list(valkey_raw.scan_iter("*staged*")), "nobody will ever ack by them"
    writer.publish(tree, anchors)
    assert counters(ledger) == {"tracked": 1}
    expire(ledger)
    assert ledger.counters()["expired"] == 1
    for _ in range(2):
        writer.publish(plain)
    assert [consume(ledger, "lines", name) for name in ("b", "a")] == [1, 1]


def test_rows_for_a_lost_subscription_are_not_acked_for_it(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """A store that was set back has lost one of two: nobody has worked on the rows for that one."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    lines = Stream(ledger, "lines")
    lines.subscribe("a")
    before = moment(valkey_raw)
    lines.subscribe("lost")
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["x", "y"]}))
    set_back(valkey_raw, before)
    anchors = track(ledger, batch.ids())
    writer.publish(batch, anchors)
    assert consume(ledger, "lines", "a") == 1
    assert counters(ledger) == {"tracked": 2}
    expire(ledger)
    assert ledger.counters()["expired"] == 2
    assert rows(ledger, "lines") == []
    for word in (b"staged", b"payload", b"unacked"):
        assert not kept(valkey_url, word)


def test_a_number_set_aside_is_anothers_after_a_rollback(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    emit(ledger, 1)
    before = moment(valkey_raw)
    batch = take(ledger, "lines", "lost")
    set_back(valkey_raw, before)
    Stream(ledger, "lines").subscribe("other")
    assert slot_of(ledger, "lines", "other") == batch.slot
    with pytest.raises(UnknownSubscription, match="subscription lost was dropped"):
        ledger.run(subscriptions.claim(ledger.core, "lines", batch.slot, "reader", 0, name="lost"))
    assert consume(ledger, "lines", "other") == 1
    assert counters(ledger) == {"tracked": 1, "acked": 1}
