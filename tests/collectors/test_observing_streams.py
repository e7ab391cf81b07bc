"""External streams of an observing topology: steps neither wait for the store nor fail because of it."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acker import Topology
from acker.collectors.modes import observing_streams
from acker.embedded import EmbeddedServer
from acker.streams.staging.external.rows import carriers
from tests.helpers.builders.collectors import counted
from tests.helpers.builders.external import source, work
from tests.helpers.servers.servers import wait_until as until

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is asked again right after an error."""
    monkeypatch.setattr(observing_streams, "PAUSE", 0.0)


@pytest.fixture
def observing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Topology]]:
    """Opens observing topologies named t, which are closed after the test.

    Their store has more than its second to answer: others may have the machine.
    """
    opened = list[Topology]()
    monkeypatch.setattr(observing_streams, "PATIENCE", 10.0)

    def make(url: str, timeout: float = 10.0) -> Topology:
        opened.append(Topology(url, "t", observe=True, ackers=2, message_timeout=60.0, timeout=timeout))
        return opened[-1]

    yield make
    for topology in opened:
        topology.close()


def test_rows_are_recorded(url: str, observing: Callable[..., Topology]) -> None:
    made, step = observing(url), observing(url)
    items = step.incoming("items", subscription="count")
    words, last = step.outgoing("words"), observing(url)
    counting = last.incoming("words", subscription="sum")
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    assert [row.tracked for row in rows] == [True] * 3
    further = [words.inject([], row) for row in rows[:2]]
    items.ack(rows[:2])
    items.fail(rows[2], "no such word")
    step.flush()
    counting.ack(counting.extract_many(further))
    last.flush()
    until(counted(made, tracked=3, acked=2, failed=1))


def test_nothing_waits_or_fails_where_there_is_no_store(
    observing: Callable[..., Topology], caplog: pytest.LogCaptureFixture
) -> None:
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "acker"):
        step = observing(NOWHERE, timeout=0.3)
        items, words = step.incoming("items", subscription="count"), step.outgoing("words")
        for number in range(100):
            row = items.extract([("acker-stamp", b"a1-x"), ("n", b"%d" % number)])
            assert not row.tracked
            assert words.inject([("n", b"1")], row) == [("n", b"1")]
            items.ack(row)
            step.flush()
    assert time.monotonic() - begun < 25.0, "one wait for each row takes half a minute"
    assert "<ObservingIncoming" in caplog.text or "ObservingIncoming('items'" in caplog.text


@pytest.mark.usefixtures("at_once")
def test_rows_of_a_flush_that_failed_go_with_a_later_one(
    away: EmbeddedServer, observing: Callable[..., Topology]
) -> None:
    made, step = observing(away.url), observing(away.url)
    items = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    until(counted(made, tracked=3))
    rows = items.extract_many(headers)
    away.stop()
    items.ack(rows[:2])
    items.extract([("acker-stamp", carriers.find(headers[2]))])
    step.flush()  # one row is neither acked nor failed: it is given up
    late = items.extract_many(headers)
    assert [row.tracked for row in late] == [True] * 3, "their segments are known"
    items.ack(late)
    away.start()

    def acked() -> bool:
        step.flush()
        return counted(made, acked=3)()

    until(acked)


@pytest.mark.usefixtures("at_once")
def test_a_store_that_lost_the_streams_records_later_rows(
    url: str, raw: Any, observing: Callable[..., Topology]
) -> None:
    made, step = observing(url), observing(url)
    work(step, [])
    source(made, 1)
    made.flush()
    raw.flushall()
    for topology in (made, step):
        topology.restore()
        work(topology, [])

    def acked() -> bool:
        headers = source(made, 1)
        made.flush()
        work(step, headers)
        step.flush()
        return made.counters()["acked"] > 0

    until(acked)
