"""The transport of acker.testing: steps run on it without a broker, with the faults of a real one."""

import asyncio
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from acker import AsyncTopology, Topology, ValidationError
from acker.errors import AckerError
from acker.testing import Transport, groups
from acker.testing.clients import MemoryConsumer, MemoryProducer
from examples import kafka_steps
from examples.kafka_steps import Places
from tests.helpers.builders.collectors import Make

LINES = [f"the line of number {number}" for number in range(12)]
FAULTS = {"duplicated": 0.3, "delayed": 0.3, "reordered": 0.3, "errors": 0.3}


@dataclass(frozen=True)
class InMemory(Places):
    """The places of the example's steps, with clients in memory."""

    transport: Transport

    def consumer(self, group: str) -> Any:
        return self.transport.consumer(group)

    def producer(self) -> Any:
        return self.transport.producer()


@pytest.mark.parametrize("seed", range(3))
def test_the_steps_of_the_example_store_each_word_and_ack_each_line(
    url: str, tmp_path: Path, seed: int
) -> None:
    transport = Transport(seed, **FAULTS)
    places = InMemory(url, "", tmp_path / "words.db", "", transport)
    with Topology(url, kafka_steps.NAME) as topology:
        kafka_steps.declare(topology)
        rows: list[Any] = [(line, [("line", b"%d" % number)]) for number, line in enumerate(LINES)]
        lines = transport.stamped(topology, kafka_steps.SENTENCES, "split", rows)
        transport.run(kafka_steps.split, places)
        assert lines.acked == []
        words = lines.sent(kafka_steps.WORDS)
        assert {line[0].decode() for _, line in words} == set(LINES)
        assert all(word in line[0].split() for word, line in words)
        transport.run(kafka_steps.count, places)
        assert [line.decode() for line in lines.acked] == LINES
        assert not lines.waiting
        assert not lines.failed
    with sqlite3.connect(places.table) as database:
        assert database.execute("SELECT COUNT(*) FROM words").fetchone() == (5 * len(LINES),)


def step(topology: Topology, consumer: MemoryConsumer, producer: MemoryProducer) -> None:
    """Sends each row on; a crash at the row "crash", once."""
    lines, words = topology.incoming("lines", subscription="s"), topology.outgoing("words", segment_rows=1)
    for row in lines.consume(consumer, producers=[producer], rows=3, seconds=0.05):
        headers = words.inject(row.message.headers(), row)
        producer.produce("words", row.message.value(), headers=headers, on_delivery=words.reports(headers))
        lines.ack(row)


def counting(topology: Topology, consumer: MemoryConsumer) -> None:
    """Acks all rows."""
    words = topology.incoming("words", subscription="count")
    for row in words.consume(consumer, seconds=0.05):
        words.ack(row)


def made_of(make: Make, transport: Transport, count: int = 40) -> Any:
    made = make()
    made.incoming("words", subscription="count")
    lines = transport.stamped(made, "lines", "s", [f"{number}" for number in range(count)])
    transport.run(step, made, transport.consumer("s"), transport.producer())
    return made, lines


def test_a_seed_has_the_same_faults_in_each_run_and_another_seed_has_others(make: Make) -> None:
    def order(seed: int) -> list[bytes]:
        transport, name = Transport(seed, lost=0.2, **FAULTS), f"t{next(names)}"
        topology = make(name)
        lines = transport.stamped(topology, "lines", "s", [f"{number}" for number in range(40)])
        transport.run(step, topology, transport.consumer("s"), transport.producer())
        return [value for value, _ in lines.sent("words")]

    names = iter(range(10))
    first = order(1)
    assert order(1) == first
    assert order(2) != first
    assert len(set(first)) < 40, "some are lost"
    assert len(first) > len(set(first)), "some come twice"
    assert first != sorted(first, key=int), "some come out of order"


def test_a_lost_row_leaves_its_segment_waiting(make: Make) -> None:
    made, lines = made_of(make, transport := Transport(4, lost=0.1))
    transport.run(counting, made, transport.consumer("count"))
    assert lines.acked == [], "a segment has all rows, and some are lost"
    assert len(lines.waiting) == 40
    assert 20 < len(transport.sent("words")) < 40


def test_a_row_that_is_not_delivered_fails_its_record(make: Make) -> None:
    made, lines = made_of(make, transport := Transport(4, undelivered=0.2))
    transport.run(counting, made, transport.consumer("count"))
    failed = [one.value for one in lines.failed]
    assert lines.failed[0].reason == "a row of words was not delivered: 'undelivered'"
    assert sorted([*failed, *lines.acked], key=int) == [b"%d" % number for number in range(40)]
    assert len(failed) == 40 - len(transport.sent("words")) > 0


def test_a_new_member_begins_at_what_was_committed(make: Make) -> None:
    made, transport = make(), Transport()
    lines = transport.stamped(made, "lines", "s", ["a", "b", "c"])
    first = transport.consumer("s")
    first.subscribe(["lines"])
    assert [one.value() for one in first.consume(2)] == [b"a", b"b"]
    first.commit()
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        first.commit()
    assert [one.value() for one in first.consume(2)] == [b"c"]
    transport.run(step, made, transport.consumer("s"), transport.producer())
    assert [value for value, _ in lines.sent("words")] == [b"c"]
    assert lines.waiting == [b"a", b"b", b"c"], "two rows of the segment have no bit"


