import base64
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.causes import Cause
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.ledgers import Trees, confirm_all

HOSTILE = [b"<script>alert(1)</script>", b"\xff\xfe\x00", "é\u202e".encode(), b""]


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)


def test_outcomes_come_latest_first_with_hostile_text_as_it_is(client: httpx.Client, ledger: Ledger) -> None:
    anchors = ids.new_anchors(4)
    ledger.track(anchors, ids.new_ids(4), HOSTILE, spout="s")
    reason = "<img src=x onerror=alert(1)>\x00\x1b[31m"
    ledger.fail(anchors[:1], reason)
    ledger.send(ledger.core.fail(anchors[1:2], Cause(reason, "parse").encode()))
    Trees(3).track(ledger, "others")
    for _ in range(3):
        ledger.tick(force=True)
    confirm_all(ledger)
    outcomes: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        params = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = client.get("/topologies/words/outcomes", params=params).json()
        outcomes, cursor = outcomes + page["outcomes"], page["cursor"]
    assert [one["status"] for one in outcomes] == ["expired"] * 5 + ["failed"] * 2
    assert len({one["id"] for one in outcomes}) == 7
    assert {one["batch"] for one in outcomes} == {None}, "a number that is none is null"
    by_anchor = {one["anchor"]: one for one in outcomes}
    for anchor, name in zip(anchors.tolist(), HOSTILE, strict=True):
        assert by_anchor[str(anchor)]["message_id_base64"] == base64.b64encode(name).decode()
    assert by_anchor[str(anchors[0])]["reason"] == "<img src=x onerror=alert(1)>\x00\x1b[31m"
    assert by_anchor[str(anchors[1])]["message_id"] is None
    only = client.get("/topologies/words/outcomes", params={"status": "failed", "spout": "s"}).json()
    assert len(only["outcomes"]) == 2
    only = client.get("/topologies/words/outcomes", params={"reason": "<IMG", "limit": 1}).json()
    rest = client.get(
        "/topologies/words/outcomes", params={"reason": "<IMG", "limit": 2, "cursor": only["cursor"]}
    ).json()
    assert [one["status"] for one in only["outcomes"] + rest["outcomes"]] == ["failed"] * 2
    assert rest["cursor"] is None
    only = client.get("/topologies/words/outcomes", params={"step": "parse"}).json()
    assert [one["anchor"] for one in only["outcomes"]] == [str(anchors[1])]
    counted = client.get("/topologies/words/outcomes/groups").json()
    assert (counted["trees"], counted["cursor"]) == (7, None)
    groups = [(one["count"], one["status"], one["step"]) for one in counted["groups"]]
    assert (groups[0], set(groups[1:])) == ((5, "expired", ""), {(1, "failed", ""), (1, "failed", "parse")})
    assert all(one["oldest"] <= one["newest"] for one in counted["groups"])
    asked = {"cause": counted["groups"][1]["cause"], "step": "parse"}
    assert client.get("/topologies/words/outcomes", params=asked).json() == only
    assert client.get("/topologies/words/outcomes/groups", params={"spout": "x"}).status_code == 404
    assert client.get("/topologies/words/outcomes", params={"reason": "x" * 257}).status_code == 422
    assert client.get("/topologies/words/outcomes", params={"spout": "x"}).status_code == 404
    assert client.get("/topologies/words/outcomes", params={"cursor": "x"}).status_code == 404


def test_a_finished_tree_tells_its_outcome_and_reason(client: httpx.Client, ledger: Ledger) -> None:
    trees = Trees(4).track(ledger)
    ledger.fail(trees.anchors[:1], "no such word")
    trees.complete(ledger, 1)
    failed, acked, pending, _ = (f"/topologies/words/trees/{anchor}" for anchor in trees.anchors)
    tree = client.get(failed).json()
    assert (tree["outcome"]["status"], tree["outcome"]["reason"]) == ("failed", "no such word")
    assert tree["tree"]["state"] == "finished"
    assert client.get(acked).json()["outcome"]["status"] == "acked"
    assert client.get(pending).json()["outcome"] is None
    for _ in range(3):
        ledger.tick(force=True)
    confirm_all(ledger)
    tree = client.get(failed).json()
    assert (tree["tree"], tree["outcome"]["reason"], tree["message_id"]) == (
        None,
        "no such word",
        "message 0",
    )
    assert client.get(pending).json()["outcome"]["status"] == "expired"
    assert client.get(acked).status_code == 404  # nothing tells of it any more


