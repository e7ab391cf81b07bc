import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces import patient
from tests.helpers.faces.api import READ, TOKENS, calling, serving
from tests.helpers.faces.streams_of_events import connected
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

EVENTS = "/topologies/words/events"


@dataclass
class Event:
    kind: str
    id: str
    data: Any


@contextmanager
def stream(client: httpx.Client, last: str = "") -> Iterator[Iterator[Event]]:
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", EVENTS, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in fields:
            yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
        fields = fields | {name: value} if line else {}


def until(events: Iterator[Event], kind: str, most: int = 1000) -> list[Event]:
    """Events up to and including the first of a kind."""
    found = []
    for event, _ in zip(events, range(most), strict=False):
        found.append(event)
        if event.kind == kind:
            return found
    raise AssertionError(f"no {kind} among {[event.kind for event in found]}")


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=600.0)


@pytest.fixture
def live(valkey_url: str, ledger: Ledger) -> Iterator[httpx.Client]:
    with serving(valkey_url, tokens=TOKENS, ticker=False) as address, calling(address) as client:
        yield client


def test_each_second_tells_what_happened(live: httpx.Client, ledger: Ledger) -> None:
    with stream(live) as events:
        until(events, "sample")
        trees = Trees(50).track(ledger)
        ledger.fail(trees.anchors[:2], "<script>")
        found: list[Event] = []
        while sum(event.data["tracked"] for event in found if event.kind == "sample") < 50:
            found += until(events, "sample")
        singles = {event.data["anchor"]: event.data for event in found if event.kind == "outcome"}
        assert singles.keys() == {str(anchor) for anchor in trees.anchors[:2]}
        one = singles[str(trees.anchors[1])]
        assert (one["status"], one["reason"], one["message_id"]) == ("failed", "<script>", "message 1")
        last = found[-1].data
        assert (last["pending"], last["buckets"]["nursery"]) == (48, 48)
        assert last["health"]["ticking"]
        assert sum(event.data["failed"] for event in found if event.kind == "sample") == 2


def test_many_outcomes_are_summed_up(live: httpx.Client, ledger: Ledger) -> None:
    with stream(live) as events:
        until(events, "sample")
        until(events, "sample")
        trees = Trees(500).track(ledger)
        ledger.fail(trees.anchors[:400], "bad")
        found: list[Event] = []
        while (
            sum(event.data["failed"] for event in found if event.kind == "outcomes")
            + sum(event.kind == "outcome" for event in found)
            < 400
        ):
            found += until(events, "sample")
        assert sum(event.kind == "outcome" for event in found) <= 40
        assert sum(event.data["expired"] for event in found if event.kind == "outcomes") == 0


def test_a_stream_goes_on_after_the_last_event_that_was_seen(live: httpx.Client, ledger: Ledger) -> None:
    with stream(live) as events:
        until(events, "sample")
        [*_, seen] = until(events, "sample")
    trees = Trees(300).track(ledger)
    ledger.fail(trees.anchors[:3], "while away")
    with stream(live) as events:  # until the history has it
        while until(events, "sample")[-1].data["pending"] != 297:
            pass
    with stream(live, seen.id) as events:
        found = until(events, "sample")
        while sum(event.data["tracked"] for event in found if event.kind == "sample") < 300:
            found += until(events, "sample")
        samples = [event for event in found if event.kind == "sample"]
        assert [event.id for event in samples] == sorted({event.id for event in samples})
        assert all(event.id > seen.id for event in samples)
        assert sum(event.data["failed"] for event in samples) == 3
        assert {event.data["anchor"] for event in found if event.kind == "outcome"} == {
            str(anchor) for anchor in trees.anchors[:3]
        }
    ledger.fail(trees.anchors[3:], "very many")
    with stream(live) as events:
        while until(events, "sample")[-1].data["pending"] != 0:
            pass
    with stream(live, seen.id) as events:
        found = until(events, "outcomes")
        assert sum(event.kind == "outcome" for event in found) == 200
        [rest] = [event.data for event in found if event.kind == "outcomes"]
        assert (rest["failed"], rest["expired"]) == (100, 0)


def test_streams_are_bounded_in_number_and_time(valkey_url: str, ledger: Ledger) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, streams=2) as address,
        calling(address) as client,
        stream(client),
    ):
        with stream(client):
            answer = client.get(EVENTS)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0

        def again() -> bool:
            with client.stream("GET", EVENTS) as answer:
                return answer.status_code == 200

        wait_until(again)  # the service sees that a client is gone when it writes to it
    with (
        serving(valkey_url, tokens=TOKENS, stream_seconds=2) as address,
        calling(address) as client,
        stream(client) as events,
    ):
        assert sum(event.kind == "sample" for event in events) >= 1  # and then it ends


def test_a_stream_goes_on_at_another_server(valkey_url: str, ledger: Ledger) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, ticker=False) as one,
        serving(valkey_url, tokens=TOKENS, ticker=False, history=False) as other,
    ):
        with calling(one) as client, stream(client) as events:
            [*_, seen] = until(events, "sample")
        Trees(30).track(ledger)
        with calling(other) as client, stream(client, seen.id) as events:
            tracked = 0
            while tracked < 30:
                tracked += until(events, "sample")[-1].data["tracked"]


