"""Members of a group with one spout name: each hears of its own records, and people see one spout."""

from contextlib import ExitStack
from itertools import count, islice

import pytest

from acker import Topology
from acker.errors import SpoutsFull, ValidationError
from acker.inspect.topology.totals import totals
from acker.inspect.trees.failures import page
from acker.kafka import KafkaRecord, KafkaSpout
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes import members
from acker.ledger.outcomes.members import Membership, claim, leave
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.outcomes.unread import confirm_unread
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.operation import command
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import after_each
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

PARTITIONS, EACH = 4, 5


def filled(broker: Broker) -> str:
    """A topic with records in each of its partitions."""
    topic = broker.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        broker.produce(topic, [b"%d" % n for n in range(EACH)], partition=partition)
    return topic


def tracked(ledger: Ledger, count: int, member: str) -> Trees:
    """Trees that a member of a group has tracked: only its process may use that name."""
    trees = Trees(count)
    ledger.register_spout(member)
    slab = NewSlab(trees.anchors, trees.values, trees.message_ids)
    assert ledger.send(ledger.core.track([slab], member)) == ["A"]
    return trees


def joined(first: KafkaSpout, second: KafkaSpout) -> dict[str, list[KafkaRecord]]:
    """The records of two members that share the partitions, all of them in flight."""
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}

    def shared() -> bool:
        for name, spout in (("first", first), ("second", second)):
            got[name] += spout.poll(0.02)
        return len(first.offsets) == len(second.offsets) == 2 and first.pending == second.pending == 2 * EACH

    wait_until(shared)
    return got


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with records."""
    return filled(broker)


def test_each_member_of_a_group_hears_of_its_own_records(
    broker: Broker, topology: Topology, group: str, topic: str
) -> None:
    bolt = topology.bolt("b")
    with (
        spout_of(broker, topology, topic, group) as first,
        spout_of(broker, topology, topic, group) as second,
    ):
        got = joined(first, second)
        for record in got["first"] + got["second"]:
            bolt.fail(record.tuple, "once") if record.message.offset() == 0 else bolt.ack(record.tuple)
        topology.flush()
        again = drive(first, topology, lambda one: bolt.ack(one.tuple), lambda: done(first, 2 * EACH))
        assert second.pending == 2 * EACH, "the outcomes of the second member wait for it"
        again += drive(second, topology, lambda one: bolt.ack(one.tuple), lambda: done(second, 2 * EACH))
    assert [(record.message.offset(), record.attempt) for record in again] == [(0, 2)] * PARTITIONS


def test_a_name_without_room_for_the_number_of_a_member_is_refused_at_once(topology: Topology) -> None:
    Membership.of("k" * 54, 1.0)
    with pytest.raises(ValidationError, match=r"with \.member- and a number"):
        Membership.of("k" * 55, 1.0)


def test_people_see_one_spout(broker: Broker, topology: Topology, group: str, topic: str) -> None:
    bolt, ledger = topology.bolt("b"), topology.ledger
    with (
        spout_of(broker, topology, topic, group, backoff=60.0) as first,
        spout_of(broker, topology, topic, group, backoff=60.0) as second,
    ):
        got = joined(first, second)
        for records in got.values():
            trees = [topology.tree(record.tuple.anchors[0]) for record in records]
            assert {tree.spout for tree in trees if tree is not None} == {"s"}
            bolt.fail(records[-1].tuple, "no")
        topology.flush()
        found = ledger.run(page(ledger.core, spout="s"))
        assert [(one.spout, one.cause.reason) for one in found.trees] == [("s", "no")] * 2
        ledger.run(ledger.core.refresh_spouts())
        assert ledger.core.spouts - {"s.failed"} == {"s"}


def test_the_outcomes_of_a_member_that_is_gone_take_no_room(
    broker: Broker, topology: Topology, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bolt, ledger = topology.bolt("b"), topology.ledger
    monkeypatch.setattr("acker.kafka.members.EVERY", 0.0)
    with spout_of(broker, topology, topic, group) as first, ExitStack() as stack:
        second = stack.enter_context(spout_of(broker, topology, topic, group))
        got = joined(first, second)
        stack.close()
        for record in got["first"] + got["second"]:
            bolt.ack(record.tuple)
        drive(
            first, topology, lambda one: bolt.ack(one.tuple), lambda: done(first, PARTITIONS * EACH)
        )  # its records come again
        drive(first, topology, lambda one: None, lambda: not ledger.run(totals(ledger.core)).outstanding)
    topology.remove_spout("s")


def test_a_member_whose_place_another_process_took_tries_its_records_again(
    broker: Broker, topology: Topology, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped for longer than it may be silent, and woke up before its group noticed."""
    bolt = topology.bolt("b")
    with spout_of(broker, topology, topic, group) as first:
        held = drive(first, topology, lambda one: None, lambda: first.pending == PARTITIONS * EACH)
        for record in held[:3]:
            bolt.ack(record.tuple)
        drive(first, topology, lambda one: None, lambda: first.pending == PARTITIONS * EACH - 3)
        topology.ledger.run(leave(topology.ledger.core, first._member._place))
        other = Membership.of("s", 60.0)
        topology.ledger.run(claim(topology.ledger.core, other))
        assert other.name == "s"
        monkeypatch.setattr("acker.kafka.members.EVERY", 0.0)
        records = drive(
            first, topology, lambda one: bolt.ack(one.tuple), lambda: done(first, PARTITIONS * EACH)
        )
    ids = [(one.message.partition(), one.message.offset()) for one in records]
    assert (len(ids), len(set(ids))) == (PARTITIONS * EACH - 3,) * 2
    assert {one.attempt for one in records} == {1}


