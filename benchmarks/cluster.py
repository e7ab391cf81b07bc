"""A Redis Cluster: updates per second in total, and the servers' processor time for each, by masters.

    uv run python -m benchmarks cluster [--cluster-masters 1,2,3] [--cluster-trees 1000000] ...

One topology of 12 shards with a million trees in slabs of 1,024 on clusters of embedded servers on
loopback, no replicas; two client processes emit to every tree and ack it. Where the machine has fewer cores
than masters and clients together, all of them share these, and the total cannot grow with the masters:
then the processor time of all masters together for an update is what tells whether a cluster costs more
than a server does.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from acker.embedded import embedded_binary
from acker.ledger import ids
from benchmarks.clients import Clients, opened
from benchmarks.figures import Sample
from benchmarks.ledger import new_slabs, track
from benchmarks.servers import client
from tests.helpers.servers.clusters import Cluster

TITLE = "updates of a cluster by its masters"
SHARDS = 12
BATCH = 131_072


@dataclass(frozen=True)
class Sizes:
    """Options: masters of the clusters, trees, client processes."""

    rounds: int = 5
    masters: tuple[int, ...] = (1, 2, 3)
    trees: int = 1_000_000
    clients: int = 2


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Starts all the clusters, and measures them in turn."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters = []
        for masters in sizes.masters:
            cluster = Cluster(
                directory / str(masters),
                binary=embedded_binary(),
                masters=masters,
                replicas=False,
                patient=True,
            )
            stack.enter_context(cluster)
            nodes = [server.url for server in cluster.servers]
            clusters.append((cluster, nodes, stack.enter_context(Clients(cluster.url, sizes.clients, nodes))))
        for _ in range(sizes.rounds):
            for cluster, nodes, clients in clusters:
                yield _measure(cluster, nodes, clients, sizes)


def _measure(cluster: Cluster, nodes: list[str], clients: Clients, sizes: Sizes) -> Sample:
    for node in nodes:
        with client(node) as raw:
            raw.flushall()
    ledger = opened(cluster.url, ackers=SHARDS)
    trees = max(1024, sizes.trees // 1024 * 1024)
    anchors, values = track(ledger, new_slabs(trees, 1024))
    emitted = ids.new_ids(trees)
    took = clients.update(anchors, emitted, BATCH) + clients.update(anchors, values ^ emitted, BATCH)
    counters = ledger.counters()
    if counters["acked"] != trees or counters["late"]:
        raise RuntimeError(f"{trees} trees should be acked: {counters}")
    name, first = (f"masters: {count}" for count in (cluster.masters, sizes.masters[0]))
    return Sample(name, 2 * trees / took.seconds, "updates/s", first, took.cpu * 1e6 / 2 / trees)
