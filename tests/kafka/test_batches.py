"""Records in batches: their messages, their tuples, and what is told of them."""

import random

import numpy as np
import pytest

from acker import Topology, TupleError
from acker.kafka import KafkaBatch
from acker.kafka.message_ids import message_id, packed_ids
from tests.helpers.builders.kafka_spouts import done, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

PARTITIONS, EACH = 4, 300


@pytest.mark.parametrize("slab_limit", [7, 1024])
def test_batches_are_acked_at_once_but_for_their_failed_records(
    broker: Broker, valkey_url: str, group: str, slab_limit: int
) -> None:
    """Several partitions in each batch, and several slabs."""
    topic, seen, bad = broker.topic(PARTITIONS), list[tuple[bytes, int]](), {b"0/3", b"2/299"}
    for partition in range(PARTITIONS):
        broker.produce(topic, [b"%d/%d" % (partition, n) for n in range(EACH)], partition=partition)
    with Topology(valkey_url, "t", message_timeout=30.0, slab_limit=slab_limit) as topology:
        bolt = topology.bolt("b")
        with spout_of(broker, topology, topic, group, attempts=2) as spout:

            def work() -> bool:
                batch = spout.poll_many(0.05, 500)
                for place, message in enumerate(batch.messages):
                    seen.append((message.value() or b"", batch.attempts.get(place, 1)))
                    if message.value() in bad:
                        assert batch[place].value == message.value()
                        bolt.fail(batch[place].tuple, "bad")
                bolt.ack_many(batch.tuples)
                topology.flush()
                return done(spout, PARTITIONS * EACH)

            wait_until(work, timeout=60)
        assert topology.counters()["failed"] == 2 * len(bad) + len(bad), "and the rows of dead letters"
        assert {letter.row["value"] for letter in letters_of(topology)} == bad
    expected = [(b"%d/%d" % (part, n), 1) for part in range(PARTITIONS) for n in range(EACH)]
    assert sorted(seen) == sorted([*expected, *((value, 2) for value in bad)])
    assert [broker.committed(group, topic, part) for part in range(PARTITIONS)] == [EACH] * PARTITIONS


def test_a_batch_is_a_sequence_of_records(broker: Broker, topology: Topology, group: str) -> None:
    topic, bolt, batches = broker.topic(), topology.bolt("b"), list[KafkaBatch]()
    broker.produce(topic, [b"0", None, b"2"], key=b"k", headers=[("h", b"1")])
    with spout_of(broker, topology, topic, group) as spout:

        def came() -> bool:
            batches.append(spout.poll_many(0.05))
            return len(batches[-1]) == 3

        wait_until(came)
        batch = batches[-1]
        assert [record.value for record in batch] == [b"0", None, b"2"]
        assert [record.message_id for record in batch[1:]] == [f"{topic}/0@1", f"{topic}/0@2"]
        assert batch[-1].tuple is batch.tuples[2]
        assert (batch[0].key, batch[0].headers, batch[0].attempt) == (b"k", [("h", b"1")], 1)
        bolt.ack_many([record.tuple for record in batch])
        with pytest.raises(TupleError, match="was acked before"):
            bolt.ack(batch[0].tuple)
        wait_until(lambda: spout.poll_many(0.05) is not None and done(spout, 3))


def test_failed_records_do_not_keep_new_ones_waiting(broker: Broker, topology: Topology, group: str) -> None:
    """Also one record at a time: a consumer that is not asked leaves its group."""
    topic, bolt, seen = broker.topic(), topology.bolt("b"), set[bytes | None]()
    broker.produce(topic, [b"bad", *(b"%d" % n for n in range(20))])
    with spout_of(broker, topology, topic, group, attempts=1000, backoff=0.0, max_backoff=0.0) as spout:

        def work() -> bool:
            for record in spout.poll(0.05, 1):
                seen.add(record.value)
                bolt.fail(record.tuple) if record.value == b"bad" else bolt.ack(record.tuple)
            topology.flush()
            return len(seen) == 21

        wait_until(work, timeout=30)


def test_an_observing_spout_records_batches(broker: Broker, topology: Topology, group: str) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(10)])
    with spout_of(broker, topology, topic, group, observe=True) as spout:

        def work() -> bool:
            bolt.ack_many(spout.poll_many(0.05).tuples)
            topology.flush()
            return broker.committed(group, topic) == 10

        wait_until(work)
    wait_until(lambda: topology.counters()["acked"] == 10)


def test_message_ids_are_the_same_one_by_one_and_packed() -> None:
    chance = random.Random(1)
    runs = []
    for topic in ("t", "thé", "a" * 249):
        offsets = [chance.randrange(10 ** chance.randrange(1, 19)) for _ in range(200)]
        runs.append(((topic, chance.randrange(9)), np.unique([*offsets, 0, 9, 10])))
    expected = [message_id(where, offset).encode() for where, some in runs for offset in some.tolist()]
    assert list(packed_ids(runs)[:]) == expected
