"""Outcomes after a store lost its latest moments: true ones only, at once, and once."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from acker import Outcome, Topology, Tuple
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from acker.ledger.outcomes.outcomes import OutcomeReader
from tests.helpers.builders.collectors import reported_unflushed
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.servers.durability import replica_of
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

AN_HOUR = 3_600_000
NEVER_EXPIRES: dict[str, Any] = {"message_timeout": 60.0, "ackers": 1, "timeout": 60.0}


class Pair:
    """A master and a replica that is to take its place, and its address."""

    def __init__(self, new_server: NewServer) -> None:
        self.server = new_server()
        self.replica = replica_of(new_server, self.server, "valkey")
        self.url = self.server.url

    def cut_off(self) -> None:
        """Has the replica hear of nothing further, when it has all so far."""
        with (
            redis.Redis.from_url(self.server.url) as master,
            redis.Redis.from_url(self.replica.url) as client,
        ):
            master.set("before", 1)  # what is awaited is what this connection has written
            assert wait_until(lambda: master.wait(1, 1000), timeout=60) == 1
            client.execute_command("REPLICAOF", "NO", "ONE")

    def promote(self) -> None:
        """Has the address lead to the replica."""
        self.server.kill()
        with redis.Redis.from_url(self.replica.url) as client:
            client.delete("before")
            client.config_set("port", self.server.port)

    def be_ahead(self, topology: Topology, spout: str) -> None:
        """Has the master write outcomes as if its clock were an hour ahead of the replica's."""
        with redis.Redis.from_url(self.server.url) as master:
            for shard in topology.ledger.core.shards:
                now = master.time()[0] * 1000
                master.execute_command("XSETID", shard.outcomes(spout), f"{now + AN_HOUR}-0")


@pytest.fixture
def pair(new_server: NewServer) -> Pair:
    return Pair(new_server)


def outstanding(topology: Topology) -> int:
    shards = topology.ledger.core.shards
    with redis.Redis.from_url(topology.ledger.store.url) as client:
        return sum(int(client.hget(shard.counters, "outstanding") or 0) for shard in shards)


def acked(topology: Topology, spout: Spout, name: str) -> list[Outcome]:
    """Tracks a tree, acks it, and returns what the spout learns next."""
    topology.bolt("b").ack(spout.emit(name)[0])
    topology.flush()
    return reported_unflushed(spout, 1)


def confirmed(topology: Topology, spout: Spout, count: int) -> list[Outcome]:
    outcomes = reported_unflushed(spout, count)
    for outcome in outcomes:
        spout.confirm(outcome)
    topology.flush()
    return outcomes


@contextmanager
def flushed(new_server: NewServer) -> Iterator[tuple[str, Any]]:
    server = new_server()
    with redis.Redis.from_url(server.url) as client:
        yield server.url, (lambda: None, client.flushall)


@contextmanager
def promoted(new_server: NewServer) -> Iterator[tuple[str, Any]]:
    two = Pair(new_server)
    yield two.url, (two.cut_off, two.promote)


@contextmanager
def cut(new_server: NewServer) -> Iterator[tuple[str, Any]]:
    """The end of the file is missing, though all of it was written."""
    server: EmbeddedServer = new_server(options={"appendfsync": "always", "auto-aof-rewrite-percentage": "0"})
    sizes: list[tuple[Path, int]] = []

    def note() -> None:
        [file] = (server.directory / "appendonlydir").glob("*.incr.aof")
        sizes.append((file, file.stat().st_size))

    def lose() -> None:
        server.kill()
        os.truncate(*sizes[0])
        server.start()

    yield server.url, (note, lose)


@pytest.mark.parametrize("loss", [flushed, promoted, cut])
def test_a_spout_hears_of_its_trees_after_lost_registrations(new_server: NewServer, loss: Any) -> None:
    """Two processes, whose spouts have the same message ids; the second one comes after the loss."""
    with loss(new_server) as (url, (begin, lose)), Topology(url, "t", **NEVER_EXPIRES) as first:
        begin()
        mine = first.spout("mine")
        mine.emit("before")
        first.flush()
        lose()
        with Topology(url, "t", **NEVER_EXPIRES) as second:
            theirs = second.spout("theirs")
            [[other], [own]] = theirs.emit("m"), mine.emit("m")
            first.flush()
            second.flush()
            second.bolt("b").ack(other)
            second.flush()
            [outcome] = confirmed(second, theirs, 1)
            assert (outcome.anchor, outcome.status) == (other.anchors[0], "acked")
            assert list(mine.outcomes(timeout=0.3)) == []
            first.bolt("b").ack(own)
            first.flush()
            [outcome] = reported_unflushed(mine, 1)
            assert (outcome.anchor, outcome.status) == (own.anchors[0], "acked")
            assert list(theirs.outcomes(timeout=0.3)) == []
            second.ledger.run(second.ledger.core.refresh_spouts())
            assert second.ledger.core.spouts >= {"theirs"}


@pytest.mark.cluster
def test_a_configuration_that_is_lost_alone_is_stored_again(url: str, raw: "redis.Redis") -> None:
    """In a cluster it lies in another slot than the shards: its master alone may lose it."""
    with Topology(url, "t", ackers=2, message_timeout=1.0) as topology:
        spout = topology.spout("s")
        acked(topology, spout, "m")
        stored = raw.hgetall("acker:{t}:config")
        raw.delete("acker:{t}:config")
        wait_until(lambda: [*spout.outcomes(), raw.exists("acker:{t}:config")][-1])
        # Readers learn by another epoch that the store has lost it.
        again = raw.hgetall("acker:{t}:config")
        assert again.pop(b"epoch") != stored.pop(b"epoch")
        assert again == stored