def test_a_step_that_never_commits_is_ended(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PATIENCE", 0.05)
    made, transport = make(), Transport()
    transport.stamped(made, "lines", "s", ["a"])

    def forgetful(consumer: MemoryConsumer) -> None:
        consumer.subscribe(["lines"])
        while True:
            consumer.poll(0.1)

    with pytest.raises(AckerError, match=r"has not committed 1 rows within 0\.05 s"):
        transport.run(forgetful, transport.consumer("s"))


@pytest.mark.parametrize("chance", [-0.1, 1.5, True, "often"])
def test_a_chance_is_from_0_to_1(chance: Any) -> None:
    with pytest.raises(ValidationError, match="lost: expected a chance from 0 to 1"):
        Transport(lost=chance)


@pytest.mark.parametrize("seed", range(3))
async def test_a_step_on_an_event_loop_acks_each_record(make: Make, url: str, seed: int) -> None:
    made, transport = make(), Transport(seed, undelivered=0.1, **FAULTS)
    lines = transport.stamped(made, "lines", "s", LINES)

    async def upper(topology: AsyncTopology, consumer: Any, producer: Any) -> None:
        items = await topology.incoming("lines", subscription="s")
        words = await topology.outgoing("words")
        async for row in items.consume(consumer, producers=[producer], rows=5, seconds=0.05):
            headers = words.inject(row.message.headers, row)
            future = await producer.send("words", row.message.value.upper(), headers=headers)
            future.add_done_callback(words.reports(headers))
            items.ack(row)

    async with AsyncTopology(url, "t") as topology:
        await transport.run_async(upper, topology, transport.async_consumer("s"), transport.async_producer())
    failed = [one.value for one in lines.failed]
    assert sorted([*failed, *lines.acked]) == sorted(line.encode() for line in LINES)
    assert {row.upper() for _, [row] in lines.sent("words")} >= {line.upper() for line in lines.acked}


class _Failing(Exception):
    """An error of a step."""


async def test_a_loop_that_is_left_gives_its_row_up_and_reads_it_again(make: Make, url: str) -> None:
    made, transport = make(), Transport()
    lines = transport.stamped(made, "lines", "s", ["a", "b"])
    times = dict[bytes, int]()

    async def failing(topology: AsyncTopology, consumer: Any) -> None:
        items = await topology.incoming("lines", subscription="s")
        rows = items.consume(consumer, rows=2, seconds=60.0)
        async for row in rows:
            value = row.message.value
            times[value] = times.get(value, 0) + 1
            if value == b"b" and times[value] == 1:
                await rows.aclose()  # type: ignore[attr-defined]
                raise _Failing
            items.ack(row)

    async with AsyncTopology(url, "t") as topology:
        consumer = transport.async_consumer("s")
        with pytest.raises(_Failing):
            await failing(topology, consumer)
        await topology.flush()  # the row that was given up refuses nothing
        assert lines.acked == []
        await transport.run_async(failing, topology, consumer)
    assert times == {b"a": 2, b"b": 2}
    assert lines.acked == [b"a", b"b"]


async def test_a_loop_that_was_left_and_is_not_closed_yet_keeps_no_row_from_the_next_one(
    make: Make, url: str
) -> None:
    made, transport = make(), Transport()
    lines = transport.stamped(made, "lines", "s", ["a", "b"])
    async with AsyncTopology(url, "t") as topology:
        items, consumer = await topology.incoming("lines", subscription="s"), transport.async_consumer("s")
        left: Any = items.consume(consumer, seconds=60.0)
        await anext(left)  # something holds the loop, as the traceback of a cancelled task does

        async def again() -> None:
            async for row in items.consume(consumer, rows=2, seconds=60.0):
                items.ack(row)

        await transport.run_async(again)
        assert lines.acked == [b"a", b"b"]
        await left.aclose()


async def test_two_loops_over_one_consumer_do_not_share_its_rows(make: Make, url: str) -> None:
    made, transport = make(), Transport()
    lines = transport.stamped(made, "lines", "s", ["a"])
    async with AsyncTopology(url, "t") as topology:
        items, consumer = await topology.incoming("lines", subscription="s"), transport.async_consumer("s")
        reading, read = asyncio.Event(), consumer.getmany

        async def slow(*given: Any, **named: Any) -> Any:
            reading.set()
            await ended.wait()
            return await read(*given, **named)

        async def loop() -> None:
            async for row in items.consume(consumer, rows=1):
                items.ack(row)

        ended = asyncio.Event()
        consumer.getmany = slow  # type: ignore[method-assign]
        first = asyncio.create_task(transport.run_async(loop))
        await reading.wait()
        with pytest.raises(AckerError, match="another loop over 'lines' uses this topology"):
            await loop()
        ended.set()
        await first
    assert lines.acked == [b"a"]


async def test_a_loop_is_refused_while_another_one_of_its_topology_goes_on_and_not_after(
    make: Make, url: str
) -> None:
    made, transport = make(), Transport()
    lines = transport.stamped(made, "lines", "s", ["a", "b"])
    async with AsyncTopology(url, "t") as topology:
        items, words = [await topology.incoming(name, subscription="s") for name in ("lines", "words")]
        async for row in items.consume(transport.async_consumer("s"), seconds=60.0):
            with pytest.raises(AckerError, match="another loop over 'lines' uses this topology"):
                await anext(words.consume(transport.async_consumer("s")))
            items.ack(row)
            break

        async def again() -> None:
            async for row in items.consume(transport.async_consumer("s"), rows=2, seconds=60.0):
                items.ack(row)

        await transport.run_async(again)
    assert lines.acked == [b"a", b"b"]
