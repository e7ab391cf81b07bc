"""The loop over a consumer: rows are delivered, flushed and committed, in this order."""

import contextlib
from typing import Any

import pytest

from acker import Topology
from acker.errors import AckerError, ValidationError
from acker.testing.messages import TopicPartition
from tests.helpers.builders.collectors import Make
from tests.helpers.servers.servers import wait_until


class Message:
    """A message as confluent-kafka gives it."""

    def __init__(self, offset: int, headers: Any, error: Any = None) -> None:
        self._offset, self._headers, self._error = offset, headers, error

    def topic(self) -> str:
        return "items"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Any:
        return self._headers

    def error(self) -> Any:
        return self._error


class Error:
    """An error as confluent-kafka gives it."""

    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal

    def fatal(self) -> bool:
        return self._fatal

    def code(self) -> int:
        return -191


class Client:
    """A consumer and a producer in memory; `calls` has what was asked of it, in its order."""

    def __init__(self, topology: Topology, messages: list[Message], left: int = 0) -> None:
        self.topology, self.messages, self.left = topology, messages, left
        self.calls: list[str] = []
        self.on_revoke: Any = None
        self.revoked = False

    def subscribe(self, topics: list[str], on_revoke: Any) -> None:
        self.calls.append(f"subscribe {topics}")
        self.on_revoke = on_revoke

    def poll(self, _: float) -> Message | None:
        if self.revoked:
            self.revoked = False
            self.on_revoke(self, [])
        return self.messages.pop(0) if self.messages else None

    def flush(self) -> int:
        self.calls.append(f"deliver, {self.topology.counters()['acked']} acked")
        return self.left

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("items", 0), TopicPartition("items", 1)] if self.on_revoke else []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        [place] = offsets
        self.calls.append(f"commit {place.offset}, {self.topology.counters()['acked']} acked")


def sent(make: Make, count: int) -> list[Message]:
    """Messages of so many records."""
    made = make()
    made.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items", segment_rows=1)
    found = [Message(n, out.inject([], spout.emit(f"m{n}")[0])) for n in range(count)]
    made.flush()
    return found


def test_rows_are_delivered_then_flushed_then_committed(make: Make) -> None:
    step, messages = make(), sent(make, 3)
    client = Client(step, [*messages, Message(3, None, Error(fatal=False))])
    items = step.incoming("items", subscription="count")
    for row in items.consume(client, producers=[client], rows=2, running=lambda: client.messages):
        assert row.where == f"items/0@{row.message.offset()}"
        items.ack(row)
    assert client.calls == [
        "subscribe ['items']", "deliver, 0 acked", "commit 2, 2 acked", "deliver, 2 acked",
        "commit 3, 3 acked",
    ]  # fmt: skip


def test_a_revoke_commits_what_was_worked_on(make: Make) -> None:
    step, messages = make(), sent(make, 2)
    client = Client(step, messages)
    items = step.incoming("items", subscription="count")
    for row in items.consume(client, ["a", "b"], seconds=60.0, running=lambda: client.messages):
        items.ack(row)
        client.revoked = row.message.offset() == 0
    assert client.calls[:2] == ["subscribe ['a', 'b']", "commit 1, 1 acked"]


def test_an_answer_that_comes_later_does_not_keep_a_loop_running(make: Make) -> None:
    async def running() -> bool:
        return False

    step = make()
    items = step.incoming("items", subscription="count")
    with pytest.raises(ValidationError, match="got one that returned a coroutine"):
        list(items.consume(Client(step, []), running=running))


class _Failing(Exception):
    """An error of a step."""


def test_a_loop_that_is_left_by_an_error_commits_nothing_and_keeps_no_row_in_work(make: Make) -> None:
    step = make()
    client, items = Client(step, sent(make, 2)), step.incoming("items", subscription="count")
    rows = items.consume(client, producers=[client], seconds=60.0)
    with contextlib.suppress(_Failing):
        for row in rows:
            if row.message.offset() == 1:
                raise _Failing
            items.ack(row)
    rows.close()  # type: ignore[attr-defined] # the test holds it
    client.on_revoke(client, [])  # by `consumer.close()`
    assert client.calls == ["subscribe ['items']"]
    step.flush()
    assert step.counters()["acked"] == 1


def test_a_loop_is_refused_while_another_one_of_its_topology_goes_on(make: Make) -> None:
    step = make()
    items, words = (step.incoming(name, subscription="count") for name in ("items", "words"))
    clients = [Client(step, sent(make, 2)), Client(step, [Message(0, None)])]
    rows = items.consume(clients[0], seconds=60.0)
    items.ack(next(rows))
    second = words.consume(clients[1], running=lambda: clients[1].messages)
    with pytest.raises(AckerError, match="another loop over 'items' uses this topology: give each loop a"):
        next(second)
    assert clients[1].calls == []
    items.ack(next(rows))
    rows.close()  # type: ignore[attr-defined]
    assert [row.tracked for row in words.consume(clients[1], running=lambda: clients[1].messages)] == [False]


def test_a_loop_ends_when_another_one_begins_over_its_consumer(make: Make) -> None:
    step = make()
    client, items = Client(step, sent(make, 2)), step.incoming("items", subscription="count")
    left = items.consume(client, seconds=60.0)
    next(left)  # something holds the loop
    for row in items.consume(client, seconds=60.0, running=lambda: client.messages):
        items.ack(row)
    with pytest.raises(AckerError, match="another loop uses the consumer: this loop has ended"):
        next(left)
    assert client.calls == ["subscribe ['items']", "unsubscribe", "subscribe ['items']", "commit 2, 1 acked"]


def test_the_flush_of_a_loop_sends_what_an_observing_spout_has_emitted(make: Make) -> None:
    messages, step = sent(make, 1), make(linger=None)
    client, seen = Client(step, messages), step.spout("seen", observe=True)
    items = step.incoming("items", subscription="count")
    before = step.counters()["tracked"]
    for row in items.consume(client, running=lambda: client.messages):
        seen.emit("a row")
        items.ack(row)
    wait_until(lambda: step.counters()["tracked"] == before + 1)  # an observer's own thread sends


def test_a_row_that_is_neither_acked_nor_failed_ends_the_loop_without_a_commit(make: Make) -> None:
    step = make()
    client = Client(step, sent(make, 2))
    items = step.incoming("items", subscription="count")
    with pytest.raises(AckerError, match="row 'items/0@0' is neither acked nor failed"):
        list(items.consume(client))
    assert client.calls == ["subscribe ['items']"]


def test_what_a_producer_does_not_deliver_ends_the_loop_without_a_commit(make: Make) -> None:
    step = make()
    client = Client(step, sent(make, 1), left=1)
    items = step.incoming("items", subscription="count")
    rows = items.consume(client, producers=[client], rows=1)
    items.ack(next(rows))
    with pytest.raises(AckerError, match="1 rows wait in a producer"):
        next(rows)
    assert client.calls == ["subscribe ['items']", "deliver, 0 acked"]
    assert step.counters()["acked"] == 0


def test_a_fatal_error_of_the_consumer_ends_the_loop(make: Make) -> None:
    step = make()
    items = step.incoming("items", subscription="count")
    with pytest.raises(AckerError, match="stream 'items' cannot go on"):
        list(items.consume(Client(step, [Message(0, None, Error(fatal=True))])))


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"seconds": -1.0}])
def test_options_that_cannot_be_are_refused(make: Make, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make().incoming("items", subscription="count").consume(None, **wrong)
