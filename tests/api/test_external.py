"""Steps over external streams by HTTP: rows are read, stamped and committed, also through several servers."""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pytest
import redis

from acker import Topology
from acker.errors import StoreUnavailable, SubscriptionInUse
from acker.ledger.calls.idempotency_keys import Key
from acker.store import keys
from acker.streams import StreamWriter
from acker.streams.staging.external import serving as serving_steps
from acker.streams.staging.external.rows import carriers
from tests.helpers.builders.collectors import reported
from tests.helpers.builders.external import source, work
from tests.helpers.faces.api import READ, TOKENS, calling, serving

AT = "/topologies/words"
ITEMS, WORDS = f"{AT}/streams/items/subscriptions/split", f"{AT}/streams/words"


@pytest.fixture
def topology(valkey_url: str) -> Iterator[Topology]:
    """A topology that a spout in Python works on."""
    made = Topology(valkey_url, "words", ackers=3, message_timeout=60.0, linger=None)
    yield made
    made.close()


def stamps_of(headers: list[Any]) -> list[str]:
    return [carriers.find(one).decode() for one in headers]


def sent(topology: Topology, count: int, rows: int = 1) -> list[str]:
    """The stamps of rows that a spout in Python has sent to the step."""
    headers = source(topology, count, rows)
    topology.flush()
    return stamps_of(headers)


class Step:
    """A step in another language, as far as it speaks to the service."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        assert client.put(ITEMS).status_code in (200, 201)

    def read(self, stamps: Sequence[str | None]) -> list[dict[str, Any]]:
        answer = self.client.post(f"{ITEMS}/rows", json={"stamps": list(stamps)})
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()["rows"]
        return [row | {"stamp": stamp} for row, stamp in zip(rows, stamps, strict=True)]

    def stamp(self, key: str, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        body = {"commit": key, "rows": [row["anchors"] for row in rows], **more}
        answer = self.client.post(f"{WORDS}/stamps", json=body)
        assert answer.status_code == 200, answer.text
        stamped: dict[str, Any] = answer.json()
        return stamped

    def commit(self, key: str, body: dict[str, Any]) -> httpx.Response:
        return self.client.post(f"{AT}/commits", json=body, headers={"Idempotency-Key": key})


def acked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_segment: dict[str, list[list[int]]] = {}
    for row in rows:
        if row["state"] == "tracked":
            by_segment.setdefault(row["segment"], []).append([row["position"]] * 2)
    return [{"segment": name, "positions": ranges} for name, ranges in by_segment.items()]


def body(
    done: Sequence[dict[str, Any]] = (),
    failed: Sequence[dict[str, Any]] = (),
    out: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A commit of rows that were acked, that failed and that were sent."""
    fails = [{"segment": row["segment"], "stamp": row["stamp"], "reason": "bad"} for row in failed]
    received = {"stream": "items", "subscription": "split", "acked": acked(done), "failed": fails}
    return {"received": [received], "sent": [{"stream": "words", **out}] if out else []}


def key() -> str:
    return str(uuid.uuid4())


def test_records_are_acked_when_all_that_was_made_of_them_was(
    client: httpx.Client, topology: Topology
) -> None:
    step = Step(client)
    topology.incoming("words", subscription="count")
    rows = step.read([*sent(topology, 4, rows=2), None, "a1-junk"])
    assert [row["state"] for row in rows] == ["tracked"] * 8 + ["unstamped", "damaged"]
    name = key()
    stamped = step.stamp(name, [row for row in rows for _ in range(2)])
    assert [stamp is None for stamp in stamped["stamps"]] == [False] * 16 + [True] * 4
    assert [one["name"] for one in stamped["subscriptions"]] == ["count"]
    answer = step.commit(name, body(rows[1:8], [rows[0]], stamped))
    assert answer.json() == {"acked": 7, "failed": 1, "sent": 16}
    assert topology.counters()["acked"] == 0
    work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"] if stamp], stream="words")
    topology.flush()
    outcomes = reported(topology.spout("s"), 4)
    assert sorted((one.message_id, one.status, one.reason) for one in outcomes) == [
        (b"m0", "failed", "bad"), (b"m1", "acked", ""), (b"m2", "acked", ""), (b"m3", "acked", ""),
    ]  # fmt: skip