def test_outcomes_of_a_server_whose_clock_is_behind_come_at_once(pair: Pair) -> None:
    with Topology(pair.url, "t", **NEVER_EXPIRES) as topology:
        spout = topology.spout("s")
        assert acked(topology, spout, "kept")[0].status == "acked"
        pair.cut_off()
        pair.be_ahead(topology, "s")
        found = acked(topology, spout, "lost")
        for outcome in found:
            spout.confirm(outcome)
        topology.flush()
        pair.promote()
        for number in range(5):
            [outcome] = acked(topology, spout, f"after-{number}")
            assert (outcome.message_id, outcome.status) == (b"after-%d" % number, "acked")
            spout.confirm(outcome)
        topology.flush()
        assert topology.counters()["expired"] == 0


def test_what_the_store_has_as_acked_is_never_reported_as_lost(pair: Pair) -> None:
    """The store seems to hold what it held: as many outcomes are new as there are that were not confirmed."""
    with Topology(pair.url, "t", ackers=1, message_timeout=2.0, timeout=60.0) as topology:
        spout = topology.spout("s")
        confirmed_before = acked(topology, spout, "kept")
        spout.confirm(confirmed_before[0])
        topology.flush()
        pair.cut_off()
        pair.be_ahead(topology, "s")
        for number in range(3):
            acked(topology, spout, f"lost-{number}")
        pair.promote()
        topology.bolt("b").ack(spout.emit("after")[0])
        topology.flush()
        [outcome] = reported_unflushed(spout, 1)
        assert (outcome.message_id, outcome.status) == (b"after", "acked")


@pytest.mark.parametrize("acks", ["kept", "lost"])
def test_a_lost_confirmation_is_sent_again_without_a_second_report(pair: Pair, acks: str) -> None:
    with Topology(pair.url, "t", slab_limit=7, **NEVER_EXPIRES) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        tuples: list[Tuple] = list(itertools.chain(*(spout.emit(f"m{number}") for number in range(40))))
        topology.flush()
        if acks == "lost":
            pair.cut_off()
        for one in tuples:
            bolt.ack(one)
        topology.flush()
        if acks == "kept":
            pair.cut_off()
        assert {outcome.status for outcome in confirmed(topology, spout, 40)} == {"acked"}
        wait_until(lambda: outstanding(topology) == 0)
        pair.promote()
        wait_until(
            lambda: outstanding(topology) == 40
        )  # the connection was cut: what comes first may be an error
        if acks == "lost":
            for _ in range(3):
                topology.tick(force=True)
            assert topology.counters()["expired"] == 40

        def sent_again() -> bool:
            assert list(spout.outcomes(timeout=0.1)) == []
            topology.flush()
            return outstanding(topology) == 0

        wait_until(sent_again)
        assert acked(topology, spout, "next")[0].status == "acked"


def test_an_entry_that_says_something_else_than_what_was_read_is_not_confirmed(valkey_url: str) -> None:
    """A store that lost its latest moments may give the same id again."""
    ledger = opened(valkey_url, "again")
    trees = Trees(3).track(ledger)
    trees.complete(ledger)
    [entry] = ledger.outcomes(OutcomeReader(ledger.core, "s"))
    assert ledger.confirm("s", [entry.confirmation._replace(digest=b"0" * 16)]) == 0
    [again] = ledger.outcomes(OutcomeReader(ledger.core, "s"))
    assert again.confirmation == entry.confirmation
    assert ledger.confirm("s", [entry.confirmation]) == 3


def test_reads_before_an_interrupt_hide_no_rollback(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = opened(valkey_url, "back")
    trees = Trees(3).track(ledger)
    reader = OutcomeReader(ledger.core, "s")
    trees.complete(ledger, 0)
    [first] = ledger.outcomes(reader)
    ledger.confirm("s", [first.confirmation])
    reader.confirmed([first.confirmation])
    before = reader.offset
    trees.complete(ledger, 1)
    assert ledger.outcomes(reader) != []
    reader.offset = before  # as where an interrupt came before anybody had learnt it
    stream = ledger.core.shards[0].outcomes("s")
    raw: Any = valkey_raw
    [(_, fields)] = raw.xrange(stream)
    raw.delete(stream)
    raw.xadd(stream, fields, id="1-0")  # by a clock that is behind
    assert [entry.confirmation.id for entry in ledger.outcomes(reader)] == [b"1-0"]


def test_other_outcomes_of_a_store_set_back_are_read(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """It has as many outcomes as were read, of which none is confirmed, and its clock is behind."""
    ledger = opened(valkey_url, "back")
    trees = Trees(3).track(ledger)
    reader = OutcomeReader(ledger.core, "s")
    trees.complete(ledger, 0)
    assert len(ledger.outcomes(reader)) == 1
    before = moment(valkey_raw)
    trees.complete(ledger, 1)
    [lost] = ledger.outcomes(reader)
    set_back(valkey_raw, before)
    trees.complete(ledger, 2)
    stream = ledger.core.shards[0].outcomes("s")
    raw: Any = valkey_raw
    [first, (_, fields)] = raw.xrange(stream)
    raw.delete(stream)
    for entry, said in (first, (lost.confirmation.id, fields)):
        raw.xadd(stream, said, id=entry)
    assert [one.indexes for entry in ledger.outcomes(reader) for one in entry.slabs] == [(0,), (2,)]
    assert ledger.outcomes(reader) == []
