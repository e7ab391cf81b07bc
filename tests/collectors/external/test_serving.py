"""Steps of different names under one subscription would ack for each other: the second is refused."""

from typing import Any

import pytest

from acker import AsyncTopology
from acker.collectors.external import exchange
from acker.errors import SubscriptionInUse, ValidationError
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.staging.external import serving
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source


def test_a_second_step_under_a_subscription_is_refused(make: Make) -> None:
    first, second = make(), make()
    first.incoming("items", subscription="main", step="count")
    for shared in (False, True):
        with pytest.raises(
            SubscriptionInUse, match="'main' of stream 'items' is served by step 'count', and step 'price'"
        ):
            second.incoming("items", subscription="main", step="price", shared=shared)
    second.incoming("items", subscription="main", step="count")  # another process of the step
    second.incoming("items", subscription="other", step="price")
    second.incoming("words", subscription="main", step="price")


def test_steps_that_both_share_a_subscription_serve_it_together(make: Make) -> None:
    made = make()
    steps = [
        make().incoming("items", subscription="main", step=name, shared=True) for name in ("count", "price")
    ]
    with pytest.raises(SubscriptionInUse, match="served by step 'count', and step 'main'"):
        make().incoming("items", subscription="main")
    headers = source(made, 2, rows=1)
    made.flush()
    for items, one in zip(steps, headers, strict=True):
        items.ack(items.extract(one))
        items._exchange.flush()
    assert made.counters()["acked"] == 2


def test_a_dead_step_makes_room_when_its_heartbeat_is_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, successor = make(), make()
    dead.incoming("items", subscription="main", step="count")
    with pytest.raises(SubscriptionInUse):
        successor.incoming("items", subscription="main", step="price")
    with monkeypatch.context() as patched:
        patched.setattr(serving, "LEASE", 0.0)  # this heartbeat is over at once
        dead.incoming("items", subscription="main", step="count")
    successor.incoming("items", subscription="main", step="price")


def test_a_flush_renews_the_heartbeat_and_is_refused_where_another_step_serves(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, first, second = make(), make(), make()
    items = first.incoming("items", subscription="main", step="count")
    headers = source(made, 1)
    made.flush()
    key = made.ledger.core.config.name

    def served() -> Any:
        [found] = made.ledger.run(_fields(key))
        return found

    begun = served()
    first.flush()
    assert served() == begun, "a flush within ten seconds costs no heartbeat"
    monkeypatch.setattr(exchange, "SECONDS", 0.0)
    first.flush()
    assert served() != begun
    monkeypatch.setattr(serving, "LEASE", 0.0)
    first.flush()  # its heartbeat is over at once
    monkeypatch.setattr(serving, "LEASE", 30.0)
    second.incoming("items", subscription="main", step="price")
    items.ack(items.extract_many(headers))
    with pytest.raises(SubscriptionInUse, match="served by step 'price', and step 'count'"):
        first.flush()
    assert made.counters()["acked"] == 0


def _fields(topology: str) -> Operation[list[Any]]:
    own = keys.Stream(topology, "items").subscriptions
    [slots] = yield [command("HGET", own, "slots")]
    return (yield [command("HGET", own, f"served:{int(slots)}")])


def test_a_heartbeat_makes_no_key_in_an_emptied_store(make: Make) -> None:
    made = make()
    core = made.ledger.core
    made.ledger.run(serving.serve(core, "gone", 7, "main", "count", shared=False))
    assert made.ledger.run(_there(core.config.name)) == [0]


def _there(topology: str) -> Operation[list[Any]]:
    return (yield [command("EXISTS", keys.Stream(topology, "gone").subscriptions)])


def test_a_step_is_registered_with_the_streams_that_it_reads_and_sends_to(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    made.outgoing("words")
    for stream in ("lines", "items"):
        made.incoming(stream, subscription="s", step="join")
    made.outgoing("pairs")
    [step] = made.steps()
    assert (step.name, step.kind, step.reads, step.emits) == (
        "join", "bolt", ("items", "lines"), ("pairs", "words"),
    )  # fmt: skip
    monkeypatch.setattr(exchange, "SECONDS", 0.0)
    made.flush()
    assert (made.steps()[0].last_seen or 0) > (step.last_seen or 0)


def test_processes_of_a_host_with_one_step_name_are_listed_for_each_of_their_streams(make: Make) -> None:
    first, second = make(), make()
    first.outgoing("words")
    for topology, stream in ((first, "lines"), (second, "items"), (make(), "items")):
        topology.incoming(stream, subscription="s", step="work")
    listed = {step.reads: step.emits for step in first.steps()}
    assert listed == {("lines",): ("words",), ("items",): ()}
    assert len(first.steps()) == 2


async def test_the_asyncio_face_refuses_it_too(make: Make, url: str) -> None:
    make().incoming("items", subscription="main", step="count")
    async with AsyncTopology(url, "t") as topology:
        with pytest.raises(SubscriptionInUse):
            await topology.incoming("items", subscription="main")
        await topology.incoming("items", subscription="main", step="count")
        with pytest.raises(ValidationError, match="step: expected 1 to 64"):
            await topology.incoming("items", subscription="main", step="")
        with pytest.raises(ValidationError, match="shared: expected True or False, got 'yes'"):
            await topology.incoming("items", subscription="main", shared="yes")  # type: ignore[arg-type]
