"""Flushes that are cut, forked children, and threads that work on rows while another one flushes."""

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import redis

from acker import Topology
from acker.collectors.external.exchange import Exchange
from acker.errors import AckerError, StoreUnavailable, StreamFull
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams.staging.external import commit, segments
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import Message, source, work
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.faults.simulator import scripts_of
from tests.helpers.faults.stepping import before_script, lose

SEND = Store.send


@contextmanager
def sent() -> Iterator[list[Sequence[Request]]]:
    """Gets the batches that this thread sends to the store while the block runs, without heartbeats."""
    batches, here = list[Sequence[Request]](), threading.get_ident()

    def send(store: Store, requests: Sequence[Request]) -> list[Reply]:
        if threading.get_ident() == here:
            batches.append(requests)
        return SEND(store, requests)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "send", send)
        yield batches


def test_a_flush_whose_last_reply_was_lost_is_called_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    last.incoming("words", subscription="count")
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    texts = words.stamps(rows)
    items.ack(rows)
    end = commit._Running.end

    def cut(self: commit._Running) -> Generator[Any, Any, None]:
        yield from end(self)
        raise StoreUnavailable("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr(commit._Running, "end", cut)
        with pytest.raises(StoreUnavailable):
            step.flush()
    step.flush()
    counting = last.incoming("words", subscription="count")
    counting.ack(counting.read(texts))
    last.flush()
    assert made.counters()["acked"] == 3


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_copies_of_a_flush_that_come_late_change_nothing(make: Make, order: int) -> None:
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    counting = last.incoming("words", subscription="count")
    headers, copies = source(made, 6, rows=2), list[Request]()
    made.flush()

    def flush_and_repeat(topology: Topology) -> None:
        with sent() as batches:
            topology.flush()
        copies.extend(one for batch in batches for one in batch)
        for one in copies[::order]:
            with suppress(AckerError):
                SEND(topology.ledger.store, [one])

    for part in (headers[::2], headers[1::2]):  # by the second all are full, and the first notes are dropped
        rows = items.extract_many(part)
        texts = words.stamps(rows)
        items.ack(rows)
        flush_and_repeat(step)
        assert made.counters()["acked"] == 0
        counting.ack(counting.read(texts[1:]))
        counting.ack(counting.read(texts[:1]))
        flush_and_repeat(last)
    assert made.counters()["acked"] == 6
    assert made.counters()["late"] == 0


def test_a_flush_takes_two_exchanges_with_one_server(make: Make) -> None:
    made, step, last = make(ackers=1), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    counting = last.incoming("words", subscription="count")
    lengths = list[tuple[int, int]]()
    for _ in range(2):  # at first a process learns of the subscriptions, and of the spouts of each shard
        headers = source(made, 20, rows=5)
        made.flush()
        rows = items.extract_many(headers)
        texts = words.stamps(rows)
        items.ack(rows)
        with sent() as of_step:
            step.flush()
        counting.ack(counting.read(texts))
        with sent() as of_last:
            last.flush()
        lengths.append((len(of_step), len(of_last)))
    assert made.counters()["acked"] == 40
    assert lengths[-1] == (2, 2)


def test_a_flush_that_was_cut_behind_its_commit_keeps_its_notes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step, last = make(ackers=1), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    last.incoming("words", subscription="count")
    other = make()
    headers = source(made, 2)
    made.flush()
    unknown = other.outgoing("words").inject(None, other.spout("s").emit("of another program")[0])
    other.flush()
    rows = items.extract_many(headers)
    texts = [words.inject(None, row) for row in rows]
    items.ack(rows)
    words.delivered("timed out", Message(unknown))
    lose(monkeypatch, "fail", step.flush)
    step.flush()
    work(last, texts, stream="words")
    last.flush()
    counts = made.counters()
    assert (counts["acked"], counts["failed"]) == (2, 1)


def test_no_progress_is_noted_of_rows_that_a_shard_does_not_take(
    make: Make, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    headers = source(made, 20)  # not flushed: bits of them wait
    work(step, headers)

    def noted() -> bool:
        return any("received:" in str(name) for name in raw.hkeys("acker:{t/items}:subscriptions"))

    with monkeypatch.context() as patch:
        patch.setattr(step.ledger.core, "config", replace(step.config, external_waiting_bytes=500))
        with pytest.raises(StreamFull):
            step.flush()
        assert not noted()
    step.flush()
    assert noted()


def test_a_flush_is_called_again_whose_fails_did_not_reach_the_store(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_RECENT", 1)
    made = make(ackers=1)
    items, out = made.incoming("items", subscription="count"), made.outgoing("items")
    words, counting = made.outgoing("words"), made.incoming("words", subscription="sink")
    headers = source(made, 3)
    made.flush()
    out.delivered("timed out", Message(headers[0]))
    rows = items.extract_many(headers[1:])
    texts = words.stamps(rows)
    items.ack(rows)
    lose(monkeypatch, "fail", made.flush)
    made.flush()
    counting.ack(counting.read(texts))
    made.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 2}


def test_a_row_that_was_not_delivered_fails_though_its_shard_is_set_back_before_its_bit(
    make: Make, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_RECENT", 1)
    made, step = make(ackers=1), make(ackers=1)
    step.incoming("items", subscription="count")
    out = made.outgoing("items")
    headers = source(made, 2, rows=2)
    made.flush()
    work(step, headers[1:2])
    step.flush()
    before = moment(raw)
    out.delivered("timed out", Message(headers[0]))
    before_script(monkeypatch, "receive", lambda: set_back(raw, before, {b"t:0/1"}), made.flush)
    made.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 0}


def test_a_flush_goes_on_where_fails_of_rows_find_no_room_to_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(segments, "MOST_RECENT", 1)
    made = make(ackers=1, waiting_bytes=0)
    items, out = made.incoming("items", subscription="count"), made.outgoing("items")
    headers = source(made, 3)
    made.flush()
    for row in items.extract_many(headers):
        items.fail(row, "odd")
    made.flush()
    spout = made.spout("s")
    for outcome in spout.outcomes(timeout=10.0):
        spout.confirm(outcome)
    made.flush()
    out.delivered("timed out", Message(headers[0]))  # its tree is over, which looks like one to come
    with sent() as batches:
        made.flush()
    assert not any("receive" in scripts_of(batch) for batch in batches), "no bit of the row may be set"
    assert "1 trees of rows that were not delivered found no room" in caplog.text
    assert made.counters()["orphaned"] == 1


def test_a_forked_child_sends_and_receives_for_itself(make: Make) -> None:
    made = make()
    spout, out = made.spout("s"), made.outgoing("items")
    items = made.incoming("items", subscription="count")
    out.inject({}, spout.emit("of the parent")[0])
    child = os.fork()
    if not child:
        status = 1
        try:
            items.ack(items.extract(out.inject({}, spout.emit("of the child")[0])))
            made.flush()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert made.counters()["acked"] == 1


def test_no_row_comes_between_the_check_of_a_flush_and_its_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 1)
    made.flush()
    items.ack(items.extract_many(headers))
    check, free = Exchange.check_ended, list[bool]()

    def checked(self: Exchange) -> None:
        check(self)
        other = threading.Thread(target=lambda: free.append(self.lock.acquire(blocking=False)))
        other.start()
        other.join()

    monkeypatch.setattr(Exchange, "check_ended", checked)
    freeze = Exchange._freeze
    at_freeze = list[bool]()

    def frozen(self: Exchange) -> None:
        at_freeze.append(free[-1])
        freeze(self)

    monkeypatch.setattr(Exchange, "_freeze", frozen)
    step._exchange.flush()  # type: ignore[union-attr]
    assert at_freeze == [False]
    assert made.counters()["acked"] == 1
