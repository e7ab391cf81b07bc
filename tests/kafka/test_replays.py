"""Replays of dead letters: their spout reads them once more, from the row that the letter has."""

from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from acker import Topology
from acker.kafka import KafkaRecord
from acker.kafka.failed.replays import GONE, Replays
from acker.kafka.intake import Intake, Read
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.filters import Filter
from acker.streams.reader import StreamReader
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.faults.set_backs import moment
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until


def replay(topology: Topology, most: int = 500) -> int:
    """Replays the dead letters of the topology, as `acker dead-letters replay` does; returns their number."""
    ledger = topology.ledger
    return len(ledger.run(dead_letters.replay_some(ledger.core, Filter(), limit=most)).anchors)


def bury(
    broker: Broker, topology: Topology, group: str, topic: str, values: list[bytes], attempts: int = 1
) -> None:
    """Makes dead letters of records."""
    bolt = topology.bolt("b")
    broker.produce(topic, values, key=b"k", headers=[("h", b"1")])
    with spout_of(broker, topology, topic, group, attempts=attempts) as spout:
        drive(
            spout,
            topology,
            lambda one: bolt.fail(one.tuple, "no", retry=False),
            lambda: done(spout, len(values)),
        )
    assert len(letters_of(topology)) == len(values)


def test_a_replayed_dead_letter_is_emitted_again_and_is_done_when_it_is_acked(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    bury(broker, topology, group, topic, [b"0", b"1"])
    assert replay(topology) == 2
    assert letters_of(topology) == []
    with spout_of(broker, topology, topic, group) as spout:
        records = drive(
            spout, topology, lambda one: bolt.ack(one.tuple), lambda: topology.counters()["acked"] == 2
        )
    assert sorted((one.message_id, one.key, one.value, one.attempt) for one in records) == [
        (f"{topic}/0@{n}", b"k", b"%d" % n, 1) for n in range(2)
    ]
    assert all(one.headers == [("h", b"1")] and one.message.timestamp()[1] for one in records)
    assert letters_of(topology) == []


def test_a_replay_that_fails_again_has_its_attempts_and_is_a_dead_letter_again(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    bury(broker, topology, group, topic, [b"bad"])
    assert replay(topology) == 1
    with spout_of(broker, topology, topic, group, attempts=1) as spout:
        drive(spout, topology, lambda one: bolt.fail(one.tuple, "again"), lambda: letters_of(topology))
    [letter] = letters_of(topology)
    assert (letter.reason, letter.row["value"]) == ("again", b"bad")


def test_a_replayed_record_goes_to_one_member_of_the_group(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, seen = broker.topic(), topology.bolt("b"), list[KafkaRecord]()
    bury(broker, topology, group, topic, [b"%d" % n for n in range(20)])
    assert replay(topology) == 20

    def work() -> bool:
        for spout in members:
            for record in spout.poll(0.02):
                seen.append(record)
                bolt.ack(record.tuple)
        topology.flush()
        return topology.counters()["acked"] == 20

    with ExitStack() as stack:
        members = [stack.enter_context(spout_of(broker, topology, topic, group)) for _ in range(2)]
        drive(members[0], topology, lambda record: None, work)
    assert sorted(int(one.value or b"") for one in seen) == list(range(20))


def test_rows_that_another_member_has_taken_meanwhile_are_left_to_it(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    bury(broker, topology, group, topic, [b"0", b"1"])
    assert replay(topology) == 2
    slow, quick = (Replays(topology.ledger, topology.owner, "s") for _ in range(2))
    take_over = slow._take_over

    def late(reader: StreamReader, rows: list[dict[str, Any]]) -> None:
        quick.look()
        take_over(reader, rows)

    monkeypatch.setattr(slow, "_take_over", late)
    slow.look()
    taken = quick.take(10)
    assert (len(slow.take(10)), len(taken)) == (0, 2)
    bolt.ack_many(taken.tuples)
    topology.flush()
    assert topology.counters()["acked"] == 2


def test_a_replay_that_the_store_has_again_is_not_acked_unread(
    broker: Broker, topology: Topology, group: str
) -> None:
    """A store that was set back has a row again that this member took over before."""
    topic, bolt, again = broker.topic(), topology.bolt("b"), list[bytes | None]()
    bury(broker, topology, group, topic, [b"0", b"1"])
    assert replay(topology, 1) == 1
    member = Replays(topology.ledger, topology.owner, "s")
    with Redis.from_url(topology.ledger.store.url) as server:
        before = moment(server)
        member.look()
        [lost] = member.take(10)
        server.flushdb()
        for key, (value, left) in before.items():
            server.restore(key, left, value)
    assert replay(topology, 1) == 1
    for _ in range(3):
        member.look()
        taken = member.take(10)
        again += [record.value for record in taken]
        bolt.ack_many(taken.tuples)
        topology.flush()
    assert lost.value in again
    assert (len(again), set(again)) == (2, {b"0", b"1"})
    assert topology.counters()["acked"] == 2


def test_a_replayed_record_whose_spout_dies_before_it_is_acked_comes_again(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    bury(broker, topology, group, topic, [b"0"], attempts=2)
    assert replay(topology) == 1
    held = list[KafkaRecord]()
    with spout_of(broker, topology, topic, group) as spout:
        drive(spout, topology, held.append, lambda: held)
    for _ in range(3):
        topology.tick(force=True)
    with spout_of(broker, topology, topic, group) as spout:
        records = drive(
            spout, topology, lambda one: bolt.ack(one.tuple), lambda: topology.counters()["acked"] == 1
        )
    assert [(one.value, one.attempt) for one in records] == [(b"0", 2)]
    assert letters_of(topology) == []


def test_a_dead_letter_without_a_row_is_not_replayed_and_says_so(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = real_broker.topic(), topology.bolt("b")
    real_broker.produce(topic, [b"0"])

    def fail(record: KafkaRecord) -> None:
        real_broker.delete_before(topic, 1)
        bolt.fail(record.tuple, "no")

    with spout_of(real_broker, topology, topic, group) as spout:
        drive(spout, topology, fail, lambda: letters_of(topology))
        assert replay(topology) == 1
        records = drive(spout, topology, fail, lambda: letters_of(topology))
    assert records == []
    assert [letter.reason for letter in letters_of(topology)] == [GONE]


def test_a_poll_that_gives_replays_takes_part_in_its_group_and_reads_on_after_them(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group would take its partitions away while it has many replays."""
    topic, bolt, stays, given = broker.topic(), topology.bolt("b"), list[int](), list[bytes | None]()
    bury(broker, topology, group, topic, [b"%d" % n for n in range(3)])
    assert replay(topology) == 3
    stay = Intake.stay

    def counted(intake: Intake) -> list[Read]:
        stays.append(len(given))
        return stay(intake)

    monkeypatch.setattr(Intake, "stay", counted)
    broker.produce(topic, [b"new"])
    with spout_of(broker, topology, topic, group) as spout:

        def one_by_one() -> bool:
            for record in spout.poll(0.05, 1):
                given.append(record.value)
                bolt.ack(record.tuple)
            topology.flush()
            return len(given) == 4

        wait_until(one_by_one)
        assert set(range(3)) <= set(stays), "in each poll that gave one"
        drive(spout, topology, lambda one: None, lambda: done(spout, 4))
    assert sorted(value or b"" for value in given) == [b"0", b"1", b"2", b"new"]