def test_dead_letters_are_listed_and_replayed(client: httpx.Client, ledger: Ledger) -> None:
    path = "/topologies/words/dead-letters"
    assert client.get(path).json() == {"dead_letters": [], "cursor": None}
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1))
    spout.write(pa.table({"id": [1, 2, 3, 2**60], "raw": [b"\xff", b"", None, b"x"]}))
    reader = StreamReader(ledger, "lines")
    ledger.fail([int(str(row["_acker"])) for row in reader.rows()], "<b>bad</b>")
    settler.settle(ledger)
    reader.ack_all()
    first = client.get(path, params={"limit": 3}).json()
    rest = client.get(path, params={"limit": 3, "cursor": first["cursor"]}).json()
    letters = first["dead_letters"] + rest["dead_letters"]
    assert rest["cursor"] is None
    assert [letter["row"]["id"] for letter in letters] == [1, 2, 3, str(2**60)]
    assert [letter["row"]["raw"] for letter in letters] == ["/w==", "", None, "eA=="]
    assert {letter["reason"] for letter in letters} == {"<b>bad</b>"}
    assert [one["reason"] for letter in letters for one in letter["history"]] == ["<b>bad</b>"] * 4
    one, *others = [letter["id"] for letter in letters]
    answer = client.post(f"{path}/{one}/replay")
    assert [done["id"] for done in answer.json()["replayed"]] == [one]
    assert client.post(f"{path}/{one}/replay").status_code == 404
    answer = client.post(f"{path}/replay", json={"ids": [one, *others, others[0]]}).json()
    assert [done["id"] for done in answer["replayed"]] == others
    assert answer["unknown"] == [one]
    assert client.get(path).json()["dead_letters"] == []
    assert len(list(StreamReader(ledger, "lines").rows())) == 4
    assert client.post(f"{path}/x/replay").status_code == 422


