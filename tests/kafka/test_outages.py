"""A store that is away, or full of dead letters: records wait, and none is lost."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.errors import DeadLettersFull, KafkaFailed, StoreUnavailable
from acker.kafka import KafkaRecord, KafkaSpout
from acker.kafka.failed import dead_letters
from acker.kafka.intake import Intake, Read
from acker.kafka.partitions import committed_offsets
from acker.kafka.starts import Committed
from acker.ledger.settings import config
from acker.streams.dead_letters.dead_letters import replay_some
from acker.streams.dead_letters.filters import Filter
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(new_server: NewServer) -> EmbeddedServer:
    """A server of the test's own, which keeps what it has through a restart."""
    return new_server(append_only=True, options={"appendfsync": "always"})


def hasty(store: EmbeddedServer) -> Topology:
    """A topology that waits half a second for the store, opened when a busy machine holds that."""

    def opened() -> Topology | None:
        try:
            return Topology(store.url, "t", timeout=0.5)
        except StoreUnavailable:
            return None

    found = wait_until(opened)
    assert found is not None
    return found


@pytest.mark.parametrize("held", [0, 1])
def test_no_record_is_lost_while_the_store_is_away(
    broker: Broker, store: EmbeddedServer, group: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a record in flight further ones are read, and cannot be emitted; without, none is read."""
    monkeypatch.setattr("acker.kafka.members.EVERY", 0.0)
    topic, got, times = broker.topic(), list[KafkaRecord](), list[int]()
    with hasty(store) as topology:
        bolt = topology.bolt("b")
        with spout_of(broker, topology, topic, group) as spout:
            broker.produce(topic, [b"first"] * held)
            first = drive(spout, topology, lambda one: None, lambda: spout.offsets and spout.pending == held)
            store.stop()
            broker.produce(topic, [b"%d" % n for n in range(5)])

            def refused() -> bool:
                try:
                    got.extend(spout.poll(0.05))
                except StoreUnavailable:
                    times.append(spout.pending)
                return len(times) > 2 and (times[-1] == 6 or not held)

            wait_until(refused)
            assert got == []
            store.start()
            for record in first:
                bolt.ack(record.tuple)
            records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, held + 5))
        assert [record.value for record in records] == [b"%d" % n for n in range(5)]
    assert broker.committed(group, topic) == held + 5


def test_a_spout_takes_part_in_its_group_while_records_cannot_be_emitted(
    broker: Broker, store: EmbeddedServer, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group would take its partitions away after `max.poll.interval.ms`."""
    topic, refused, stays = broker.topic(), list[int](), list[int]()
    stay = Intake.stay

    def counted(intake: Intake) -> list[Read]:
        stays.append(1)
        return stay(intake)

    with (
        hasty(store) as topology,
        spout_of(broker, topology, topic, group) as spout,
    ):
        broker.produce(topic, [b"first"])
        drive(spout, topology, lambda one: None, lambda: spout.pending == 1)
        store.stop()
        broker.produce(topic, [b"second"])

        def refuse() -> bool:
            try:
                spout.poll(0.05)
            except StoreUnavailable:
                refused.append(spout.pending)
            return refused[-1:] == [2]

        wait_until(refuse)
        monkeypatch.setattr(Intake, "stay", counted)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                spout.poll(0.0)
        assert len(stays) == 3
        store.start()


def test_a_commit_while_the_store_is_away_has_the_time_that_has_passed_since_the_start(
    broker: Broker, store: EmbeddedServer, group: str
) -> None:
    """Without a time the next member would take it for a commit of an earlier run."""
    topic = broker.topic()
    broker.produce(topic, [b"0"])
    with hasty(store) as topology:
        bolt, started = topology.bolt("b"), round(time.time() * 1000) - 1
        spout = spout_of(broker, topology, topic, group, commit_every=3600.0)
        drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 1))
        store.stop()
        spout.close()
        ended = round(time.time() * 1000) + 1
        store.start()
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": group})
    [told] = committed_offsets(consumer, [TopicPartition(topic, 0)])
    consumer.close()
    committed = Committed.of(told.offset, told.metadata)
    assert committed is not None
    assert (committed.offset, started <= committed.at <= ended) == (1, True), committed


def test_unsent_records_beyond_max_spout_pending_are_emitted_in_parts(
    broker: Broker, topology: Topology, group: str
) -> None:
    """A partition that came while the store was away may bring further ones."""
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(5)])
    with spout_of(broker, topology, topic, group, max_spout_pending=2) as spout:
        for _ in range(3):
            wait_until(lambda: _read(spout))
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 5))
    assert {record.value for record in records} == {b"%d" % n for n in range(5)}


def _read(spout: KafkaSpout) -> bool:
    """Reads records that are not emitted."""
    before = len(spout._unsent)
    spout._unsent += spout._intake.read(2, 0.1)
    return len(spout._unsent) > before


