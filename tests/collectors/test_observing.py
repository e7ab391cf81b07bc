"""Observing: records are only recorded; no call waits for the store, or fails because of it."""

import logging
import pickle
import time
from collections.abc import Callable

import pytest

from acker import AckerError, Topology, ValidationError
from acker.collectors.modes import observing
from acker.embedded import EmbeddedServer
from acker.inspect.topology.totals import totals
from acker.inspect.trees import failures
from tests.helpers.builders.collectors import counted
from tests.helpers.servers.servers import wait_until as until

NOWHERE = "redis://127.0.0.1:1"


def test_trees_and_outcomes_are_recorded_and_the_program_gets_none(url: str) -> None:
    with Topology(url, "t", observe=True, message_timeout=30.0) as topology:
        spout, bolt = topology.spout("orders"), topology.bolt("price")
        for number in range(3):
            [order] = spout.emit(f"order-{number}")
            [child] = bolt.emit(order)
            bolt.ack(order)
            bolt.ack(child) if number else bolt.fail(child, "no such sku")
        anchors, _ = spout.emit_many(["order-3", "order-4"])
        topology.flush()
        assert spout.pending == 0
        assert list(spout.outcomes(timeout=60.0)) == []
        until(counted(topology, tracked=5, acked=2, failed=1))
        assert len(set(anchors.tolist())) == 2
        for _ in range(3):
            topology.tick(force=True)
        assert topology.counters()["expired"] == 2
        read = topology.ledger.run(totals(topology.ledger.core))
        assert read.outstanding == 0, "ticks have confirmed all outcomes"
        page = topology.ledger.run(failures.page(topology.ledger.core))
        assert sorted(failed.message_id or b"" for failed in page.trees) == [
            b"order-0",
            b"order-3",
            b"order-4",
        ]
        assert {failed.spout for failed in page.trees} == {"orders.observed"}


def test_a_spout_of_a_guarded_topology_observes_for_itself(url: str) -> None:
    with Topology(url, "t", message_timeout=30.0) as topology:
        guarded, observed = topology.spout("payments"), topology.spout("orders", observe=True)
        bolt = topology.bolt("price")
        bolt.ack(guarded.emit("payment-1")[0])
        bolt.ack(observed.emit("order-1")[0])
        until(counted(topology, tracked=2, acked=2))
        topology.tick(force=True)
        assert [outcome.message_id for outcome in guarded.outcomes(timeout=60.0)] == [b"payment-1"]


def test_nothing_waits_or_fails_where_there_is_no_store(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING, "acker"),
        Topology(NOWHERE, "t", observe=True, timeout=0.3) as topology,
    ):
        spout, bolt = topology.spout("orders", max_spout_pending=1), topology.bolt("price")
        for number in range(100):
            bolt.ack(spout.emit(f"order-{number}")[0])
        topology.flush()
        assert list(spout.outcomes(timeout=60.0)) == []
        until(lambda: caplog.records)
        topology.flush()
    assert topology.dropped == 200
    assert time.monotonic() - began < 25.0, "one wait for each call takes a minute"
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "wait: " in line]) == 1, said
    with pytest.raises(AckerError, match="is closed"):
        spout.emit("order-100")


def test_what_waits_while_the_store_is_away_is_bounded_and_counted(
    away: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "BUFFERED", 6)
    with Topology(away.url, "t", observe=True, timeout=0.3, message_timeout=30.0) as topology:
        spout, bolt = topology.spout("orders"), topology.bolt("price")
        bolt.ack(spout.emit("before")[0])
        # The store counts a message before its reply has made room for another.
        until(lambda: counted(topology, acked=1)() and not topology.outbox.unsent)
        away.stop()
        kept = [spout.emit(f"kept-{number}")[0] for number in range(6)]
        assert all(order.anchors for order in kept)
        for order in kept:
            bolt.ack(order)
        assert spout.emit("dropped")[0].anchors == ()
        assert not spout.emit_many(["a", "b"])[0].any()
        bolt.fail(kept[0]) if not kept[0].ended else None
        assert topology.dropped == 6 + 1 + 2
        away.start()
        until(lambda: counted(topology, tracked=7)() and not topology.outbox.unsent)
        bolt.ack(spout.emit("after")[0])
        until(counted(topology, acked=2))


def test_a_store_that_comes_later_gets_what_was_kept(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server(append_only=True)
    server.stop()
    with Topology(server.url, "t", observe=True, timeout=0.3, ackers=2, message_timeout=30.0) as topology:
        topology.bolt("price").ack(topology.spout("orders").emit("order-1")[0])
        server.start()
        until(counted(topology, tracked=1, acked=1))
        assert topology.config.ackers == 2


def test_only_a_flush_sends_where_there_is_no_linger(url: str) -> None:
    with Topology(url, "t", observe=True, linger=None, message_timeout=30.0) as topology:
        spout, bolt = topology.spout("orders"), topology.bolt("price")
        first = spout.emit("order-1")[0]
        topology.flush()
        bolt.ack(first)
        spout.emit("order-2")
        until(counted(topology, tracked=1))
        assert topology.counters()["acked"] == 0
        topology.flush()
        until(counted(topology, tracked=2, acked=1))


def test_no_guarded_spout_has_the_name_of_an_observing_one(url: str) -> None:
    with Topology(url, "t") as topology:
        with pytest.raises(ValidationError, match=r"spout: expected a name without \.observed at its end"):
            topology.spout("orders.observed")
        with pytest.raises(ValidationError, match=r"spout: expected a name without \.observed at its end"):
            topology.spout("orders.observed", observe=True)


def test_settings_are_checked_at_once_and_a_pickle_observes_too(url: str) -> None:
    with pytest.raises(ValidationError, match="ackers"):
        Topology(NOWHERE, "t", observe=True, ackers=-1)
    with Topology(url, "t", observe=True, message_timeout=30.0) as topology:
        again = pickle.loads(pickle.dumps(topology))
        again.bolt("price").ack(again.spout("orders").emit("order-1")[0])
        again.close()
        until(counted(topology, acked=1))
    assert again.dropped == 0
