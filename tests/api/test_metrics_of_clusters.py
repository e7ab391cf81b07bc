"""Metrics of a cluster of which a server does not answer."""

import os
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from acker.ledger.client import open_ledger
from acker.store import keys
from acker.store.client import Store
from tests.helpers.faces import patient
from tests.helpers.faces.api import READ, TOKENS, serving
from tests.helpers.servers.clusters import Cluster
from tests.helpers.servers.servers import binary

NAMES = [f"t{number:02}" for number in range(16)]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_server_that_is_away_takes_the_figures_of_its_topologies_alone(tmp_path: Path, ending: int) -> None:
    with Cluster(tmp_path, binary=binary("valkey"), replicas=False, patient=True) as cluster:
        store = Store(cluster.url)
        owners = dict[str, set[int]]()
        for name in NAMES:
            core = open_ledger(store, name, ackers=1).core
            owners[name] = {cluster.owner(keys.config(name)), cluster.owner(core.shards[0].clock)}
        lost = (cluster.owner(keys.TOPOLOGIES) + 1) % 3
        left = {name for name, servers in owners.items() if lost not in servers}
        assert 0 < len(left) < len(NAMES)
        with serving(cluster.url, tokens=TOKENS, ticker=False, history=False, timeout=2) as address:
            assert set(by_topology(address)) == {"up", *NAMES}
            os.kill(cluster.servers[lost].pid, ending)
            try:
                shown = by_topology(address)
            finally:
                if ending == signal.SIGSTOP:
                    os.kill(cluster.servers[lost].pid, signal.SIGCONT)
            assert shown.pop("up") == 0
            assert {name for name, tracked in shown.items() if tracked is not None} == left
            assert {name for name, tracked in shown.items() if tracked is None} == {*NAMES} - left


def by_topology(address: str) -> dict[str, float | None]:
    """Trees that each topology tracked, None for an unreadable one, and under "up" if the store answers."""
    answer = patient.get(f"{address}/metrics", headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == 200, answer.text
    found: dict[str, float | None] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            if sample.name == "acker_store_up":
                found["up"] = sample.value
            elif sample.name == "acker_tracked_trees_total":
                found[sample.labels["topology"]] = sample.value
            elif sample.labels.get("trouble") == "unreadable" and sample.value:
                found.setdefault(sample.labels["topology"], None)
    return found
