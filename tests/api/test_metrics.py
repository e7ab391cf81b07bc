import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
import redis
import yaml
from prometheus_client.parser import text_string_to_metric_families

from acker.inspect.topology.health_rules import RULES
from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.ledger.steps import step_totals
from acker.store import keys
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers import guide
from tests.helpers.builders.filled import filled
from tests.helpers.builders.ledgers import Trees, reported
from tests.helpers.faces import patient
from tests.helpers.faces.api import READ, TOKENS, serving
from tests.helpers.servers.new_server import NewServer


def test_prometheus_reads_exact_counts(address: str, valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)
    open_ledger(Store(valkey_url), "untracked", ackers=0)
    trees = Trees(30).track(ledger)
    trees.complete(ledger, *range(10))
    ledger.fail(trees.anchors[10:12])
    by = ledger.run(step_totals.mark(ledger.core, "split"))
    ledger.submit(ledger.core.update(trees.anchors[20:22], ids.new_ids(2), 0, by, 2).calls)
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
    assert names == {
        "topology", "bucket", "le", "trouble", "severity", "spout", "stream", "subscription", "step",
        "version",
    }  # fmt: skip
    assert metrics["acker_store_up",] == 1
    assert metrics["acker_step_tuples_total", ("step", "split"), topology] == 2
    assert metrics["acker_step_failed_trees_total", ("step", "split"), topology] == 0
    assert metrics["acker_step_last_seen_timestamp_seconds", ("step", "split"), topology] > 1.7e9
    assert metrics["acker_oldest_tree_seconds", topology] > 0
    assert metrics["acker_oldest_tree_seconds", ("topology", "untracked")] == 0
    [age] = [value for (name, *_), value in metrics.items() if name == "acker_oldest_row_seconds"]
    assert age > 0
    assert metrics["acker_severity", ("severity", "critical"), topology] == 0
    assert metrics["acker_severity", ("severity", "look"), topology] == 1
    assert metrics["acker_dead_letters", ("spout", "lines"), topology] == 3
    [behind] = [value for (name, *_), value in metrics.items() if name == "acker_rows_behind"]
    assert behind == 7


DEPLOY = Path(__file__).parents[2] / "deploy"


def labels_by_name(address: str, query: str = "") -> dict[str, set[str]]:
    """The metrics that a service shows, each with its labels; of families that are empty, too."""
    answer = patient.get(f"{address}/metrics{query}", headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == 200, answer.text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(answer.text):
        for name in (family.name, f"{family.name}_total", *(sample.name for sample in family.samples)):
            found.setdefault(name, set())
        for sample in family.samples:
            found[sample.name] |= sample.labels.keys()
    return found


def test_panels_for_grafana_ask_for_metrics_and_labels_that_there_are(address: str, valkey_url: str) -> None:
    filled(valkey_url, "full")
    known = labels_by_name(address)
    board = json.loads((DEPLOY / "grafana.json").read_text())
    source, topology = board["templating"]["list"]
    assert (source["type"], topology["query"]["query"]) == (
        "datasource", "label_values(acker_tracked_trees_total, topology)",
    )  # fmt: skip
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            [metric] = set(re.findall(r"acker_\w+", target["expr"]))
            asked.add(metric)
            said = known[metric]
            labels = set(re.findall(r"[{,] *(\w+) *=~?", target["expr"]))
            for listed in re.findall(r"by \(([^)]*)\)", target["expr"]):
                labels |= {label.strip() for label in listed.split(",")}
            assert labels <= said, target["expr"]
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert shown <= labels, target["legendFormat"]
    shown_ids = [panel["id"] for panel in board["panels"]]
    assert len(set(shown_ids)) == len(shown_ids)
    assert {
        "acker_store_up",
        "acker_severity",
        "acker_oldest_tree_seconds",
        "acker_step_tuples_total",
    } <= asked


def test_metrics_of_some_topologies_alone(address: str, valkey_url: str) -> None:
    for name in ("a", "b", "c"):
        open_ledger(Store(valkey_url), name, ackers=1)
    headers = {"Authorization": f"Bearer {READ}"}
    said = patient.get(f"{address}/metrics?topology=c&topology=a&topology=gone", headers=headers).text
    assert set(re.findall(r'topology="(\w+)"', said)) == {"a", "c"}
    assert "acker_topologies 3.0" in said
    assert patient.get(f"{address}/metrics?topology=a%20b", headers=headers).status_code == 422
    assert patient.get(f"{address}/metrics?topologies=a", headers=headers).status_code == 422


def test_metrics_say_when_the_store_is_away(new_server: NewServer) -> None:
    server = new_server()
    with serving(server.url, tokens=TOKENS, ticker=False, history=False, timeout=1) as address:
        assert {"acker_store_up", "acker_topologies"} <= set(labels_by_name(address))
        server.kill()
        answer = patient.get(f"{address}/metrics", headers={"Authorization": f"Bearer {READ}"})
        assert answer.status_code == 200
        assert "acker_store_up 0.0" in answer.text
        assert "acker_topologies" not in answer.text, "an alert for its absence stands in deploy/"


def test_alerts_are_of_known_metrics_and_of_each_kind_of_trouble(address: str, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=1)
    reported = set(labels_by_name(address))
    file = DEPLOY / "prometheus-rules.yml"
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