def test_places_are_few_and_go_to_the_next_process(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MOST_MEMBERS", 3)
    ledger = topology.ledger

    def new(ttl: float = 60.0) -> Membership:
        member = Membership.of("s", ttl)
        ledger.run(claim(ledger.core, member))
        return member

    first, second, third = new(), new(), new()
    assert [one.name for one in (first, second, third)] == ["s", "s.member-2", "s.member-3"]
    with pytest.raises(SpoutsFull, match="has 3 members, its most"):
        new()
    assert not ledger.run(claim(ledger.core, second)), "it keeps its place"
    ledger.run(leave(ledger.core, second))
    assert new(ttl=0.0).place == 2
    assert new().place == 2, "the one before has not said a word in time"
    assert not ledger.run(claim(ledger.core, first))
    monkeypatch.setattr(members, "SILENT", 0.0)
    assert new().place == 3, "all are held: the longest silent one loses its place"
    assert ledger.run(claim(ledger.core, third)), "and takes another one"


def test_members_that_come_in_one_millisecond_are_told_apart(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests go together: the server mostly has one time for them."""
    monkeypatch.setattr(members, "MOST_MEMBERS", 2)
    monkeypatch.setattr(members, "SILENT", 0.0)
    core = topology.ledger.core
    gone = [members._request(core, Membership.of("a", 0.0), 0.0) for _ in range(20)]
    runs = [run for _, run, *_ in topology.ledger.store.send(gone)]
    assert runs == sorted(set(runs)), "each is a run of its own"
    places = set[tuple[int, ...]]()
    for number in range(20):
        three = [members._request(core, Membership.of(f"b-{number}", 60.0), 60.0) for _ in range(3)]
        places.add(tuple(place for place, *_ in topology.ledger.store.send(three)))
    # The first place goes where a millisecond has passed since.
    assert (1, 2, 2) in places
    assert places <= {(1, 2, 2), (1, 2, 1)}


def test_outcomes_of_a_process_that_takes_a_place_meanwhile_are_not_confirmed(topology: Topology) -> None:
    """The lowest member pauses after each of its exchanges in turn, and the place of a gone one is taken."""
    ledger, slabs = topology.ledger, set[bytes]()
    for after in count(1):
        lowest, gone, new = (Membership.of(f"s-{after}", ttl) for ttl in (60.0, 0.0, 60.0))
        for member in (lowest, gone):
            ledger.run(claim(ledger.core, member))
        tracked(ledger, 3, gone.name).complete(ledger)
        claiming = after_each(ledger, claim(ledger.core, lowest))
        stopped = len(list(islice(claiming, after))) == after
        ledger.run(claim(ledger.core, new))
        assert new.name == gone.name
        trees = tracked(ledger, 4, new.name)
        trees.complete(ledger)
        list(claiming)
        entries = ledger.outcomes(OutcomeReader(ledger.core, new.name))
        slabs = {slab.slab for entry in entries for slab in entry.slabs}
        assert ids.slab_of(int(trees.anchors[0])) in slabs, after
        if not stopped:
            break
    assert len(slabs) == 1, "the outcomes of the one that is gone were confirmed"
    assert after > 3


def test_a_member_that_was_silent_for_too_long_hears_so_with_its_place(topology: Topology) -> None:
    """The member with the lowest place may have confirmed its outcomes."""
    ledger, member, late = topology.ledger, Membership.of("s", 60.0), Membership.of("s", 0.0)
    for each in (member, late):
        ledger.run(claim(ledger.core, each))
    assert not ledger.run(claim(ledger.core, member))
    assert ledger.run(claim(ledger.core, late))
    assert late.place == 2


def test_a_process_that_has_lost_its_place_gives_none_back(topology: Topology) -> None:
    ledger, late, new = topology.ledger, Membership.of("s", 0.0), Membership.of("s", 60.0)
    for each in (late, new):
        ledger.run(claim(ledger.core, each))
    ledger.run(leave(ledger.core, late))
    [places] = ledger.store.send([command("HKEYS", keys.Spout("t", "s").members)])
    assert set(places) == {b"run", b"1"}


def test_an_outcome_that_was_lost_counts_no_attempt_until_it_is_lost_again_and_again(
    broker: Broker, valkey_url: str, group: str
) -> None:
    topic, statuses = broker.topic(), list[int]()
    broker.produce(topic, [b"0"])
    with Topology(valkey_url, "t", message_timeout=1.0) as topology:
        bolt, ledger = topology.bolt("b"), topology.ledger

        def lose(record: KafkaRecord) -> None:
            """It is acked, and a process that was paused takes the outcome."""
            statuses.append(record.attempt)
            bolt.ack(record.tuple)
            topology.flush()
            assert ledger.run(confirm_unread(ledger.core, "s")) == 1

        with spout_of(broker, topology, topic, group, attempts=1) as spout:
            drive(spout, topology, lose, lambda: done(spout, 1))
        assert statuses == [1, 1]
        assert ["lost the tree" in letter.reason for letter in letters_of(topology)] == [True]


def test_a_run_ends_when_no_member_is_left(topology: Topology) -> None:
    ledger, runs = topology.ledger, list[int]()

    def new() -> Membership:
        member = Membership.of("s", 60.0)
        ledger.run(claim(ledger.core, member))
        runs.append(member.run)
        return member

    first, second = new(), new()
    ledger.run(leave(ledger.core, first))
    third = new()
    ledger.run(leave(ledger.core, second))
    ledger.run(leave(ledger.core, third))
    fourth = new()
    assert fourth.run > runs[0]
    assert runs[:3] == [runs[0]] * 3