def test_a_commit_takes_effect_once_however_often_and_wherever_it_is_sent(
    valkey_url: str, address: str, client: httpx.Client, topology: Topology
) -> None:
    step = Step(client)
    topology.incoming("words", subscription="count")
    rows = step.read(sent(topology, 3))
    name = key()
    stamped = step.stamp(name, rows)
    asked = body(rows, [], stamped)
    with serving(valkey_url, tokens=TOKENS, ticker=False, history=False) as other, calling(other) as twin:
        again = Step(twin)
        answers = [one.commit(name, asked) for one in (step, again, step, again)]
        assert [one.json() for one in answers] == [{"acked": 3, "failed": 0, "sent": 3}] * 4
        work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"]], stream="words")
        topology.flush()
        assert topology.counters()["acked"] == 3
        assert again.commit(name, asked).json() == {"acked": 3, "failed": 0, "sent": 3}
        assert {one: topology.counters()[one] for one in ("acked", "failed", "late")} == {
            "acked": 3, "failed": 0, "late": 0,
        }  # fmt: skip
        assert again.commit(name, body(rows[:1])).json()["type"] == "urn:acker:key-conflict"


def test_a_spout_has_rows_stamped_for_its_own_trees(
    client: httpx.Client, topology: Topology, valkey_url: str
) -> None:
    topology.incoming("words", subscription="count")
    step, name = Step(client), key()
    track = {"type": "track", "spout": "web", "anchor": "-77", "value": "99", "message_id": "m"}
    assert client.post(f"{AT}/messages", json={"messages": [track]}).status_code == 200
    stamped = step.stamp(name, [{"anchors": ["-77"]}] * 2)
    asked = body(out=stamped) | {"received": [], "acks": [{"anchor": "-77", "value": "99"}]}
    for _ in range(2):
        assert step.commit(name, asked).json() == {"acked": 0, "failed": 0, "sent": 2}
        assert topology.counters()["acked"] == 0
    headers = [{"acker-stamp": stamp} for stamp in stamped["stamps"]]
    work(topology, headers, stream="words")
    topology.flush()
    assert topology.counters()["acked"] == 1
    assert step.commit(name, asked).status_code == 200
    assert topology.counters()["late"] == 0


def test_rows_are_committed_by_the_commit_that_they_were_stamped_for_alone(
    client: httpx.Client, topology: Topology
) -> None:
    topology.incoming("words", subscription="count")
    step, name = Step(client), key()
    rows = step.read(sent(topology, 2))
    stamped = step.stamp(name, rows)
    other = step.commit(key(), body(rows, out=stamped))
    assert (other.status_code, other.json()["type"]) == (409, "urn:acker:contradiction")
    assert "for another commit" in other.json()["detail"]
    twice = {**stamped, "stamps": stamped["stamps"][:1] * 2}
    assert "twice" in step.commit(name, body(rows, out=twice)).json()["detail"]
    part = {**stamped, "stamps": [None, stamped["stamps"][1]]}
    assert step.commit(name, body(rows, out=part)).json() == {"acked": 2, "failed": 0, "sent": 1}
    rest = {**stamped, "stamps": stamped["stamps"][:1]}
    assert step.commit(name, body(rows, out=rest)).json()["type"] == "urn:acker:key-conflict"
    assert topology.counters()["acked"] == 1  # of the first row nothing was sent
    work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"]], stream="words")
    topology.flush()
    assert topology.counters()["acked"] == 2


def test_positions_that_a_segment_does_not_have_are_named(client: httpx.Client, topology: Topology) -> None:
    step = Step(client)
    rows = step.read(sent(topology, 1, rows=3))
    asked = body()
    asked["received"][0]["acked"] = [{"segment": rows[0]["segment"], "positions": [[0, 1], [2, 3]]}]
    answer = step.commit(key(), asked)
    assert answer.status_code == 422
    assert "has 3 rows, got position 3" in answer.json()["errors"][0]["detail"]
    asked["received"][0]["acked"][0]["positions"] = [[2, 1]]
    assert step.commit(key(), asked).json()["type"] == "urn:acker:contradiction"
    asked["received"][0]["acked"][0]["positions"] = [[0, 65_535], [0, 65_535]]
    assert step.commit(key(), asked).status_code == 413
    [other] = step.read(sent(topology, 1))
    for stamp in (other["stamp"], "a1-junk", rows[0]["segment"]):
        asked["received"][0] |= {"acked": [], "failed": [{"segment": rows[0]["segment"], "stamp": stamp}]}
        answer = step.commit(key(), asked)
        assert (answer.status_code, "stamp of a row of the segment" in answer.json()["detail"]) == (409, True)
    assert topology.counters()["acked"] == topology.counters()["failed"] == 0
    asked["received"][0] |= {
        "failed": [], "acked": [{"segment": rows[0]["segment"], "positions": [[0, 1], [1, 2]]}],
    }  # fmt: skip
    assert step.commit(key(), asked).json()["acked"] == 4
    assert topology.counters()["acked"] == 1


