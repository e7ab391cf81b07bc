"""A record looked for among all topologies of a store."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from acker.inspect.trees import pages as trees_pages
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store

NAMES = [f"t.{number:02}" for number in range(45)]


@pytest.fixture
def ledgers(valkey_url: str) -> dict[str, Ledger]:
    store = Store(valkey_url)
    return {name: open_ledger(store, name, ackers=1, message_timeout=3600.0) for name in NAMES}


def pages(client: httpx.Client, **asked: Any) -> Iterator[dict[str, Any]]:
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get("/records", params=asked | ({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.text
        yield answer.json()
        cursor = answer.json()["cursor"]


def test_each_topology_is_asked_once_however_many_there_are(
    client: httpx.Client, ledgers: dict[str, Ledger]
) -> None:
    anchors = {}
    for name in ("t.00", "t.20", "t.44"):
        [anchors[name]] = ids.new_anchors(1)
        ledgers[name].track([anchors[name]], ids.new_ids(1), [b"\xff"], spout="s")
    found = list(pages(client, message_id_base64=base64.b64encode(b"\xff").decode()))
    assert [(page["looked"], page["of"]) for page in found] == [(20, 45), (40, 45), (45, 45)]
    hits = [hit for page in found for hit in page["topologies"]]
    assert [hit["topology"] for hit in hits] == [*anchors]
    assert {(hit["anchor"], hit["attempts"], hit["dead_letters"], hit["more"]) for hit in hits} == {
        (None, 1, 0, False)
    }
    by_anchor = [hit for page in pages(client, anchor=str(anchors["t.20"])) for hit in page["topologies"]]
    assert [(hit["topology"], hit["anchor"], hit["state"]) for hit in by_anchor] == [
        ("t.20", str(anchors["t.20"]), "pending")
    ]
    ledgers["t.20"].fail([anchors["t.20"]], "bad")
    [hit] = [hit for page in pages(client, anchor=str(anchors["t.20"])) for hit in page["topologies"]]
    assert hit["state"] == "failed"


def test_what_was_not_searched_wholly_is_named(
    client: httpx.Client, ledgers: dict[str, Ledger], valkey_raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey_raw.hset(keys.config("t.01"), "ackers", "many")
    monkeypatch.setattr(trees_pages, "_FIND_BYTES", 0)
    found = list(pages(client, message_id="c"))
    assert [one["topology"] for page in found for one in page["unreadable"]] == ["t.01"]
    assert {"t.01", *(name for page in found for name in page["unfinished"])} == {*NAMES}
    assert [hit for page in found for hit in page["topologies"]] == []


def test_a_question_may_name_nothing(client: httpx.Client) -> None:
    for asked in ({"anchor": "1.5"}, {"message_id": "a", "cursor": "no/name"}):
        assert client.get("/records", params=asked).status_code == 422, asked
    nameless = client.get("/records")  # as in one topology
    assert nameless.status_code == 200
    assert nameless.json()["topologies"] == []
    assert client.get("/records", params={"message_id": "é" * 1000}).json() == {
        "topologies": [], "unfinished": [], "unreadable": [], "looked": 0, "of": 0, "cursor": None,
    }  # fmt: skip
