"""Durability: files, synced or not; replicas, promoted; and the writes for which a track waits."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from acker import Outcome, Topology
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from acker.errors import StoreError, StoreMisconfigured, StoreUnavailable, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.ledgers import Trees, counted, opened, reported
from tests.helpers.servers.durability import replica_of
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


def answers(spout: Spout, count: int) -> list[Outcome]:
    """The next outcomes of a spout, confirmed."""
    outcomes: list[Outcome] = []

    def enough() -> bool:
        for outcome in spout.outcomes(timeout=0.1):
            spout.confirm(outcome)
            outcomes.append(outcome)
            if len(outcomes) == count:
                return True
        return False

    wait_until(enough, timeout=90)
    return outcomes


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_killed_server_has_all_that_its_file_has(new_server: NewServer, kind: str, policy: str) -> None:
    server = new_server(kind, options={"appendfsync": policy})
    ledger = opened(server.url, ackers=2, timeout=60)
    trees = [Trees(5).track(ledger) for _ in range(50)]
    for tree in trees[:25]:
        tree.complete(ledger)
    with redis.Redis.from_url(server.url) as client:
        # With everysec, a slow sync of the file holds writes back.
        wait_until(lambda: client.info("persistence")["aof_buffer_length"] == 0, timeout=60)
    server.kill()
    server.start()
    counted(ledger, tracked=250, acked=125)
    for tree in trees[25:]:
        tree.complete(ledger)
    assert len(reported(ledger, *trees)) == 250


def test_a_power_cut_is_reported_as_expired_trees_only(new_server: NewServer, tmp_path: Path) -> None:
    """The end of the file is missing, as where its last second was not synced."""
    server = new_server(options={"appendfsync": "no", "auto-aof-rewrite-percentage": "0"})
    with Topology(server.url, "t", ackers=1, message_timeout=2.0, timeout=60) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        [kept] = spout.emit("kept")
        topology.flush()
        [file] = (server.directory / "appendonlydir").glob("*.incr.aof")
        size = file.stat().st_size
        # All of this is answered, and then lost: an ack, a tree, and a child and its ack of the kept one.
        [lost] = spout.emit("lost")
        [child] = bolt.emit([kept])
        bolt.ack(kept)
        topology.flush()
        assert file.stat().st_size > size
        server.kill()
        os.truncate(file, size)
        server.start()
        bolt.ack(child)
        bolt.ack(lost)
        topology.flush()

        def ticked() -> bool:
            topology.tick(force=True)
            return topology.counters()["expired"] > 0

        wait_until(ticked, timeout=60)
        found = {outcome.message_id: outcome.status for outcome in answers(spout, 2)}
    assert found == {b"kept": "expired", b"lost": "expired"}


def test_a_track_that_waits_for_a_replica_survives_its_promotion(new_server: NewServer, kind: str) -> None:
    server = new_server(kind)
    replica = replica_of(new_server, server, kind)
    ledger = opened(server.url, ackers=2, timeout=60, wait_replicas=1)
    trees = [Trees(3).track(ledger) for _ in range(20)]
    server.kill()
    with redis.Redis.from_url(replica.url) as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
    heir = open_ledger(Store(replica.url, timeout=60), "tested")
    assert (heir.config, heir.counters()["tracked"]) == (ledger.config, 60)
    for one in trees:
        one.complete(heir)
    assert len(reported(heir, *trees)) == 60


def test_what_was_not_yet_with_the_replica_is_reported_as_expired(new_server: NewServer) -> None:
    server = new_server()
    replica = replica_of(new_server, server, "valkey")
    with Topology(server.url, "t", ackers=1, message_timeout=2.0, timeout=60) as topology:
        spout = topology.spout("s")
        spout.emit("before")
        topology.flush()
        with redis.Redis.from_url(server.url) as client:
            assert wait_until(lambda: client.wait(1, 1000), timeout=60) == 1
        with redis.Redis.from_url(replica.url) as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
            # From here on the replica hears of nothing.
            spout.emit("after")
            topology.flush()
            server.kill()
            client.config_set("port", server.port)
        # The address now leads to the replica: it knows of one of the two.
        wait_until(lambda: topology.counters()["tracked"] == 1, timeout=60)

        def ticked() -> bool:
            topology.tick(force=True)
            return topology.counters()["expired"] == 1

        wait_until(ticked, timeout=60)
        found = {outcome.message_id: outcome.status for outcome in answers(spout, 2)}
    assert found == {b"before": "expired", b"after": "expired"}


def waits_for_its(
    server: EmbeddedServer, fault: Callable[[], object], cure: Callable[[], object], wait: dict[str, float]
) -> None:
    """A track waits while there is a fault, is an error in bounded time, and counts once when sent again."""
    ledger = opened(server.url, timeout=60, name="tested", **wait)
    Trees(2).track(ledger)
    hasty = Ledger(Store(server.url, timeout=0.5), ledger.core)
    late = Trees(3)
    fault()
    submission = ledger.core.track([NewSlab(late.anchors, late.values, late.message_ids)], "s")
    with pytest.raises(StoreUnavailable, match=r"0 of \d"):
        hasty.send(submission)
    hasty.update(late.anchors[:1], late.values[:1])  # only a track waits
    cure()
    assert ledger.send(submission) == ["A"]
    counted(ledger, tracked=5, acked=1, duplicates=ledger.counters()["duplicates"])


def test_a_track_waits_for_its_replicas(new_server: NewServer, kind: str) -> None:
    server = new_server(kind)
    replica = replica_of(new_server, server, kind)
    waits_for_its(
        server,
        lambda: os.kill(replica.pid, signal.SIGSTOP),
        lambda: os.kill(replica.pid, signal.SIGCONT),
        {"wait_replicas": 1},
    )


def test_a_track_waits_for_its_file(new_server: NewServer) -> None:
    server = new_server(options={"appendfsync": "everysec"})
    with redis.Redis.from_url(server.url) as client:
        waits_for_its(
            server,
            lambda: client.config_set("appendfsync", "no"),
            lambda: client.config_set("appendfsync", "everysec"),
            {"wait_fsync": 1},
        )


def test_a_server_that_cannot_wait_for_its_file_is_refused_at_once(new_server: NewServer) -> None:
    for server in (new_server("redis"), new_server("valkey", append_only=False)):
        with pytest.raises((StoreError, StoreMisconfigured), match="WAITAOF"):
            opened(server.url, wait_fsync=1)
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 0


@pytest.mark.parametrize(("name", "value"), [("wait_replicas", 17), ("wait_replicas", -1), ("wait_fsync", 2)])
def test_what_cannot_be_waited_for_is_an_error(valkey_url: str, name: str, value: int) -> None:
    with pytest.raises(ValidationError, match=name):
        opened(valkey_url, name="t", **{name: value})


def test_registrations_and_commits_wait_too_and_confirmations_do_not(new_server: NewServer) -> None:
    server = new_server()
    replica = replica_of(new_server, server, "valkey")
    ledger = opened(server.url, timeout=60, ackers=1, name="tested", wait_replicas=1)
    spout = StreamSpout(ledger, SpoutOptions("s", "t", "id"))
    spout.write(pa.table({"id": [1, 2]}))
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        hasty = Ledger(Store(server.url, timeout=0.5), ledger.core)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            hasty.register_spout("another")
        with pytest.raises(StoreError, match="wait_replicas: expected at most 0"):
            opened(server.url, timeout=0.5, name="another", wait_replicas=1)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            hasty.run(commit.commit(hasty.core, "w", 0, Commit()))
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            StreamSpout(hasty, SpoutOptions("s", "t", "id")).write(pa.table({"id": [3]}))
        hasty.tick(force=True)
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    ledger.register_spout("another")
    assert ledger.core.spouts == {"s", "another"}
    assert ledger.run(commit.commit(ledger.core, "w", 0, Commit()))