def test_rows_may_be_committed_before_their_sender_has_flushed(
    client: httpx.Client, topology: Topology
) -> None:
    step = Step(client)
    headers = source(topology, 3)
    rows = step.read(stamps_of(headers))
    beyond = [{"segment": rows[0]["segment"], "positions": [[0, 5]]}]
    asked = body(rows[1:2], rows[2:])
    asked["received"][0]["acked"] += beyond
    assert step.commit(key(), asked).json() == {"acked": 7, "failed": 1, "sent": 0}
    topology.flush()
    assert {one: topology.counters()[one] for one in ("acked", "failed")} == {"acked": 2, "failed": 1}
    again = step.read(stamps_of(headers))
    assert [(row["state"], row["segment"], row["anchors"]) for row in again] == [("over", None, [])] * 3


def test_a_store_that_was_emptied_takes_no_commit_of_before(
    client: httpx.Client, topology: Topology, valkey_url: str
) -> None:
    step, name = Step(client), key()
    old = sent(topology, 2)
    rows = step.read(old)
    stamped = step.stamp(name, rows)
    with redis.Redis.from_url(valkey_url) as operator:
        operator.flushall()
    assert step.commit(name, body(rows)).json()["type"] == "urn:acker:unknown-topology"
    Topology(valkey_url, "words", ackers=3, message_timeout=60.0).close()
    assert step.commit(name, body(rows)).json()["type"] == "urn:acker:unknown-subscription"
    again = Step(client)
    assert [row["state"] for row in again.read(old)] == ["foreign"] * 2
    for asked in (body(rows), body(out=stamped) | {"received": []}):
        answer = again.commit(key(), asked)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:acker:stream-lost")
        assert "Start the step again from its committed offsets" in answer.json()["detail"]


def test_a_sender_whose_subscription_the_store_has_lost_is_refused(
    client: httpx.Client, topology: Topology, valkey_url: str
) -> None:
    topology.incoming("words", subscription="count")
    step, name = Step(client), key()
    rows = step.read(sent(topology, 1))
    stamped = step.stamp(name, rows)
    slot = stamped["subscriptions"][0]["number"]
    with redis.Redis.from_url(valkey_url) as operator:
        own = keys.Stream("words", "words").subscriptions
        operator.hdel(own, f"slot:{slot}", "name:count")
        operator.hset(own, "slots", "")
    answer = step.commit(name, body(rows, out=stamped))
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:acker:stream-lost")
    assert topology.counters()["acked"] == 0
    assert [one["name"] for one in step.stamp(key(), rows)["subscriptions"]] == ["count"]  # made anew


