import re
from pathlib import Path

import pyarrow as pa
import pytest
import redis
import yaml
from prometheus_client.parser import text_string_to_metric_families

from acker.inspect.topology.health_rules import RULES
from acker.ledger.client import open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers import guide
from tests.helpers.builders.ledgers import Trees, reported
from tests.helpers.faces import patient
from tests.helpers.faces.api import READ


def test_prometheus_reads_exact_counts(address: str, valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)
    open_ledger(Store(valkey_url), "untracked", ackers=0)
    trees = Trees(30).track(ledger)
    trees.complete(ledger, *range(10))
    ledger.fail(trees.anchors[10:12])
    with redis.Redis.from_url(valkey_url) as raw:
        raw.xadd(ledger.core.shards[0].outcomes("s"), {"from": "a newer version"})
    reported(ledger, trees)
    StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1)).write(pa.table({"id": range(7)}))
    rows = list(StreamReader(ledger, "lines").rows())
    ledger.fail([int(str(row["_acker"])) for row in rows[:3]], "bad")
    settler.settle(ledger, "lines")
    answer = patient.get(f"{address}/metrics", headers={"Authorization": f"Bearer {READ}"})
    assert answer.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.text))
    metrics = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    counted = {f"{one.name}_total": (one.documentation,) for one in families if one.type == "counter"}
    assert guide.table("api.md", "Metrics") == counted
    topology = ("topology", "words")
    assert metrics["acker_tracked_trees_total", topology] == 37
    assert metrics["acker_acked_trees_total", topology] == 10
    assert metrics["acker_failed_trees_total", topology] == 5
    assert metrics["acker_unreadable_records_total", topology] == 1
    assert metrics["acker_unreadable_records_total", ("topology", "untracked")] == 0
    assert metrics["acker_pending_trees", ("bucket", "nursery"), topology] == 22
    assert metrics["acker_complete_latency_seconds_count", topology] == 10
    assert metrics["acker_complete_latency_seconds_bucket", ("le", "+Inf"), topology] == 10
    assert metrics["acker_tracked_trees_total", ("topology", "untracked")] == 0
    assert metrics["acker_topologies",] == 2
    names = {name for _, *labels in metrics for name, _ in labels}
    assert names == {"topology", "bucket", "le", "trouble", "severity", "spout", "stream", "subscription"}
    assert metrics["acker_severity", ("severity", "critical"), topology] == 0
    assert metrics["acker_severity", ("severity", "look"), topology] == 1
    assert metrics["acker_dead_letters", ("spout", "lines"), topology] == 3
    [behind] = [value for (name, *_), value in metrics.items() if name == "acker_rows_behind"]
    assert behind == 7


def test_alerts_are_of_known_metrics_and_of_each_kind_of_trouble(address: str, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=1)
    said = patient.get(f"{address}/metrics", headers={"Authorization": f"Bearer {READ}"}).text
    reported = {sample.name for family in text_string_to_metric_families(said) for sample in family.samples}
    file = Path(__file__).parents[2] / "deploy" / "prometheus-rules.yml"
    [group] = yaml.safe_load(file.read_text())["groups"]
    advice, severity = {}, {}
    for rule in group["rules"]:
        assert set(re.findall(r"acker_\w+", rule["expr"])) <= reported
        for code in re.findall(r'trouble="([^"]+)"', rule["expr"]):
            advice[code] = rule["annotations"]["description"]
            severity[code] = {"critical": "critical", "warning": "look"}[rule["labels"]["severity"]]
    assert advice == {rule.code: rule.advice for rule in RULES}
    assert severity == {rule.code: rule.severity for rule in RULES}


@pytest.mark.parametrize(
    ("key", "field"),
    [
        (keys.config("damaged"), "ackers"),
        (keys.Shard("damaged", 0, 1).clock, "rotations"),
        (keys.Shard("damaged", 0, 1).counters, "acked"),
        (keys.Shard("damaged", 0, 1).latency, "many"),
    ],
)
def test_a_topology_that_cannot_be_read_is_a_trouble_and_keeps_no_other_from_its_alerts(
    address: str, valkey_url: str, key: bytes, field: str
) -> None:
    for name in ("damaged", "words"):
        open_ledger(Store(valkey_url), name, ackers=1).tick(force=True)
    with redis.Redis.from_url(valkey_url) as raw:
        raw.hset(key, field, "many")
    response = patient.get(f"{address}/metrics", headers={"Authorization": f"Bearer {READ}"})
    assert response.status_code == 200
    assert 'acker_trouble{topology="words",trouble="unreadable"} 0.0' in response.text
    assert 'acker_trouble{topology="damaged",trouble="unreadable"} 1.0' in response.text