def test_an_id_of_a_later_time_begins_with_the_newest_sample(valkey_url: str, ledger: Ledger) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, ticker=False) as address,
        calling(address) as client,
        stream(client, "999999999999999-0") as events,
    ):
        Trees(3).track(ledger)
        while until(events, "sample")[-1].data["tracked"] == 0:
            pass


def test_the_streams_of_a_topology_end_when_it_is_removed(valkey_url: str, ledger: Ledger) -> None:
    with serving(valkey_url, tokens=TOKENS, ticker=False) as address, calling(address) as client:
        with stream(client) as events:
            until(events, "sample")
            assert client.delete("/topologies/words").status_code == 200
            assert [event.kind for event in events if event.kind != "sample"] == []
        again = open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=600.0)
        with stream(client) as events:
            until(events, "sample")
            again.fail(Trees(3).track(again).anchors, "again")
            found = [until(events, "outcome")[-1].data["reason"] for _ in range(3)]
            assert found == ["again"] * 3


def test_a_client_has_so_many_streams(valkey_url: str, ledger: Ledger) -> None:
    with (
        serving(valkey_url, tokens=TOKENS, ticker=False, streams_of_client=1) as address,
        calling(address) as client,
        calling(address, READ) as other,
        stream(client) as events,
    ):
        until(events, "sample")
        refused = client.get(EVENTS)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:acker:too-many-streams")
        with stream(other) as theirs:
            until(theirs, "sample")


@pytest.mark.parametrize("path", ["events", "spouts/s/outcomes/events"])
def test_a_client_has_no_more_streams_at_once(valkey_url: str, ledger: Ledger, path: str) -> None:
    ledger.register_spout("s")
    request = f"GET /api/v1/topologies/words/{path} HTTP/1.1\r\nHost: localhost\r\n"
    request += f"Authorization: Bearer {READ}\r\n\r\n"
    with (
        serving(valkey_url, tokens=TOKENS, ticker=False, streams_of_client=3) as address,
        ExitStack() as ending,
    ):
        connections = [ending.enter_context(connected(address, request[:-2].encode())) for _ in range(40)]
        for connection in connections:
            connection.sendall(b"\r\n")
        said = Counter(connection.recv(12) for connection in connections)
    assert said == {b"HTTP/1.1 200": 3, b"HTTP/1.1 429": 37}


@pytest.mark.slow
def test_200_streams_cost_one_reading_a_second(valkey_url: str, ledger: Ledger, valkey_raw: Any) -> None:
    def commands() -> int:
        reported = valkey_raw.info("commandstats")
        own = ("cmdstat_info", "cmdstat_xinfo|stream")
        return sum(one["calls"] for name, one in reported.items() if name not in own)

    def readings() -> int:
        return int(valkey_raw.xinfo_stream(keys.history("words", 1))["entries-added"])

    def cost() -> int:
        """Commands of four readings, and of the look at the topology's health that may come with them."""
        before, first = commands(), readings()
        wait_until(lambda: readings() >= first + 4)
        return commands() - before

    with (
        serving(valkey_url, tokens=TOKENS, ticker=False, streams_of_client=300) as address,
        calling(address) as client,
    ):
        limits = httpx.Limits(max_connections=None)
        many = httpx.Client(
            base_url=client.base_url, headers=client.headers, limits=limits, timeout=patient.SECONDS
        )
        with many, ExitStack() as stack:
            each = [stack.enter_context(stream(many))]
            until(each[0], "sample")
            alone = cost()
            each += [stack.enter_context(stream(many)) for _ in range(199)]
            for events in each:  # what each reads once, when it begins, is read
                until(events, "sample")
            together = cost()
        # Now and then a window holds a reading or a look more. One command for each stream would be 796.
        assert together - alone < 199, (alone, together)


def test_a_stream_outlives_a_still_history(live: httpx.Client, ledger: Ledger, valkey_raw: Any) -> None:
    with stream(live) as events:
        until(events, "sample")
        valkey_raw.set(keys.turn("words"), "somebody else", px=2500)
        [*_, event] = until(events, "sample")
        while event.data["seconds"] < 2:
            [*_, event] = until(events, "sample")


@pytest.mark.parametrize("value", [b"nonsense", b"9" * 30, b"\xff"])
def test_what_cannot_be_read_of_one_topology_ends_the_events_of_no_other(
    live: httpx.Client, ledger: Ledger, valkey_url: str, valkey_raw: Any, value: bytes
) -> None:
    broken = open_ledger(Store(valkey_url), "broken", ackers=2, message_timeout=600.0)
    Trees(1).track(broken)
    Trees(1).track(ledger)
    for shard in broken.core.shards:
        valkey_raw.hset(shard.clock, "rotations", value)
    valkey_raw.hset(broken.core.shards[0].latency, value, value)
    valkey_raw.sadd(keys.streams("broken"), b"\xff")
    with stream(live) as events:
        for _ in range(3):  # the first may have been taken before
            until(events, "sample")


def test_a_stream_that_cannot_be_served_is_refused_before_it_begins(
    client: httpx.Client, ledger: Ledger, valkey_raw: Any
) -> None:
    ledger.register_spout("s")
    outcomes = ledger.core.shards[0].outcomes("s")
    for key, path in (
        (keys.history("words", 1), EVENTS),
        (outcomes, "/topologies/words/spouts/s/outcomes/events"),
    ):
        valkey_raw.set(key, "no stream")
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (502, "urn:acker:store-error"), path
        valkey_raw.delete(key)