def test_each_error_of_a_stream_has_its_kind(
    client: httpx.Client, address: str, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, name = Step(client), key()
    assert client.put(ITEMS).status_code == 200
    for path, asked in (
        (f"{AT}/streams/items/subscriptions/nobody/rows", {"stamps": [None]}),
        (f"{AT}/streams/nowhere/subscriptions/split/rows", {"stamps": [None]}),
    ):
        answer = client.post(path, json=asked)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:acker:unknown-subscription")
    StreamWriter(topology.ledger, "managed").write(pa.table({"n": [1]}))
    managed = client.post(f"{AT}/streams/managed/stamps", json={"commit": name, "rows": [["-3"]]})
    assert (managed.status_code, managed.json()["type"]) == (409, "urn:acker:stream-kind")
    even = client.post(f"{WORDS}/stamps", json={"commit": name, "rows": [["-4"]]})
    assert (even.status_code, even.json()["type"]) == (409, "urn:acker:contradiction")
    rows = step.read(sent(topology, 1))
    topology.incoming("words", subscription="count")
    topology.outgoing("words", most_segments=1)
    stamped = step.stamp(name, rows * 2, segment_rows=1)
    full = step.commit(name, body(rows, out=stamped))
    assert (full.status_code, full.json()["type"]) == (507, "urn:acker:stream-full")
    assert full.headers["Retry-After"]
    topology.outgoing("words", most_segments=9)
    assert step.commit(name, body(rows, out=stamped)).status_code == 200
    assert client.post(f"{AT}/commits", json=body()).status_code == 422  # no key
    with calling(address, READ) as reader:
        for path in (f"{ITEMS}/rows", f"{WORDS}/stamps", f"{AT}/commits"):
            assert reader.post(path, json={}).json()["type"] == "urn:acker:read-only"


def test_a_second_step_under_a_subscription_is_refused(client: httpx.Client, topology: Topology) -> None:
    step = Step(client)
    rows = step.read(sent(topology, 1))
    with pytest.raises(SubscriptionInUse, match="'split'"):
        topology.incoming("items", subscription="split", step="other")
    other = client.post(f"{ITEMS}/rows", json={"stamps": [None], "step": "other"})
    assert (other.status_code, other.json()["type"]) == (409, "urn:acker:subscription-in-use")
    asked = body(rows)
    asked["received"][0]["step"] = "other"
    assert step.commit(key(), asked).json()["type"] == "urn:acker:subscription-in-use"
    assert topology.counters()["acked"] == 0
    assert step.commit(key(), body(rows)).status_code == 200
    assert topology.counters()["acked"] == 1


def test_a_commit_that_was_cut_before_its_note_is_ended_by_another_server(
    valkey_url: str, client: httpx.Client, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology.incoming("words", subscription="count")
    step, name = Step(client), key()
    rows = step.read(sent(topology, 3))
    stamped = step.stamp(name, rows)
    asked = body(rows[:2], rows[2:], stamped)

    def cut(self: Key, answer: int) -> list[Any]:
        raise StoreUnavailable("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr(Key, "noting", cut)
        assert step.commit(name, asked).status_code == 503
    work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"][:1]], stream="words")
    topology.flush()
    with serving(valkey_url, tokens=TOKENS, ticker=False, history=False) as other, calling(other) as twin:
        for _ in range(2):
            assert Step(twin).commit(name, asked).json() == {"acked": 2, "failed": 1, "sent": 3}
    work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"]], stream="words")
    topology.flush()
    assert {one: topology.counters()[one] for one in ("acked", "failed")} == {"acked": 2, "failed": 1}


def test_servers_that_are_asked_the_same_at_once_carry_out_one_commit(
    valkey_url: str, client: httpx.Client, topology: Topology
) -> None:
    topology.incoming("words", subscription="count")
    step = Step(client)
    with (
        serving(valkey_url, tokens=TOKENS, ticker=False, history=False, writes_per_second=1000) as other,
        calling(other) as twin,
        ThreadPoolExecutor(4) as threads,
    ):
        steps = [step, Step(twin)] * 2
        for number in range(1, 6):
            rows, name = step.read(sent(topology, 20)), key()
            stamped = step.stamp(name, rows)
            answers = list(threads.map(partial(Step.commit, key=name, body=body(rows, out=stamped)), steps))
            assert [one.json() for one in answers] == [{"acked": 20, "failed": 0, "sent": 20}] * 4
            work(topology, [{"acker-stamp": stamp} for stamp in stamped["stamps"]], stream="words")
            topology.flush()
            assert {one: topology.counters()[one] for one in ("acked", "late")} == {
                "acked": 20 * number, "late": 0,
            }  # fmt: skip


def test_a_subscription_is_renamed_when_its_step_has_ended(
    client: httpx.Client, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology.incoming("items", subscription="split")
    assert client.patch(ITEMS, json={"subscription": "words"}).status_code == 409
    monkeypatch.setattr(serving_steps, "LEASE", 0.0)
    topology.incoming("items", subscription="split")
    answer = client.patch(ITEMS, json={"subscription": "words"})
    assert (answer.status_code, answer.json()["subscription"]) == (200, "words")
    assert client.patch(ITEMS, json={"subscription": "words"}).status_code == 404


def test_stamps_get_a_new_key_and_rows_with_the_one_before_go_on(
    client: httpx.Client, topology: Topology
) -> None:
    step = Step(client)
    stamps = sent(topology, 2)
    answer = client.post(f"{AT}/stamp-keys")
    assert answer.json() == {"topology": "words", "streams": [{"stream": "items", "dropped": 0}]}
    assert [row["state"] for row in step.read(stamps)] == ["tracked", "tracked"]
    refused = client.post(f"{AT}/stamp-keys")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:acker:topology-in-use")
    assert [row["state"] for row in step.read(stamps)] == ["tracked", "tracked"]
    forced = client.post(f"{AT}/stamp-keys", params={"force": True})
    assert [one["dropped"] for one in forced.json()["streams"]] == [2]
    assert {row["state"] for row in step.read(stamps)} == {"foreign"}
