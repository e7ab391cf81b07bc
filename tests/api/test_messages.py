from typing import Any

import httpx
import pytest

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from tests.helpers.builders.ledgers import counted

PATH = "/topologies/words/messages"


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0, high_water_mark=2000)


def track(count: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [
        {"type": "track", "spout": "s", "anchor": str(ids.new_anchors(1)[0]), "value": str(ids.new_id())}
        | more
        for _ in range(count)
    ]


def test_a_client_in_any_language_can_track_and_ack(client: httpx.Client, ledger: Ledger) -> None:
    one, two, three = track(3)
    one["message_id"] = "<b>"
    two["message_id_base64"] = "/w=="
    body = {
        "messages": [
            one, two, three,
            {"type": "ack", "anchor": one["anchor"], "value": one["value"], "step": "split"},
            {"type": "fail", "anchor": two["anchor"], "reason": "é", "step": "check", "retry": False},
            {"type": "reset_timeout", "anchor": three["anchor"]},
        ]
    }  # fmt: skip
    headers = {"Idempotency-Key": "first"}
    answers = [client.post(PATH, json=body, headers=headers).json() for _ in range(3)]
    assert answers[0] == {
        "track": {"tracked": 3, "duplicates": 0, "conflicts": [], "rejected": []},
        "ack": {"late": 0, "orphaned": 0},
        "fail": {"late": 0, "orphaned": 0, "failed": 1},
        "slabs_reset": 1,
    }
    assert answers[1:] == answers[:1] * 2
    [outcome] = client.get("/topologies/words/outcomes").json()["outcomes"]
    assert (outcome["anchor"], outcome["reason"], outcome["step"], outcome["message_id_base64"]) == (
        two["anchor"],
        "é",
        "check",
        "/w==",
    )
    found = client.get("/topologies/words/spouts/s/outcomes").json()["outcomes"]
    [reported] = [one for one in found if one["status"] == "failed"]
    assert (reported["reason"], reported["step"], reported["retry"]) == ("é", "check", False)
    state = client.get("/topologies/words").json()
    assert sorted((at["name"], at["kind"], at["application"]) for at in state["steps"]) == [
        ("check", "bolt", "REST"),
        ("split", "bolt", "REST"),
    ]
    assert [(of["step"], of["tuples"], of["failed"]) for of in state["step_totals"]] == [
        ("check", 0, 1),
        ("split", 1, 0),
    ]
    observed = client.post(PATH, json={"messages": [{**one, "spout": "s.observed"}]})
    assert (observed.status_code, "without .observed" in observed.text) == (409, True)
    other = client.post(PATH, json={"messages": [one]}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "urn:acker:key-conflict")
    assert client.post(PATH, json={"messages": [one]}).json()["track"]["duplicates"] == 1
    changed = {**one, "value": "1"}
    assert client.post(PATH, json={"messages": [changed]}).json()["track"]["conflicts"] == [one["anchor"]]


def test_over_the_high_water_mark_trees_are_named(client: httpx.Client, ledger: Ledger) -> None:
    answer = client.post(PATH, json={"messages": track(2500)}).json()["track"]
    assert answer["tracked"] <= 2000
    assert answer["tracked"] + len(answer["rejected"]) == 2500


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([], 422),
        ([{"type": "ack", "anchor": "1"}], 422),
        ([{"type": "ack", "anchor": 1, "value": "1"}], 422),
        ([{"type": "ack", "anchor": "9223372036854775808", "value": "1"}], 422),
        ([{"type": "init", "anchor": "1", "value": "1"}], 422),
        ([{"type": "fail", "anchor": "1", "reason": "x" * 1025}], 422),
        ([{"type": "track", "spout": "a b", "anchor": "4096", "value": "1"}], 422),
        ([{"type": "track", "spout": "s", "anchor": "4096", "value": "1", "message_id_base64": "?"}], 422),
        ([{"type": "track", "spout": "s", "anchor": "4097", "value": "1"}], 409),
        ([{"type": "track", "spout": "s", "anchor": "4096", "value": "1"}] * 2, 409),
        ([{"type": "ack", "anchor": "1", "value": "1"}] * 10_001, 422),
    ],
)
def test_bad_messages_change_nothing(
    client: httpx.Client, ledger: Ledger, messages: list[Any], status: int
) -> None:
    answer = client.post(PATH, json={"messages": messages})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    counted(ledger)


def test_a_bad_anchor_is_refused_where_tracking_is_off(client: httpx.Client, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=0)
    answer = client.post(PATH, json={"messages": track(anchor="0")})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:acker:contradiction")
    assert client.post(PATH, json={"messages": track()}).json()["track"]["tracked"] == 1


def test_a_topology_has_64_spouts_at_most(client: httpx.Client, ledger: Ledger) -> None:
    for number in range(64):
        ledger.register_spout(f"s{number}")
    answer = client.post(PATH, json={"messages": track()})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:acker:too-many-spouts")
