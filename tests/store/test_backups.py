"""Older copies of a store that are restored, as docs/store.md says."""

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from acker import Outcome, Topology
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.tickers import running
from tests.helpers.faces.cli import Acker, good, in_process
from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import KINDS, binary, wait_until

pytestmark = pytest.mark.slow

HOW = SpoutOptions("orders", "lines", "id", attempts=5)
TIMEOUT = 2.0


@pytest.fixture
def acker(capsys: pytest.CaptureFixture[str]) -> Acker:
    """Runs `acker` in this process, on the store that ACKER_URL names."""
    return in_process(capsys)


def copy_file(server: EmbeddedServer, to: Path) -> None:
    """The append-only file: its directory, while nothing rewrites it."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("auto-aof-rewrite-percentage", 0)
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        shutil.copytree(server.directory / "appendonlydir", to / "appendonlydir")
        client.config_set("auto-aof-rewrite-percentage", 100)


def copy_snapshot(server: EmbeddedServer, to: Path) -> None:
    """The snapshot."""
    with redis.Redis.from_url(server.url) as client:
        client.save()
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(server.directory / "dump.rdb", to)


def restore(server: EmbeddedServer, copy: Path) -> None:
    """Stops a server, puts a copy in the place of its data, and starts it."""
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir", ignore_errors=True)
    (server.directory / "dump.rdb").unlink(missing_ok=True)
    shutil.copytree(copy, server.directory, dirs_exist_ok=True)
    server.start()


def write(ledger: Ledger, *numbers: int) -> None:
    StreamSpout(ledger, HOW).write(pa.table({"id": list(numbers)}))


def work(ledger: Ledger, most: int, sink: Counter[int]) -> None:
    """A consumer that starts, stores some rows in its sink, and acks them."""
    reader = StreamReader(ledger, "lines")
    sink.update(int(str(row["id"])) for row in islice(reader.rows(), most))
    reader.ack()
    settler.settle(ledger)


def pending(ledger: Ledger) -> dict[str, int]:
    return ledger.run(kept_rows.pending(ledger.core, "orders"))


@pytest.mark.parametrize("server_kind", KINDS)
@pytest.mark.parametrize("copy", [copy_file, copy_snapshot])
def test_an_older_copy_of_a_server(
    new_server: NewServer,
    tmp_path: Path,
    acker: Acker,
    server_kind: str,
    copy: Callable[[EmbeddedServer, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = new_server(kind=server_kind, append_only=copy is copy_file)
    monkeypatch.setenv("ACKER_URL", server.url)
    sink = Counter[int]()
    ledger = open_ledger(Store(server.url), "shop", ackers=2, message_timeout=TIMEOUT)
    with Topology(server.url, "shop", linger=0.005) as topology:
        spout, bolt = topology.spout("calls"), topology.bolt("b")
        tuples = {name: spout.emit(name)[0] for name in ("before", "between", "pending")}
        told = Counter[tuple[bytes, str]]()

        def hear(count: int) -> None:
            for outcome in _some(spout, count):
                told[outcome.message_id, outcome.status] += 1
                spout.confirm(outcome)
            topology.flush()

        bolt.ack(tuples["before"])
        topology.flush()
        hear(1)
        for number in range(5):
            write(ledger, number)
        work(ledger, 2, sink)  # 0 and 1
        copy(server, tmp_path / "copy")
        # What the copy does not have.
        bolt.ack(tuples["between"])
        tuples["new"] = spout.emit("new")[0]
        topology.flush()
        hear(1)
        work(ledger, 2, sink)  # 2 and 3
        write(ledger, 5, 6)

        restore(server, tmp_path / "copy")
        # Rows that were acked after the copy are pending again; rows that were written after it are gone.
        assert (pending(ledger)["pending"], pending(ledger)["acked"]) == (3, 2)
        streams = good(acker("streams", "shop", "--json"))
        assert "'rows_behind': 3" in str(streams)
        bolt.ack(tuples["pending"])
        topology.flush()
        work(ledger, 10, sink)
        assert sink == {0: 1, 1: 1, 2: 2, 3: 2, 4: 1}
        assert pending(ledger) == {"pending": 0, "acked": 5, "replayed": 0, "dead": 0}
        with running(Ticker(Store(server.url), hooks=HOOKS)):
            hear(2)
        assert good(acker("health", "shop", "--json"))["troubles"] == []  # type: ignore[index]
    assert told == {
        (b"before", "acked"): 1,
        (b"between", "acked"): 1,
        (b"pending", "acked"): 1,
        (b"new", "expired"): 1,
    }
    # A spout that is started anew knows of nothing that came after the copy.
    restore(server, tmp_path / "copy")
    with Topology(server.url, "shop") as topology, running(Ticker(Store(server.url), hooks=HOOKS)):
        anew = {(one.message_id, one.status) for one in _some(topology.spout("calls"), 2)}
    assert anew == {(b"between", "expired"), (b"pending", "expired")}


def _some(spout: Spout, count: int) -> list[Outcome]:
    found: list[Outcome] = []
    while len(found) < count:
        found += spout.outcomes(timeout=20.0)
    return found


@pytest.mark.parametrize("server_kind", KINDS)
def test_a_snapshot_is_read_without_a_file(new_server: NewServer, tmp_path: Path, server_kind: str) -> None:
    server = new_server(kind=server_kind, append_only=True)
    open_ledger(Store(server.url), "shop", ackers=1)
    copy_snapshot(server, tmp_path / "copy")
    restore(server, tmp_path / "copy")
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0
    server.append_only = False
    restore(server, tmp_path / "copy")
    with redis.Redis.from_url(server.url) as client:
        assert client.exists("acker:{shop}:config")
        client.config_set("appendonly", "yes")
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    server.kill()
    server.append_only = True
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.exists("acker:{shop}:config")


@pytest.mark.parametrize("first", [0, 2])
def test_copies_of_a_cluster_that_are_of_different_moments(tmp_path: Path, first: int) -> None:
    cluster = Cluster(tmp_path / "nodes", binary=binary("valkey"), replicas=False, patient=True).start()
    sink, numbers = Counter[int](), iter(range(1000))
    try:
        ledger = open_ledger(Store(cluster.url), "shop", ackers=6, message_timeout=TIMEOUT / 2)
        for node in (first, 1, 2 - first):
            for _ in range(6):
                write(ledger, next(numbers))
            work(ledger, 3, sink)
            copy_snapshot(cluster.servers[node], tmp_path / str(node))
        for _ in range(6):
            write(ledger, next(numbers))
        work(ledger, 3, sink)
        for node, server in enumerate(cluster.servers):
            restore(server, tmp_path / str(node))
        cluster.wait()
        ledger = open_ledger(Store(cluster.url), "shop", ackers=6, message_timeout=TIMEOUT / 2)
        found = pending(ledger)
        held = found["pending"] + found["acked"]
        assert found["pending"] > 0

        def quiet() -> bool:
            work(ledger, 1000, sink)
            settler.recover(ledger)
            return not pending(ledger)["pending"]

        with running(Ticker(Store(cluster.url), hooks=HOOKS)):
            wait_until(quiet, timeout=60.0, interval=0.2)
        # Each row that the node of the spout has is worked on, some twice; and nothing is given up.
        assert pending(ledger)["acked"] == held
        assert pending(ledger)["dead"] == 0
        assert set(range(held)) <= set(sink)
        assert max(sink.values()) > 1
    finally:
        for server in cluster.servers:
            server.close()
