"""Dead letters of records that cannot be rows: each fails alone, and the others have theirs."""

import os
import secrets
import subprocess
import sys

from confluent_kafka import Producer

from acker import Topology
from acker.kafka import KafkaRecord, KafkaSpout
from acker.kafka.failed.replays import GONE
from acker.streams.dead_letters.dead_letters import replay_some
from acker.streams.dead_letters.filters import Filter
from acker.streams.dead_letters.sending import LetterSender, SentLetter
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.new_server import NewServer

# A client that lets keys of headers be any bytes, as clients in other languages do.
_ODD_HEADER = """\
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Odd(str):
    def encode(self, *_):
        return b"\\xff"

async def main(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"odd", partition=0, headers=[(Odd("h"), b"1")])

asyncio.run(main(*sys.argv[1:]))
"""


def produce_odd(broker: Broker, topic: str) -> None:
    """Writes a record with a header whose key is no text."""
    environment = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}  # its C code asks for a plain str
    command = [sys.executable, "-c", _ODD_HEADER, broker.servers, topic]
    subprocess.run(command, check=True, env=environment, timeout=60)


def produce_large(broker: Broker, topic: str, size: int) -> None:
    """Writes a record of random bytes, which no compression makes smaller."""
    producer = Producer({"bootstrap.servers": broker.servers, "message.max.bytes": 3_000_000})
    producer.produce(topic, secrets.token_bytes(size), partition=0)
    assert producer.flush(30) == 0
    producer.close()


def test_a_record_that_cannot_be_a_row_is_a_dead_letter_without_it_and_the_others_have_theirs(
    broker: Broker, new_server: NewServer, group: str
) -> None:
    store = new_server(options={"proto-max-bulk-len": "1mb"})
    topic = broker.topic(max_message_bytes="3000000")
    produce_odd(broker, topic)
    produce_large(broker, topic, 2_000_000)
    broker.produce(topic, [b"good", None])
    for _ in range(2):  # too large together
        produce_large(broker, topic, 700_000)
    headers = list[object]()

    def fail(record: KafkaRecord) -> None:
        try:
            headers.append(record.headers)
        except ValueError as error:
            headers.append(str(error))
        bolt.fail(record.tuple, "no", retry=False)

    with Topology(store.url, "t", message_timeout=30.0) as topology:
        bolt = topology.bolt("b")
        with spout_of(broker, topology, topic, group) as spout:
            drive(spout, topology, fail, lambda: done(spout, 6))
            letters = {letter.row["offset"]: letter for letter in letters_of(topology)}
            values = [letters[offset].row["value"] for offset in range(6)]
            sizes = [len(value) if isinstance(value, bytes) else 0 for value in values]
            assert sizes == [0, 0, 4, 0, 700_000, 700_000]
            assert letters[0].reason.startswith("no; its row is not kept: ")
            assert letters[1].reason.startswith("no; its row is not kept: a value has 2,0")
            assert {letters[offset].reason for offset in range(2, 6)} == {"no"}
            sent = list[SentLetter]()  # a place of the user's gets them as well
            assert LetterSender(topology.ledger, f"{spout.name}.failed", sent.extend).step() == 6
            assert {(one.row or {})["offset"]: one.reason for one in sent} == {
                offset: letter.reason for offset, letter in letters.items()
            }
            assert headers[0] == f"record {topic}/0@0: its headers cannot be read: the key of one is no UTF-8"
            assert replays_of(topology, spout) == {2, 3, 4, 5}
        assert {letter.reason for letter in letters_of(topology)} == {GONE}


def replays_of(topology: Topology, spout: KafkaSpout) -> set[int | None]:
    """Replays all dead letters and acks the records that come; returns their offsets."""
    count = len(letters_of(topology))
    topology.ledger.run(replay_some(topology.ledger.core, Filter()))
    bolt = topology.bolt("b")
    records = drive(
        spout, topology, lambda one: bolt.ack(one.tuple),
        lambda: topology.counters()["acked"] + len(letters_of(topology)) == count,
    )  # fmt: skip
    return {record.message.offset() for record in records}
