"""The Lua scripts: every server loads them as they are hashed, and each says what it is given."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.settings import topologies
from acker.ledger.slabs.slabs import NewSlab
from acker.store import scripts
from acker.store.client import Store
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.log import subscriptions
from acker.streams.log.subscriptions import Range
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

ALL = sorted(scripts.load_all())


@pytest.mark.parametrize("name", ALL)
def test_the_server_loads_each_script_under_our_hash(raw: "redis.Redis", name: str) -> None:
    script = scripts.get(name)
    assert raw.script_load(script.text) == script.sha.decode()


@pytest.mark.parametrize("name", ALL)
def test_each_script_declares_its_keys_and_arguments_in_its_header(name: str) -> None:
    header = re.match(r"(?:#!lua.*\n)?((?:--.*\n)+)", scripts.get(name).text)
    assert header is not None
    assert "-- KEYS " in header[1]
    assert "-- ARGV " in header[1]
    assert "-- Returns" in header[1]


def test_the_scripts_can_be_written_out_as_the_server_gets_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "acker.store.scripts", "--expand", tmp_path], check=True)
    assert {path.stem: path.read_text() for path in tmp_path.iterdir()} == {
        name: script.text for name, script in scripts.load_all().items()
    }
    assert not any("@include" in path.read_text() for path in tmp_path.iterdir())


@pytest.fixture
def cluster(new_server: NewServer) -> str:
    """The URL of a Redis Cluster of one node: it refuses what does not lie in one slot."""
    server = new_server(append_only=False, options={"cluster-enabled": "yes"})
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: client.cluster("info")["cluster_state"] == "ok")
    return server.url


def everything(ledger: Ledger) -> dict[str, int]:
    """Every operation there is, on several shards."""
    slabs = [NewSlab(ids.new_anchors(n), ids.new_ids(n), [b"m"] * n) for n in (1, 3, 200, 1, 2, 300)]
    assert ledger.track_slabs(slabs, spout="spout") == ["A"] * 6
    for slab in slabs:
        ledger.update(slab.anchors[:2], slab.values[:2])
    ledger.update(slabs[2].anchors, slabs[2].values)
    ledger.fail(slabs[5].anchors[100:102], "bad")
    ledger.fail(ids.new_anchors(1), "nobody's")
    ledger.reset_timeout(slabs[5].anchors)
    reader = OutcomeReader(ledger.core, "spout")
    for _ in range(3):
        ledger.tick(force=True)
    entries = ledger.outcomes(reader, 1.0)
    ledger.message_ids([ids.slab_of(int(slab.anchors[0])) for slab in slabs])
    ledger.confirm(reader.spout, [entry.receipt for entry in entries])
    return ledger.counters()


def test_all_keys_of_a_call_lie_in_one_slot(cluster: str) -> None:
    store = Store(cluster, cluster=True)
    counted = everything(open_ledger(store, "topology", ackers=5))
    assert counted["tracked"] == 507 == counted["acked"] + counted["failed"] + counted["expired"]
    assert counted["failed"] == 2
    assert counted["late"] == 2
    assert counted["orphaned"] == 1
    assert store.run(topologies.names()) == ["topology"]


def test_all_keys_of_a_call_on_a_stream_lie_in_one_slot(cluster: str) -> None:
    ledger = open_ledger(Store(cluster, cluster=True), "topology", ackers=5)
    stream = Stream(ledger, "lines")
    for name in ("a", "b", "c"):
        stream.subscribe(name)
    stream.limit(max_bytes=1)
    writer = StreamWriter(ledger, "lines")
    for _ in range(3):
        batch = writer.batch(pa.table({"line": ["x", "y"]}))
        anchors = ids.new_anchors(2)
        ledger.track(anchors, batch.ids(), [b"m", b"n"], spout="spout")
        writer.publish(batch, anchors)
    assert stream.totals().dropped == 2
    assert StreamReader(ledger, "lines", "a").ack_all() == 1
    slot = ledger.run(subscriptions.find(ledger.core, "lines", "b"))
    at = ledger.run(subscriptions.claim(ledger.core, "lines", slot, "gone", 0, name="b"))
    assert stream.give_back("gone", "b") == 1
    at = ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 0, name="b"))
    what = Commit(inputs=(Range("lines", slot, "reader", 0, at),))
    ledger.run(commit.commit(ledger.core, "writer", 0, what))
    assert stream.unsubscribe("c", ack=True) == 1
    assert ledger.counters()["acked"] == 2


def test_all_keys_of_a_call_on_a_spout_lie_in_one_slot(cluster: str) -> None:
    ledger = open_ledger(Store(cluster, cluster=True), "topology", ackers=5, slab_limit=2)
    spout = StreamSpout(ledger, SpoutOptions("orders", "lines", "id", attempts=2, outcomes=True, offset="id"))
    spout.write(pa.table({"id": range(10)}))
    for tried in (1, 2):
        bad = [row["_acker"] for row in StreamReader(ledger, "lines").rows()][:3]
        ledger.fail(bad, "no")  # type: ignore[arg-type]
        StreamReader(ledger, "lines").ack_all()
        assert settler.settle(ledger).all == {1: 10, 2: 3}[tried]
    first, *rest = ledger.run(dead_letters.page(ledger.core)).letters
    assert len(rest) == 2
    ledger.run(dead_letters.replay(ledger.core, first.id))
    ledger.run(dead_letters.discard(ledger.core, [rest[0].id]))
    assert settler.recover(ledger) == 0
    assert ledger.run(kept_rows.watermark(ledger.core, "orders")) == {"": 10}
    assert ledger.run(kept_rows.pending(ledger.core, "orders")) == {
        "pending": 1, "acked": 7, "replayed": 3, "dead": 3,
    }  # fmt: skip


def test_a_cluster_counts_as_one_server_does(cluster: str, valkey_url: str) -> None:
    spread = everything(open_ledger(Store(cluster, cluster=True), "topology", ackers=5))
    single = everything(open_ledger(Store(valkey_url), "topology", ackers=5))
    assert spread == single