def test_a_store_without_room_for_dead_letters_holds_the_prefix_back_until_it_has(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bolt, refused = broker.topic(), topology.bolt("b"), list[int]()
    broker.produce(topic, [b"bad", b"good"])

    def full(*_: object) -> None:
        refused.append(1)
        raise DeadLettersFull("the most")

    def handle(record: KafkaRecord) -> None:
        bolt.fail(record.tuple, "no", retry=False) if record.value == b"bad" else bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group) as spout:
        monkeypatch.setattr("acker.kafka.failed.failed_records._HELD_BACK", 0.01)
        with monkeypatch.context() as patch:
            patch.setattr(dead_letters, "bury", full)
            drive(spout, topology, handle, lambda: len(refused) > 2)
            assert spout.offsets[f"{topic}/0"] == 0
            assert spout.pending == 1
        drive(spout, topology, handle, lambda: done(spout, 2))
    assert [letter.reason for letter in letters_of(topology)] == ["no"]


def test_a_dead_letter_is_not_stored_again_with_each_try_while_there_is_no_room(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bolt, tries = broker.topic(), topology.bolt("b"), list[int]()
    real = dead_letters.bury

    def bury(*arguments: Any) -> None:
        tries.append(1)
        real(*arguments)

    def fail(record: KafkaRecord) -> None:
        bolt.fail(record.tuple, "no", retry=False)

    monkeypatch.setattr(dead_letters, "bury", bury)
    monkeypatch.setattr("acker.kafka.failed.failed_records._HELD_BACK", 0.01)
    with spout_of(broker, topology, topic, group) as spout:
        broker.produce(topic, [b"0"])
        drive(spout, topology, fail, lambda: done(spout, 1))
        with monkeypatch.context() as patch:
            patch.setattr(config, "DEAD_LETTERS", 1)
            broker.produce(topic, [b"1", b"2"])
            tries.clear()
            drive(spout, topology, fail, lambda: len(tries) > 4)
            assert (spout.pending, len(letters_of(topology))) == (2, 1)
        drive(spout, topology, fail, lambda: done(spout, 3) and len(letters_of(topology)) >= 3)
    letters = [letter.row["value"] for letter in letters_of(topology)]
    assert (len(letters), set(letters)) == (3, {b"0", b"1", b"2"})


def test_a_record_with_a_timestamp_beyond_all_years_is_a_dead_letter(
    broker: Broker, topology: Topology, group: str
) -> None:
    """A producer may take nanoseconds for milliseconds."""
    topic = broker.topic(message_timestamp_after_max_ms=str(2**63 - 1))
    bolt, again = topology.bolt("b"), list[KafkaRecord]()
    broker.produce(topic, [b"bad"], timestamp=1_700_000_000_000_000_000)
    with spout_of(broker, topology, topic, group) as spout:
        drive(spout, topology, lambda one: bolt.fail(one.tuple, "no", retry=False), lambda: done(spout, 1))
        [letter] = letters_of(topology)
        assert letter.row["value"] == b"bad"
        topology.ledger.run(replay_some(topology.ledger.core, Filter()))
        drive(spout, topology, again.append, lambda: again)
    assert [record.value for record in again] == [b"bad"]


def test_after_an_exception_in_a_poll_nothing_behind_its_records_is_committed(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer has moved on past records that nobody has: to read on would lose them."""
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(6)])
    spout = spout_of(broker, topology, topic, group)
    drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 6))
    broker.produce(topic, [b"6"])
    with monkeypatch.context() as patch:
        patch.setattr("acker.kafka.intake.marks_of", interrupted)
        wait_until(lambda: raises_interrupt(spout))
    broker.produce(topic, [b"7"])
    with pytest.raises(KafkaFailed, match=r"KeyboardInterrupt\. Close the spout"):
        spout.poll(0.05)
    spout.close()
    assert broker.committed(group, topic) == 6
    with spout_of(broker, topology, topic, group) as spout:
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 8))
    assert [record.value for record in records] == [b"6", b"7"]


def interrupted(_: object) -> int:
    raise KeyboardInterrupt


def raises_interrupt(spout: KafkaSpout) -> bool:
    try:
        spout.poll(0.05)
    except KeyboardInterrupt:
        return True
    return False


def test_a_paused_spout_holds_its_records_and_counts_no_attempt(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, core = broker.topic(), topology.bolt("b"), topology.ledger.core
    topology.ledger.register_spout("s")
    topology.pause_spout("s", by="ann")
    with spout_of(broker, topology, topic, group, attempts=1) as spout:
        broker.produce(topic, [b"first"])
        drive(spout, topology, lambda one: None, lambda: "s" in core.paused)
        broker.produce(topic, [b"%d" % n for n in range(5)])
        assert [spout.poll(0.05) for _ in range(5)] == [[]] * 5
        topology.resume_spout("s")
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 6))
    assert sorted(one.value or b"" for one in records) == [b"0", b"1", b"2", b"3", b"4", b"first"]
    assert letters_of(topology) == []