def test_dead_letters_of_a_filter_are_grouped_and_replayed(client: httpx.Client, ledger: Ledger) -> None:
    path = "/topologies/words/dead-letters"
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1))
    spout.write(pa.table({"id": range(700), "text": ["x" * 70_000, *["y"] * 699]}))
    reader = StreamReader(ledger, "lines")
    rows = [(int(str(row["_acker"])), int(str(row["id"]))) for row in reader.rows()]
    ledger.fail([anchor for anchor, number in rows if number >= 10], "answered 500")
    for anchor, number in rows[:10]:
        ledger.fail([anchor], f"malformed: 'n{number}'")
    settler.settle(ledger)
    reader.ack_all()
    found = client.get(f"{path}/groups").json()
    assert [(one["cause"], one["step"], one["status"], one["count"]) for one in found["groups"]] == [
        ("answered 500", "", "failed", 690), ("malformed: …", "", "failed", 10),
    ]  # fmt: skip
    assert found["cursor"] is None
    [only] = client.get(f"{path}/groups", params={"by": "status", "reason": "MALFORMED"}).json()["groups"]
    assert (only["cause"], only["status"], only["count"]) == (None, "failed", 10)

    lines = client.get(f"{path}/export", params={"cause": "malformed: …"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    reported = [json.loads(line) for line in lines.text.splitlines()]
    assert [one["row"]["id"] for one in reported] == list(range(10))
    assert len(reported[0]["row"]["text"]) == 70_000
    page = client.get(path, params={"reason": "n0"}).json()["dead_letters"]
    assert [one["row"] for one in page] == [None]  # large: it has a page of its own
    assert client.get(f"{path}/{reported[0]['id']}").json() == reported[0]
    assert client.get(f"{path}/1-0@lines").json()["type"] == "urn:acker:unknown-dead-letter"

    body = {"matching": {"cause": "answered 500"}, "until": found["until"]}
    first = client.post(f"{path}/replay", json=body).json()
    assert (len(first["replayed"]), first["waits"], first["refused"]) == (500, None, [])
    other = client.post(f"{path}/replay", json={"matching": {}, "cursor": first["cursor"]})
    assert (other.status_code, other.json()["type"]) == (404, "urn:acker:unknown-cursor")
    rest = client.post(
        f"{path}/replay", json={"matching": body["matching"], "cursor": first["cursor"]}
    ).json()
    assert (len(rest["replayed"]), rest["cursor"]) == (190, None)
    assert len(list(StreamReader(ledger, "lines").rows())) == 690

    assert client.delete(f"{path}/{reported[0]['id']}").json()["discarded"] == 1
    assert client.delete(f"{path}/{reported[0]['id']}").status_code == 404
    named = client.post(f"{path}/discard", json={"ids": [reported[0]["id"], reported[1]["id"]]}).json()
    assert named == {"discarded": 1, "unknown": [reported[0]["id"]], "cursor": None}
    early = client.post(f"{path}/discard", json={"matching": {}, "until": "2001-01-01T00:00:00Z"}).json()
    assert early["discarded"] == 0
    assert client.post(f"{path}/discard", json={"matching": {}}).json()["discarded"] == 8
    assert client.get("/topologies/words").json()["dead_letters"] == 0
    noted = client.get("/topologies/words/activity").json()["activity"]
    assert [(one["action"], one["count"], one["calls"]) for one in noted] == [
        ("discard", 8, 1), ("discard", 1, 1), ("discard", 0, 1), ("discard", 1, 1), ("replay", 690, 2),
    ]  # fmt: skip
    assert noted[-1]["target"] == {"cause": "answered 500"}
    assert {(one["who"], one["proved"], one["via"], one["done"]) for one in noted} == {
        (noted[0]["who"], True, "rest", True)
    }
    exported = client.get("/topologies/words/activity/export", params={"action": "replay"})
    assert [json.loads(line) for line in exported.text.splitlines()] == [noted[-1]]
    bodies: list[dict[str, object]] = [{"ids": [], "matching": {}}, {"matching": {"status": "acked"}}, {}]
    for wrong in bodies:
        assert client.post(f"{path}/discard", json=wrong).status_code == 422


def test_records_are_found_by_their_message_id(client: httpx.Client, ledger: Ledger) -> None:
    path = "/topologies/words/records"
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=2))
    spout.write(pa.table({"id": ["a/b", "good"]}))
    for reason in ("<b>bad</b>", "worse"):
        reader = StreamReader(ledger, "lines")
        bad = [int(str(row["_acker"])) for row in reader.rows() if row["id"] == "a/b"]
        ledger.fail(bad, reason)
        reader.ack_all()
        settler.settle(ledger)
    records = client.get(path, params={"message_id": "a/b"}).json()
    assert (records["message_id_base64"], records["cursor"], records["looked"]) == (
        "YS9i",
        None,
        records["of"],
    )
    [record] = records["records"]
    assert [(one["number"], one["state"], one["reason"]) for one in record["attempts"]] == [
        (1, "failed", "<b>bad</b>"),
        (2, "failed", "worse"),
    ]
    [letter] = record["dead_letters"]
    assert letter["anchor"] == record["attempts"][-1]["anchor"]
    assert client.get(f"/topologies/words/dead-letters/{letter['id']}").json()["row"] == {"id": "a/b"}
    assert client.get(path, params={"message_id_base64": "YS9i", "message_id": "x"}).json() == records
    anchors = ids.new_anchors(4)
    ledger.track(anchors, ids.new_ids(4), HOSTILE, spout="s")
    ledger.fail(anchors, "no")
    for anchor, name in zip(anchors.tolist(), HOSTILE, strict=True):
        asked = {"message_id_base64": base64.b64encode(name).decode()}
        for part, kind in (("records", "attempts"), ("outcomes", "outcomes")):
            answer = client.get(f"/topologies/words/{part}", params=asked).json()
            [one] = answer["outcomes"] if part == "outcomes" else answer["records"][0][kind]
            assert (one["anchor"], one["reason"]) == (str(anchor), "no")
    assert client.get("/topologies/words/outcomes", params={"message_id": "a/"}).json()["outcomes"] == []
    for text, status in (("x" * 1025, 422), ("é" * 1000, 200)):
        answer = client.get(path, params={"message_id": text})
        assert (answer.status_code, answer.json().get("records", [])) == (status, [])
    for part in ("records", "outcomes", "trees"):  # never looked for as another name
        refused = client.get(f"/topologies/words/{part}?message_id=a%ff")
        assert (refused.status_code, refused.json()["errors"][0]["location"]) == (422, ["query"])
    assert client.get(path, params={"cursor": "x"}).status_code == 404
    assert client.get(path, params={"anchor": "1"}).status_code == 422
    assert client.get("/topologies/nobody/records").status_code == 404
