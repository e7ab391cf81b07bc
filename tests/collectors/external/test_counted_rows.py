"""Rows and flights that come again, and rows without a tree in a shard: a shard counts each row once."""

from collections.abc import Iterable
from typing import Any

from acker import Topology
from acker.ledger import ids
from acker.streams.staging.external import commit
from acker.streams.staging.external.contents import ExternalCommit, In
from acker.streams.staging.external.segments import Worked
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source


def receive(step: Topology, row: Any, positions: Iterable[int], ahead: int = 0) -> None:
    """Tells shard 0 that rows of a row's segment were worked on. ahead: seconds before the store's clock."""
    exchange: Any = step._exchange
    worked = {(row.token, 0): Worked(set(positions))}
    received = In(exchange.streams["items"], worked, exchange.now() + ahead)
    told = ExternalCommit(received={("items", row.incoming._slot): received})
    step.ledger.run(commit.carry_out(step.ledger.core, told))


def test_a_row_that_was_acked_fails_nothing_when_it_comes_again(make: Make) -> None:
    made, step, again = make(ackers=1), make(ackers=1), make(ackers=1)
    items, copies = (one.incoming("items", subscription="count") for one in (step, again))
    spout, out = made.spout("s"), made.outgoing("items")
    headers = [out.inject(None, spout.emit(f"m{number}")[0]) for number in range(2)]
    made.flush()
    items.ack(items.extract(headers[0]))
    step.flush()
    copies.fail(copies.extract(headers[0]), "a copy that another member has")
    again.flush()
    items.ack(items.extract(headers[1]))
    step.flush()
    assert (made.counters()["acked"], made.counters()["failed"]) == (2, 0)


def test_a_shard_counts_only_the_rows_that_have_a_tree_in_it(make: Make) -> None:
    made, step = make(ackers=2, slab_limit=1), make(ackers=2)
    items = step.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items")
    headers = [out.inject(None, spout.emit(f"m{number}")[0]) for number in range(32)]
    made.flush()
    rows = items.extract_many(headers)
    here = [at for at, row in enumerate(rows) if ids.shard_of_anchor(row.anchors[0], 2) == 0]
    assert 0 < len(here) < 32
    receive(step, rows[0], set(range(32)) - {here[0]})
    assert made.counters()["acked"] == 0
    receive(step, rows[0], here[:1])
    assert made.counters()["acked"] == len(here)


def test_the_progress_of_a_subscription_is_never_ahead_of_the_stores_clock(make: Make, raw: Any) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()
    receive(step, items.extract(headers[0]), [0], ahead=86400)
    received = raw.hget("acker:{t/items}:subscriptions", f"received:{items._slot}")
    assert 0 < int(received) <= raw.time()[0]


def test_what_was_full_at_its_emit_is_acked_if_another_shard_has_refused_the_flight(make: Make) -> None:
    """A flight goes again where a shard tells of a spout: the shards before it have emitted by then."""
    made, step, last = make(ackers=2), make(), make()
    items = step.incoming("items", subscription="count")
    words, sink = step.outgoing("words"), last.incoming("words", subscription="sink")
    by_shard: dict[int, list[Any]] = {0: [], 1: []}
    spout, out, count = made.spout("s"), made.outgoing("items", segment_rows=1), 0
    while min(map(len, by_shard.values())) < 2:
        [tracked] = spout.emit(f"m{count}")
        shard, count = ids.shard_of_anchor(tracked.anchors[0], 2), count + 1
        by_shard[shard].append(out.stamp(tracked))
    made.flush()
    items.ack(items.read(by_shard[0][1:]))
    step.flush()  # it knows the spouts of one shard
    rows = items.read([by_shard[0][0], *by_shard[1]])
    texts = [words.stamp(row) for row in rows]
    items.ack(rows)
    sink.ack(sink.read(texts))
    last.flush()
    step.flush()
    assert made.counters()["acked"] == count
