import httpx
import pytest
import redis
from pydantic import SecretStr

from acker.inspect.topology import history
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes import latency_histogram
from acker.ledger.steps import step_registry
from acker.store import keys
from acker.store.client import Store
from api.service.service import Service
from api.settings.settings import Settings
from api.streams.live import Live
from tests.helpers.builders.ledgers import Trees, confirm_all, reported
from tests.helpers.faces.api import READ, calling
from tests.helpers.faults.damages import DAMAGES, SHARD, damage, two


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0, high_water_mark=1000)


def test_topologies_come_by_name_a_page_at_a_time(client: httpx.Client, valkey_url: str) -> None:
    for name in ("b.1", "c", "a"):
        open_ledger(Store(valkey_url), name, ackers=0 if name == "c" else 1)
    first = client.get("/topologies", params={"limit": 2}).json()
    assert [one["topology"] for one in first["topologies"]] == ["a", "b.1"]
    rest = client.get("/topologies", params={"limit": 2, "cursor": first["cursor"]}).json()
    assert [one["topology"] for one in rest["topologies"]] == ["c"]
    assert rest["cursor"] is None
    assert rest["topologies"][0]["configuration"]["ackers"] == 0


def test_the_worst_topologies_come_first_and_are_filtered(client: httpx.Client, valkey_url: str) -> None:
    ledgers = {name: open_ledger(Store(valkey_url), name, ackers=1) for name in ("good", "bad", "slow-1")}
    trees = Trees(20).track(ledgers["bad"])
    ledgers["bad"].fail(trees.anchors)
    with redis.Redis.from_url(valkey_url) as raw:
        raw.xadd(keys.Spout("slow-1", "s").dead, {"row": "a"})
    ledgers["slow-1"].register_spout("s")

    def asked(**query: object) -> tuple[list[str], dict[str, int] | None, str | None]:
        found = client.get("/topologies", params=query).json()  # type: ignore[arg-type]
        return [one["topology"] for one in found["topologies"]], found["counts"], found["cursor"]

    counts = {"critical": 1, "look": 1, "muted": 0, "well": 1}
    listed, counted, cursor = asked(sort="triage", limit=2)
    assert (listed, counted) == (["bad", "slow-1"], counts)
    assert asked(sort="triage", limit=2, cursor=cursor) == (["good"], counts, None)
    assert asked(state=["well", "look"]) == (["good", "slow-1"], counts, None)
    assert asked(sort="triage", name="oo")[:2] == (["good"], {**counts, "critical": 0, "look": 0})
    assert asked()[:2] == (["bad", "good", "slow-1"], None)
    for wrong in ({"sort": "age"}, {"state": "ill"}):
        assert client.get("/topologies", params=wrong).status_code == 422
    assert client.get("/topologies", params={"sort": "triage", "cursor": "good"}).status_code == 404


