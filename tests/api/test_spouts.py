"""A whole spout by HTTP: it is made known, tracks, reads its outcomes and confirms them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from acker.errors import UnknownTopology
from acker.inspect.topology.totals import totals, unreadable
from acker.inspect.trees import outcome_pages
from acker.inspect.trees.outcome_pages import WINDOW
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import as_ids
from acker.ledger.settings.config import SETTINGS
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation
from api.models.topologies import TopologySettings
from tests.helpers.builders.ledgers import Trees, confirm_all
from tests.helpers.faces.api import READ, calling
from tests.helpers.servers.servers import wait_until

OUTCOMES = "/topologies/words/spouts/s/outcomes"


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)
    ledger.register_spout("s")
    return ledger


def pages(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    """The outcomes of all pages."""
    pages: list[dict[str, Any]] = []
    cursor = None
    while True:
        params = query | ({"cursor": cursor} if cursor else {})
        answer = client.get(OUTCOMES, params=params)
        assert answer.status_code == 200, answer.text
        pages += answer.json()["outcomes"]
        cursor = answer.json()["cursor"]
        if cursor is None:
            return pages


def confirm(client: httpx.Client, reported: list[dict[str, Any]], **headers: str) -> httpx.Response:
    confirmations = [one["confirmation"] for one in reported if one["confirmation"]]
    return client.post(f"{OUTCOMES}/confirm", json={"confirmations": confirmations}, headers=headers)


def outstanding(ledger: Ledger) -> int:
    return sum(shard.outstanding for shard in ledger.run(totals(ledger.core)).shards)


@contextmanager
def stream(client: httpx.Client, last: str = "") -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", f"{OUTCOMES}/events", headers=headers) as answer:
        assert answer.status_code == 200
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in fields:
            yield fields.get("id", ""), json.loads(fields["data"])
        fields = fields | {name: value} if line else {}


def test_unconfirmed_outcomes_come_again(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(50).track(ledger)
    trees.complete(ledger, *range(48))
    ledger.fail(trees.anchors[48:49], "<b>")
    before, again = pages(client), pages(client, wait=30)
    assert before == again
    reported = {
        tree["anchor"]: (entry["status"], tree["message_id"]) for entry in again for tree in entry["trees"]
    }
    assert reported[str(trees.anchors[48])] == ("failed", "message 48")
    assert reported[str(trees.anchors[3])] == ("acked", "message 3")
    assert len(reported) == 49
    assert outstanding(ledger) == 50
    failed = [entry for entry in again if entry["status"] == "failed"]
    headers = {"Idempotency-Key": "first"}
    assert [confirm(client, failed, **headers).json() for _ in range(2)] == [{"trees": 1}] * 2
    assert confirm(client, failed).json() == {"trees": 0}
    assert confirm(client, again, **headers).json()["type"] == "urn:acker:key-conflict"
    assert len(pages(client)) == 1
    assert confirm(client, again).json() == {"trees": 48}
    assert (outstanding(ledger), pages(client)) == (1, [])


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_an_entry_is_confirmed_with_its_last_page(client: httpx.Client, ledger: Ledger, limit: int) -> None:
    """A client that read a part of an entry can confirm nothing, so the rest cannot be lost."""
    slabs = []
    for count in (1, 10, 3, 1, 20):
        anchors = ids.new_anchors(count)
        slabs.append(NewSlab(anchors, as_ids([7] * count), [str(anchor).encode() for anchor in anchors]))
    ledger.track_slabs(slabs, spout="s")
    anchors = np.concatenate([slab.anchors for slab in slabs])
    some = anchors[np.arange(len(anchors)) != 4]  # a part of one slab, all of the others
    ledger.update(some, as_ids([7] * len(some)))
    reported = pages(client, limit=limit)
    found = [tree for entry in reported for tree in entry["trees"]]
    assert sorted(tree["anchor"] for tree in found) == sorted(str(anchor) for anchor in some)
    assert all(tree["message_id"] == tree["anchor"] for tree in found)
    assert all(len(entry["trees"]) <= limit for entry in reported)
    assert limit == 1000 or any(entry["confirmation"] is None for entry in reported)
    assert confirm(client, reported).json() == {"trees": 34}
    assert outstanding(ledger) == 1


def test_a_page_waits_for_the_first_outcome(client: httpx.Client, ledger: Ledger) -> None:
    assert client.get(OUTCOMES, params={"wait": 0.05}).json() == {"outcomes": [], "cursor": None}
    trees = Trees(2).track(ledger)
    with stream(client) as events:  # its first event comes when the tree is complete, so it waits as well
        trees.complete(ledger)
        next(events)
    assert len(client.get(OUTCOMES, params={"wait": 30}).json()["outcomes"]) == 1
    assert client.get(OUTCOMES, params={"wait": 31}).status_code == 422


def test_a_stream_tells_each_once_and_goes_on(client: httpx.Client, ledger: Ledger) -> None:
    one, two, three = Trees(3).track(ledger), Trees(2).track(ledger), Trees(1).track(ledger)
    one.complete(ledger)
    with stream(client) as events:
        _, first = next(events)
        assert {tree["anchor"] for tree in first["trees"]} == {str(anchor) for anchor in one.anchors}
        two.complete(ledger)
        last, second = next(events)
        assert len(second["trees"]) == 2
    with stream(client) as events:  # without an id, from what is not confirmed on
        assert len(next(events)[1]["trees"]) + len(next(events)[1]["trees"]) == 5
    with stream(client, last) as events:
        three.complete(ledger)
        _, third = next(events)
        assert [tree["anchor"] for tree in third["trees"]] == [str(three.anchors[0])]
        assert confirm(client, [first, second, third]).json() == {"trees": 6}
    assert outstanding(ledger) == 0


def test_an_id_from_the_future_keeps_nothing_back_for_good(client: httpx.Client, valkey_url: str) -> None:
    """So it is in a store that lost its latest moments, whose clock was set back: ids begin anew."""
    ledger = open_ledger(Store(valkey_url), "words", ackers=1, message_timeout=1.0)
    Trees(1).track(ledger).complete(ledger)
    with stream(client, "0-99999999999999-0") as events:
        assert len(next(events)[1]["trees"]) == 1  # after a message timeout, for nobody has confirmed it


def test_a_stream_waits_at_a_hundred_unconfirmed_entries(client: httpx.Client, valkey_url: str) -> None:
    """So what a stream remembers is bounded, however many outcomes there are when it begins."""
    ledger = open_ledger(Store(valkey_url), "words", ackers=1, message_timeout=60.0)
    for _ in range(WINDOW + 10):
        Trees(1).track(ledger).complete(ledger)
    waiting = [one["confirmation"] for one in pages(client)]
    with stream(client) as events:
        assert [next(events)[1]["confirmation"] for _ in range(WINDOW)] == waiting[:WINDOW]
        # What it had reported without being asked to would come before what there is room for now.
        for confirmation in (*waiting[WINDOW:-1], waiting[0]):
            confirm(client, [{"confirmation": confirmation}])
        assert next(events)[1]["confirmation"] == waiting[-1]


@pytest.mark.parametrize("size", [1, 1024])
def test_entries_confirmed_meanwhile_are_reported_with_ids_or_not_at_all(ledger: Ledger, size: int) -> None:
    for stop in range(2, 20):  # before each request of a reading in turn
        anchors = ids.new_anchors(400)
        ledger.track(anchors, as_ids([7] * 400), [b"x" * size] * 400, spout="s")
        for part in (anchors[:1], anchors[1:300], anchors[300:]):  # the last entry has the ids with it
            ledger.update(part, as_ids([7] * len(part)))
        reading, asked = outcome_pages.page(ledger.core, "s", limit=300), 0
        reported: list[outcome_pages.EntryOutcomes] = []
        requests = next(reading)
        try:
            while True:
                asked += 1
                if asked == stop:
                    confirm_all(ledger)
                requests = reading.send(ledger.store.send(requests))
        except StopIteration as ended:
            reported = ended.value.outcomes
        assert all(tree.message_id for one in reported for tree in one.trees)
        confirm_all(ledger)
        if asked < stop:
            break
    assert stop >= 5
    assert ledger.run(unreadable(ledger.core)) == 0


def test_a_spout_gets_and_confirms_its_own_only(client: httpx.Client, address: str, ledger: Ledger) -> None:
    Trees(3).track(ledger, spout="other").complete(ledger)
    assert pages(client) == []
    other = client.get(OUTCOMES.replace("/s/", "/other/")).json()["outcomes"]
    assert confirm(client, other).json() == {"trees": 0}
    assert outstanding(ledger) == 3
    wrong = other[0]["confirmation"][:-1] + ("0" if other[0]["confirmation"][-1] != "0" else "1")
    path = OUTCOMES.replace("/s/", "/other/") + "/confirm"
    assert client.post(path, json={"confirmations": [wrong]}).json() == {"trees": 0}
    with calling(address, READ) as reader:
        assert reader.post(path, json={"confirmations": [wrong]}).status_code == 403
        assert reader.get(OUTCOMES).status_code == 200


def test_what_is_wrong_is_named(client: httpx.Client, ledger: Ledger) -> None:
    for path in (OUTCOMES, f"{OUTCOMES}/events"):
        answer = client.get(path.replace("/s/", "/nobody/"))
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:acker:unknown-spout")
    beyond = {"confirmations": ["2-1-0-0123456789abcdef"]}
    answer = client.post(f"{OUTCOMES}/confirm", json=beyond)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:acker:unknown-confirmation")
    assert client.post(f"{OUTCOMES}/confirm", json={"confirmations": []}).status_code == 422
    assert client.get(OUTCOMES, params={"cursor": "AAAA"}).json()["type"] == "urn:acker:unknown-cursor"
    assert client.get(f"{OUTCOMES}/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_bad_entry_stops_no_other(client: httpx.Client, ledger: Ledger, valkey_raw: redis.Redis) -> None:
    trees = Trees(2).track(ledger)
    shard = ids.shard_of(ids.slab_of(int(trees.anchors[0])), 2)
    valkey_raw.xadd(keys.Shard("words", shard, 2).outcomes("s"), {b"status": b"?"})
    trees.complete(ledger)
    assert sum(len(one["trees"]) for one in pages(client)) == 2


def test_a_topology_is_made_once_and_other_settings_are_named(client: httpx.Client) -> None:
    asked = {"ackers": 2, "message_timeout": 45.5}
    made = client.put("/topologies/new", json=asked)
    assert (made.status_code, made.json()["configuration"]["message_timeout"]) == (201, 45.5)
    assert [client.put("/topologies/new", json=body).status_code for body in (asked, {})] == [200, 200]
    other = client.put("/topologies/new", json={"ackers": 3, "message_timeout": 45.5})
    assert (other.status_code, other.json()["type"]) == (409, "urn:acker:other-configuration")
    assert other.json()["errors"] == [
        {"location": ["body", "ackers"], "detail": "stored is 2, asked for is 3"}
    ]
    assert TopologySettings.model_fields.keys() == SETTINGS.keys()
    for bad in ({"ackers": 1025}, {"askers": 1}, {"ackers": True}, {"message_timeout": "30"}):
        assert client.put("/topologies/bad", json=bad).status_code == 422
    contradiction = client.put("/topologies/bad", json={"ackers": 8, "high_water_mark": 4})
    assert (contradiction.status_code, contradiction.json()["type"]) == (409, "urn:acker:contradiction")
    for settings in ({"wait_fsync": 1}, {"wait_fsync": 1, "ackers": 0}):  # the tests' store has no file
        unsafe = client.put("/topologies/bad", json=settings)
        assert (unsafe.status_code, unsafe.json()["type"]) == (409, "urn:acker:unsupported-setting")
    assert client.get("/topologies/bad").status_code == 404
    assert [client.put("/topologies/new/spouts/s").status_code for _ in range(2)] == [201, 200]
    assert client.put("/topologies/none/spouts/s").status_code == 404
    assert client.put("/topologies/new/spouts/s.observed").status_code == 422
    wait_until(lambda: client.get("/topologies/new").json()["spouts"] == ["s"])
    for number in range(63):
        client.put(f"/topologies/new/spouts/s{number}")
    full = client.put("/topologies/new/spouts/one-more")
    assert (full.status_code, full.json()["type"]) == (409, "urn:acker:too-many-spouts")


def test_a_topology_that_is_removed_meanwhile_is_unknown_and_not_full(
    client: httpx.Client, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(*_: object) -> Operation[None]:
        yield []
        raise UnknownTopology("words")

    monkeypatch.setattr(Core, "register_spout", removed)
    answer = client.put("/topologies/words/spouts/late")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:acker:unknown-topology")


def test_a_spout_is_paused_by_an_operator_and_resumed(
    client: httpx.Client, address: str, ledger: Ledger
) -> None:
    path = "/topologies/words/spouts/s/pause"
    with calling(address, READ) as reader:
        assert reader.put(path, json={}).status_code == 403
        assert reader.delete(path).status_code == 403
    answer = client.put(path, json={"reason": "a bad file"})
    assert answer.status_code == 200, answer.text
    paused = answer.json()
    assert (paused["spout"], paused["reason"], paused["whole"]) == ("s", "a bad file", True)
    state = client.get("/topologies/words").json()
    assert state["health"]["paused"] == [paused]
    assert [one["code"] for one in state["health"]["muted"]] == ["paused"]
    anchor = str(ids.new_anchors(1)[0])
    message = {"type": "track", "anchor": anchor, "value": "5", "message_id": "m", "spout": "s"}
    tracked = client.post("/topologies/words/messages", json={"messages": [message]})
    assert tracked.json()["track"] == {"tracked": 0, "duplicates": 0, "conflicts": [], "rejected": [anchor]}
    assert (
        client.get(f"{address}/metrics").text.count('acker_muted{topology="words",trouble="paused"} 1.0') == 1
    )
    for wrong, status in (("none", 404), ("s.observed", 422)):
        assert client.put(f"/topologies/words/spouts/{wrong}/pause", json={}).status_code == status
    assert client.delete(path).status_code == 204
    assert client.get("/topologies/words").json()["health"]["paused"] == []
    tracked = client.post("/topologies/words/messages", json={"messages": [message]})
    assert tracked.json()["track"]["tracked"] == 1
    noted = client.get("/topologies/words/activity").json()["activity"]
    assert [(one["action"], one["reason"]) for one in noted[:2]] == [
        ("resume-spout", ""), ("pause-spout", "a bad file"),
    ]  # fmt: skip


def test_a_spout_is_removed_when_it_owes_nothing(client: httpx.Client, address: str, ledger: Ledger) -> None:
    path = "/topologies/words/spouts/s"
    trees = Trees(3).track(ledger)
    refused = client.delete(path)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:acker:spout-in-use")
    assert "3 trees in flight" in refused.json()["detail"]
    trees.complete(ledger)
    assert client.delete(path).status_code == 409  # nobody has confirmed them yet
    assert confirm(client, pages(client)).json() == {"trees": 3}
    with calling(address, READ) as reader:
        assert reader.delete(path).status_code == 403
    assert "s" in client.get("/topologies/words").json()["spouts"]
    answer = client.delete(path)
    assert (answer.status_code, answer.json()) == (200, {"topology": "words", "spout": "s"})
    assert client.get("/topologies/words").json()["spouts"] == []
    gone = client.delete(path)
    assert (gone.status_code, gone.json()["type"]) == (404, "urn:acker:unknown-spout")
    assert client.get(OUTCOMES).status_code == 404
    assert client.put(path).status_code == 201
