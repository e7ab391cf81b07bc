"""Rows on an event loop, through aiokafka: each record is acked, whatever is cancelled or moves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from acker import AsyncTopology, Topology
from acker.collectors.external.event_loop.async_incoming import AsyncIncoming
from tests.helpers.builders.external import source
from tests.helpers.servers.kafka import Broker

ROWS = 30


@asynccontextmanager
async def consumer_of(broker: Broker, group: str) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of a group."""
    made = AIOKafkaConsumer(
        bootstrap_servers=broker.servers, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=30_000, heartbeat_interval_ms=300,
    )  # fmt: skip
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def produce(broker: Broker, topology: Topology, topic: str) -> None:
    """Records of a spout as messages in two partitions."""
    topology.incoming("items", subscription="split")
    topology.incoming("words", subscription="count")
    for number, headers in enumerate(source(topology, ROWS, stream="items")):
        broker.produce(topic, [b"%d" % number], partition=number % 2, headers=headers)
    topology.flush()


async def until(condition: Callable[[], bool], *steps: asyncio.Task[None]) -> None:
    """Waits for a condition while steps go on; raises the error of one that does not."""
    async with asyncio.timeout(120):
        while not condition():
            for step in steps:
                assert not step.done(), step.result()
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_each_record_is_acked_where_steps_are_cancelled_and_partitions_move(
    real_broker: Broker, topology: Topology, valkey_url: str, group: str
) -> None:
    lines, words_topic = real_broker.topic(2), real_broker.topic(2)
    produce(real_broker, topology, lines)
    passed = list[int]()

    async def split(consumer: Any, producer: Any, items: AsyncIncoming, words: Any) -> None:
        async for row in items.consume(consumer, [lines], producers=[producer], rows=4, seconds=0.2):
            headers = words.inject(row.message.headers, row)
            future = await producer.send(words_topic, row.message.value, headers=headers)
            future.add_done_callback(words.reports(headers))
            await asyncio.sleep(0.01)
            items.ack(row)
            passed.append(int(row.message.value))

    async def count(consumer: Any, items: AsyncIncoming) -> None:
        async for row in items.consume(consumer, [words_topic], seconds=0.2):
            items.ack(row)

    async with (
        AIOKafkaProducer(bootstrap_servers=real_broker.servers) as producer,
        AsyncTopology(valkey_url, "t") as first,
        AsyncTopology(valkey_url, "t") as second,
        AsyncTopology(valkey_url, "t") as last,
        consumer_of(real_broker, group) as one,
        consumer_of(real_broker, f"{group}-words") as counting,
    ):
        counted = asyncio.create_task(count(counting, await last.incoming("words", subscription="count")))
        steps = [
            (await made.incoming("items", subscription="split"), await made.outgoing("words"))
            for made in (first, second)
        ]
        for stop in (3, 9):  # cancelled in the middle of a row, and called again with the same consumer
            task = asyncio.create_task(split(one, producer, *steps[0]))
            await until(lambda: len(passed) >= stop, task, counted)  # noqa: B023 - awaited here
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        task = asyncio.create_task(split(one, producer, *steps[0]))
        async with consumer_of(real_broker, group) as other:  # the group is balanced anew
            moved = asyncio.create_task(split(other, producer, *steps[1]))
            await until(lambda: topology.counters()["acked"] == ROWS, task, moved, counted)
            moved.cancel()
            await asyncio.gather(moved, return_exceptions=True)
        for running in (task, counted):
            running.cancel()
        await asyncio.gather(task, counted, return_exceptions=True)
    assert set(passed) == set(range(ROWS))
    counters = topology.counters()
    assert [counters["failed"], counters["expired"]] == [0, 0]