def test_a_topology_tells_its_counts_and_how_full_it_is(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(100).track(ledger)
    ledger.fail(trees.anchors[:10])
    trees.complete(ledger, *range(10, 30))
    ledger.run(step_registry.register(ledger.core, step_registry.Step("split", "bolt", reads=("lines",))))
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.xadd(ledger.core.shards[1].outcomes("s"), {"from": "a newer version"})
    reported(ledger, trees)
    topology = client.get("/topologies/words").json()
    assert topology["configuration"]["message_timeout"] == 60
    assert (topology["configuration"]["wait_replicas"], topology["configuration"]["wait_fsync"]) == (0, 0)
    assert topology["unreadable"] == 1
    assert (
        topology["counters"]["tracked"],
        topology["counters"]["failed"],
        topology["counters"]["acked"],
    ) == (
        100,
        10,
        20,
    )
    assert topology["pending"] == sum(bucket["trees"] for bucket in topology["buckets"]) == 70
    assert topology["outstanding"] == 100
    assert topology["high_water_use"] == 0.2
    assert topology["latency"]["p50"] >= 0
    assert len(topology["shards"]) == 2
    assert topology["spouts"] == ["s"]
    assert [(step["name"], step["reads"], step["last_seen"] is None) for step in topology["steps"]] == [
        ("split", ["lines"], False)
    ]
    assert topology["health"]["ticking"]
    assert [trouble["code"] for trouble in topology["health"]["troubles"]] == ["failing", "unreadable"]


def test_settings_change_all_or_nothing(client: httpx.Client, address: str, ledger: Ledger) -> None:
    answer = client.patch("/topologies/words", json={"downtime": 60, "message_timeout": 45})
    assert (answer.status_code, answer.json()["configuration"]["downtime"]) == (200, 60)
    assert client.get("/topologies/words").json()["configuration"] == answer.json()["configuration"]
    Trees(1).track(ledger)
    for settings, kind in (
        ({"message_timeout": 30, "downtime": 1}, "topology-in-use"),
        ({"ackers": 9, "downtime": 1}, "contradiction"),
        ({"wait_fsync": 1, "downtime": 1}, "unsupported-setting"),
        ({"wait_replicas": 9, "downtime": 1}, "unsupported-setting"),
    ):
        refused = client.patch("/topologies/words", json=settings)
        assert (refused.status_code, refused.json()["type"]) == (409, f"urn:acker:{kind}")
    assert client.get("/topologies/words").json()["configuration"] == answer.json()["configuration"]
    assert client.patch("/topologies/words", json={"downtime": -1}).status_code == 422
    assert client.patch("/topologies/none", json={}).status_code == 404
    with calling(address, READ) as reader:
        assert reader.patch("/topologies/words", json={"downtime": 1}).status_code == 403


def test_troubles_are_words_with_thresholds(client: httpx.Client, address: str, ledger: Ledger) -> None:
    trees = Trees(20).track(ledger)
    ledger.fail(trees.anchors, "bad")
    [trouble] = client.get("/topologies/words").json()["health"]["troubles"]
    assert trouble["code"] == "failing"
    assert trouble["text"] == "20 of 20 trees failed so far, 100%"
    [card] = client.get("/topologies").json()["topologies"]
    assert card["health"]["troubles"] == [trouble]
    metrics = client.get(f"{address}/metrics").text
    assert 'acker_trouble{topology="words",trouble="failing"} 1.0' in metrics
    assert 'acker_trouble{topology="words",trouble="full"} 0.0' in metrics
    answer = client.patch("/topologies/words/thresholds", json={"failed": 0})
    assert (answer.status_code, answer.json()["failed"], answer.json()["expired"]) == (200, 0.0, 0.05)
    found = client.get("/topologies/words").json()
    assert (found["health"]["troubles"], found["thresholds"]) == ([], answer.json())
    assert found["health"]["severity"] == "muted"
    [muted] = found["health"]["muted"]
    assert (muted["code"], muted["text"], muted["until"]) == ("failing", trouble["text"], None)
    client.patch("/topologies/words/thresholds", json={"failed": 0.1})
    mute = client.put("/topologies/words/mutes/failing", json={"reason": "a bad file", "seconds": 60})
    assert (mute.status_code, mute.json()["reason"]) == (200, "a bad file")
    [muted] = client.get("/topologies/words").json()["health"]["muted"]
    assert muted == {key: value for key, value in trouble.items() if key != "since"} | {
        **mute.json(), "since": muted["since"]
    }  # fmt: skip
    metrics = client.get(f"{address}/metrics").text
    assert 'acker_muted{topology="words",trouble="failing"} 1.0' in metrics
    assert 'acker_severity{severity="muted",topology="words"} 1.0' in metrics
    assert client.delete("/topologies/words/mutes/failing").status_code == 204
    noted = client.get("/topologies/words/activity").json()["activity"]
    assert [(one["action"], one["reason"]) for one in noted[:2]] == [("unmute", ""), ("mute", "a bad file")]
    assert client.get("/topologies/words").json()["health"]["severity"] == "critical"
    for code, body in (
        ("fail", {"reason": "x"}),
        ("failing", {}),
        ("failing", {"reason": "x", "seconds": 0}),
    ):
        assert client.put(f"/topologies/words/mutes/{code}", json=body).status_code == 422
    for wrong in (-1, False, "1"):
        assert client.patch("/topologies/words/thresholds", json={"failed": wrong}).status_code == 422
    with calling(address, READ) as reader:
        assert reader.patch("/topologies/words/thresholds", json={"failed": 1}).status_code == 403


def test_a_topology_is_removed_empty_or_by_force(client: httpx.Client, address: str, ledger: Ledger) -> None:
    trees = Trees(10).track(ledger)
    refused = client.delete("/topologies/words")
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:acker:topology-in-use"
    assert "10 trees in flight" in refused.json()["detail"]
    with calling(address, READ) as reader:
        assert reader.delete("/topologies/words", params={"force": True}).status_code == 403
    assert client.get("/topologies/words").json()["pending"] == 10
    answer = client.delete("/topologies/words", params={"force": True})
    assert (answer.status_code, answer.json()) == (200, {"topology": "words", "dropped": 10})
    assert client.get("/topologies/words").status_code == 404
    assert client.delete("/topologies/words").status_code == 404
    assert client.get("/topologies").json()["topologies"] == []
    trees.track(open_ledger(ledger.store, "words", ackers=2)).complete(ledger)
    confirm_all(ledger)
    assert client.delete("/topologies/words").json()["dropped"] == 0


def test_a_path_tells_all_methods_that_it_has(client: httpx.Client, ledger: Ledger) -> None:
    for path, methods in (
        ("/topologies/words", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/topologies/words/stats", "GET, HEAD"),
    ):
        answer = client.post(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_an_unknown_topology_is_a_problem(client: httpx.Client) -> None:
    answer = client.get("/topologies/nobody")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:acker:unknown-topology"
    assert "nobody" in answer.json()["detail"]


@pytest.mark.parametrize("how", DAMAGES)
def test_an_unreadable_topology_hides_no_other(client: httpx.Client, valkey_url: str, how: str) -> None:
    two(valkey_url)
    with damage(valkey_url, how):
        listed = client.get("/topologies")
        pages = client.get("/topologies", params={"limit": 1}).json()
        alone = client.get("/topologies/damaged")
    assert listed.status_code == 200
    assert [one["topology"] for one in listed.json()["topologies"]] == ["words"]
    [damaged] = listed.json()["unreadable"]
    assert damaged["topology"] == "damaged"
    assert 0 < len(damaged["reason"]) <= 500
    assert "\n" not in damaged["reason"]
    assert (pages["topologies"], pages["unreadable"], pages["cursor"]) == ([], [damaged], "damaged")
    assert (alone.status_code, alone.json()["type"]) == (502, "urn:acker:store-error")
    assert damaged["reason"] in alone.json()["detail"]


@pytest.mark.parametrize(("bucket", "trees"), [("many", 1), (3, "many"), (-3, 1), (3, -1)])
def test_a_latency_that_cannot_be_read_is_reported_as_what_it_is(
    client: httpx.Client, valkey_url: str, bucket: str | int, trees: str | int
) -> None:
    two(valkey_url)
    with redis.Redis.from_url(valkey_url) as raw:
        raw.hset(SHARD.latency, str(bucket), str(trees))
    cards = {one["topology"]: one for one in client.get("/topologies").json()["topologies"]}
    assert [trouble["code"] for trouble in cards["damaged"]["health"]["troubles"]] == ["unreadable"]
    assert cards["words"]["health"]["troubles"] == []
    alone = client.get("/topologies/damaged")
    assert (alone.status_code, alone.json()["type"]) == (502, "urn:acker:store-error")
    assert "a latency" in alone.json()["detail"]


def test_a_latency_beyond_all_buckets_is_of_the_last(client: httpx.Client, valkey_url: str) -> None:
    two(valkey_url)
    with redis.Redis.from_url(valkey_url) as raw:
        raw.hset(SHARD.latency, "99999999", 5)
    low, high = latency_histogram.bounds(latency_histogram.MOST_BUCKET)
    assert low / 1000 <= client.get("/topologies/damaged").json()["latency"]["p50"] <= high / 1000


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_service_beats_on_beside_an_unreadable_topology(valkey_url: str, how: str) -> None:
    _, words = two(valkey_url)
    with damage(valkey_url, how):
        async with Service(Settings(url=SecretStr(valkey_url))) as service:
            await Live(service).beat()
    assert words.run(history.latest(words.core, 1))


def test_a_mark_is_set_once_under_its_key(client: httpx.Client, address: str, ledger: Ledger) -> None:
    path, key = f"/topologies/{ledger.config.name}", {"Idempotency-Key": "release-1.4.2"}
    answers = [client.post(f"{path}/marks", json={"text": "deploy 1.4.2"}, headers=key) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {200}
    [entry] = client.get(f"{path}/activity").json()["activity"]
    assert [answer.json() for answer in answers] == [entry, entry]
    assert (entry["action"], entry["reason"], entry["proved"]) == ("mark", "deploy 1.4.2", True)
    other = client.post(f"{path}/marks", json={"text": "deploy 1.4.3"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "urn:acker:key-conflict")
    for text in ("", " ", "x" * 201, 1):
        assert client.post(f"{path}/marks", json={"text": text}).status_code == 422
    assert client.post("/topologies/none/marks", json={"text": "deploy"}).status_code == 404
    with calling(address, READ) as reader:
        assert reader.post(f"{path}/marks", json={"text": "deploy"}).status_code == 403
