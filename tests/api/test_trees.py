import base64

import httpx
import pytest

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick import tick
from acker.store.client import Store
from acker.streams import Stream
from tests.helpers.builders.ledgers import Trees, reported
from tests.helpers.builders.streaming import emit


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)


TREES = "/topologies/words/trees"


def test_trees_are_paged_and_filtered(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(25).track(ledger, "lines")
    Trees(3).track(ledger, "others")
    anchors: list[str] = []
    cursor: str | None = ""
    asked = {"limit": "10", "spout": "lines"}
    while cursor is not None:
        page = client.get(TREES, params=asked | ({"cursor": cursor} if cursor else {}))
        anchors += [tree["anchor"] for tree in page.json()["trees"]]
        cursor = page.json()["cursor"]
    assert sorted(anchors) == sorted(str(anchor) for anchor in trees.anchors)
    assert client.get(TREES, params={"older_than": 1e6}).json()["trees"] == []
    assert len(client.get(TREES, params={"bucket": "nursery"}).json()["trees"]) == 28
    assert client.get(TREES, params={"bucket": "oldest"}).json()["trees"] == []


def test_a_tree_is_found_by_its_message_id_whatever_its_bytes(client: httpx.Client, ledger: Ledger) -> None:
    anchors = ids.new_anchors(3)
    ledger.track(anchors, ids.new_ids(3), [b"<script>", b"\xff\x00", "é"], spout="s")
    script, binary, accent = (str(anchor) for anchor in anchors)
    [tree] = client.get(TREES, params={"message_id": "<script>"}).json()["trees"]
    assert (tree["anchor"], tree["message_id"]) == (script, "<script>")
    encoded = base64.b64encode(b"\xff\x00").decode()
    [tree] = client.get(TREES, params={"message_id_base64": encoded}).json()["trees"]
    assert (tree["anchor"], tree["message_id"], tree["message_id_base64"]) == (binary, None, encoded)
    [tree] = client.get(TREES, params={"message_id": "é", "spout": "s"}).json()["trees"]
    assert tree["anchor"] == accent
    assert client.get(TREES, params={"message_id": "é", "bucket": "oldest"}).json()["trees"] == []
    assert client.get(TREES, params={"message_id": "é" * 1000}).json()["trees"] == []


def test_what_names_nothing_is_not_found(client: httpx.Client, ledger: Ledger) -> None:
    Trees(5).track(ledger)
    for params in ({"spout": "nobody"}, {"shard": 2}, {"cursor": "abc"}):
        assert client.get(TREES, params=params).status_code == 404, params
    cursor = client.get(TREES, params={"limit": 2}).json()["cursor"]
    assert client.get(TREES, params={"limit": 2, "spout": "s", "cursor": cursor}).status_code == 404
    assert client.get(f"{TREES}/{ids.new_id()}").status_code == 404


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 1001}, {"bucket": "x"}, {"older_than": -1}, {"x": 1}]
)
def test_bad_parameters_are_named(client: httpx.Client, ledger: Ledger, params: dict[str, str]) -> None:
    answer = client.get(TREES, params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["location"] == ["query", *params]


@pytest.mark.parametrize("anchor", ["9223372036854775808", "-9223372036854775809", "01", "-0", "x", "1.5"])
def test_an_anchor_is_a_signed_64_bit_number(client: httpx.Client, ledger: Ledger, anchor: str) -> None:
    answer = client.get(f"{TREES}/{anchor}")
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["detail"] == f"expected a signed 64-bit number, without leading zeros, got {anchor!r}"


@pytest.mark.parametrize("anchor", ["9223372036854775807", "-9223372036854775808", "0", "-1"])
def test_every_signed_64_bit_number_is_an_anchor(client: httpx.Client, ledger: Ledger, anchor: str) -> None:
    assert client.get(f"{TREES}/{anchor}").status_code == 404


def test_a_tree_tells_all_of_itself(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(4).track(ledger)
    tree = client.get(f"{TREES}/{trees.anchors[2]}").json()
    assert tree["anchor"] == str(trees.anchors[2])
    assert tree["outcome"] is None
    assert tree["tree"]["ack_value"] == str(trees.values[2])
    assert tree["tree"]["slab"] == str(trees.anchors[0])
    assert tree["tree"]["index"] == 2
    assert tree["tree"]["bucket"] == "nursery"
    assert 29 < tree["tree"]["time_left_earliest"] <= tree["tree"]["time_left_latest"] <= 93
    assert tree["message_id"] == "message 2"


def test_trees_are_failed_by_hand_one_or_many(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(6).track(ledger)
    first, *rest = [str(anchor) for anchor in trees.anchors]
    answer = client.post(f"{TREES}/{first}/fail", json={"reason": "by <b>me</b>"})
    assert answer.json() == {"failed": 1, "late": 0, "waiting": 0, "unknown": []}
    early, mistyped = ids.new_anchors(1), str(ids.new_anchors(1)[0])
    ledger.update(early, ids.new_ids(1))
    answer = client.post(
        "/topologies/words/fail", json={"anchors": [first, *rest[:2], rest[0], str(early[0]), mistyped]}
    )
    assert answer.json() == {"failed": 2, "late": 1, "waiting": 1, "unknown": [mistyped]}
    for path, body in ((f"{TREES}/{mistyped}/fail", {}), ("/topologies/words/fail", {"anchors": [mistyped]})):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (404, "urn:acker:unknown-tree")
    assert client.get("/topologies/words").json()["waiting_slabs"] == 1, (
        "the mistyped anchor has left nothing behind"
    )
    assert reported(ledger, trees) == {
        (trees.anchors[0], "failed", "by <b>me</b>"): 1,
        (trees.anchors[1], "failed", "failed by hand"): 1,
        (trees.anchors[2], "failed", "failed by hand"): 1,
    }


def test_slabs_are_reset_by_hand(client: httpx.Client, ledger: Ledger) -> None:
    one, other = Trees(3).track(ledger), Trees(3).track(ledger)
    ledger.run(tick.rotate(ledger.core, force=True))
    assert client.post(f"{TREES}/{one.anchors[1]}/reset-timeout").json() == {"slabs": 1}
    assert client.get(f"{TREES}/{one.anchors[0]}").json()["tree"]["bucket"] == "nursery"
    assert client.get(f"{TREES}/{other.anchors[0]}").json()["tree"]["bucket"] == "middle"
    anchors = [str(anchor) for anchor in [*one.anchors, *other.anchors]]
    assert client.post("/topologies/words/reset-timeout", json={"anchors": anchors}).json() == {"slabs": 2}


@pytest.mark.parametrize("body", [{}, {"anchors": []}, {"anchors": ["1"] * 1001}, {"anchors": [1]}, []])
def test_bad_bodies_change_nothing(client: httpx.Client, ledger: Ledger, body: object) -> None:
    assert client.post("/topologies/words/fail", json=body).status_code == 422
    assert ledger.counters()["failed"] == 0


def test_why_and_stuck_tell_places_and_refuse_strange_cursors(client: httpx.Client, ledger: Ledger) -> None:
    anchors = emit(ledger, 2)
    found = client.get(f"{TREES}/{anchors[0]}/why", params={"rows": True}).json()
    [place] = found["places"]
    assert (found["complete"], found["rest"], found["cursor"], place["rows"]) == (True, "", None, 1)
    [stuck] = client.get("/topologies/words/stuck").json()["stuck"]
    assert (stuck["stream"], stuck["rows"], stuck["shares"][0]["taken_by"]) == ("lines", 2, None)
    unknown = client.get(f"{TREES}/{ids.new_anchors(1)[0]}/why").json()
    assert (unknown["tree"], unknown["complete"]) == (None, None)
    Stream(ledger, "lines").subscribe("count")
    removed = client.delete("/topologies/words/streams/lines/subscriptions/count")
    assert removed.json() == {"stream": "lines", "subscription": "count", "segments": 1}
    for stream in ("lines", "nowhere"):
        again = client.delete(f"/topologies/words/streams/{stream}/subscriptions/nobody")
        assert again.status_code == 404, stream
    [drop] = client.get("/topologies/words/drops").json()["drops"]
    assert (drop["stream"], drop["segments"], drop["rows"]) == ("lines", 1, 2)
    gate = client.get("/topologies/words/complete", params={"before": "0s"}).json()
    assert (gate["state"] != "complete", gate["records"], gate["places"][0]["records"]) == (True, 2, 2)
    assert client.get("/topologies/words/complete", params={"before": "noon"}).status_code == 422
    for path in (f"{TREES}/{anchors[0]}/why", "/topologies/words/stuck"):
        refused = client.get(path, params={"cursor": "abc"})
        assert (refused.status_code, refused.json()["type"]) == (404, "urn:acker:unknown-cursor")


def test_the_graph_is_drawn_from_what_is_known(client: httpx.Client, ledger: Ledger) -> None:
    emit(ledger, 2)
    graph = client.get("/topologies/words/graph").json()
    assert [one["id"] for one in graph["nodes"]] == ["spout:s", "stream:lines", "subscription:lines/"]
    [edge] = graph["edges"]
    assert (edge["kind"], edge["rows"], edge["rows_behind"], graph["worst"]) == ("reads", 0, 2, None)
