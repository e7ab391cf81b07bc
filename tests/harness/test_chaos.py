"""The fault suite itself: plans repeat, each kind of violation is found, and a short run loses nothing."""

import json
import random
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from acker.errors import ValidationError
from harness.chaos.network import Copies, commands
from harness.chaos.plan import KINDS, Fault, Store, plan
from harness.chaos.records import (
    FAILURES,
    FALSE_ACK,
    OTHER_TREE,
    POISON,
    REPORTED_AGAIN,
    TWO_OUTCOMES,
    UNKNOWN,
    Oddity,
    Record,
    Records,
    Reported,
    Tree,
    line_of,
    words,
)
from harness.chaos.report import Done, Report, stand_stills
from harness.chaos.verdict import Collected, judge
from tests.helpers.faces.demo_run import Run
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

# Plans


def test_a_seed_repeats_its_plan() -> None:
    assert plan(7, 5.0) == plan(7, 5.0)
    assert plan(7, 5.0) != plan(8, 5.0)
    assert plan(7, 5.0, "cluster") != plan(7, 5.0)


@pytest.mark.parametrize("store", ["server", "cluster"])
def test_a_plan_has_all_kinds_of_its_store_in_order_and_in_time(store: Store) -> None:
    faults = plan(3, 10.0, store, every=2.0)
    assert {fault.kind for fault in faults} == {name for name, kind in KINDS.items() if store in kind.stores}
    some = plan(3, 10.0, store, every=2.0, server="redis")
    assert {fault.kind for fault in faults} - {fault.kind for fault in some} <= {"server's clock steps"}
    few = plan(3, 10.0, store, every=2.0, only=["spout killed", "poison"])
    assert {fault.kind for fault in few} == {"spout killed", "poison"}
    assert 250 <= len(faults) <= 350
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 < fault.at < 600 for fault in faults)
    for fault in faults:
        kind = KINDS[fault.kind]
        assert kind.low <= fault.duration <= kind.high
        assert fault.choose(3) in (0, 1, 2)
    assert {fault.choose(3) for fault in faults} == {0, 1, 2}


def test_a_longer_plan_begins_as_the_shorter_one() -> None:
    assert plan(1, 20.0)[: len(plan(1, 5.0))] == plan(1, 5.0)


@pytest.mark.parametrize("only", [["Tuesdays"], ["server's clock steps"]])
def test_a_plan_of_what_the_store_cannot_have_is_refused(only: list[str]) -> None:
    with pytest.raises(ValidationError, match="only: "):
        plan(1, 1.0, "cluster", only=only)


@pytest.mark.parametrize(("minutes", "every"), [(0.0, 3.0), (20_000.0, 3.0), (1.0, 0.0), (1.0, 4000.0)])
def test_a_plan_without_bounds_is_refused(minutes: float, every: float) -> None:
    with pytest.raises(ValidationError, match="expected"):
        plan(1, minutes, every=every)


# Records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    made = Records(tmp_path / "records.db")
    yield made
    made.close()


def reported(name: str, status: str, *, ledger: bool = True) -> Reported:
    return Reported(name, status, "a reason", ledger)


def states(records: Records) -> list[tuple[int, str, int]]:
    return [(one.number, one.state, one.attempt) for one in records.records()]


def test_a_record_is_tried_again_until_it_is_acked_or_has_failed_so_often(records: Records) -> None:
    records.wish(POISON)
    records.add(2)
    assert [words(one.line)[-1] == POISON for one in records.records()] == [True, False]
    for attempt in range(1, FAILURES + 1):
        emitted = records.emit(10, 10, life=1)
        assert [(name, number) for name, _, number in emitted] == [
            (f"{record}/{attempt}", attempt) for record in (1, 2)
        ]
        records.tell([reported(f"1/{attempt}", "failed"), reported(f"2/{attempt}", "expired")], 1)
    assert states(records) == [(1, "dead", FAILURES), (2, "waiting", FAILURES)]
    records.emit(10, 10, life=1)
    records.tell([reported(f"2/{FAILURES + 1}", "acked")], 1)
    assert records.states() == {"dead": 1, "acked": 1}
    assert not records.oddities()


def test_as_many_records_are_in_flight_as_may_be(records: Records) -> None:
    records.add(10)
    assert len(records.emit(3, 5, life=1)) == 3
    assert len(records.emit(3, 5, life=1)) == 2
    assert not records.emit(3, 5, life=1)


def test_what_a_late_outcome_of_an_earlier_attempt_says_changes_nothing(records: Records) -> None:
    records.add(1)
    records.emit(1, 1, life=1)
    assert records.silent(life=2, before=float("inf")) == ["1/1"]
    assert not records.silent(life=1, before=float("inf"))
    records.tell([reported("1/1", "expired", ledger=False)], 1)
    records.emit(1, 1, life=2)
    records.tell([reported("1/1", "failed")], 2)
    assert states(records) == [(1, "flying", 2)]
    assert not records.oddities()


def test_outcomes_that_contradict_each_other_or_are_of_nothing_are_noted(records: Records) -> None:
    records.add(1)
    records.emit(1, 1, life=1)
    records.tell([reported("1/1", "acked"), reported("1/1", "expired"), reported("9/1", "acked")], 1)
    assert [(one.kind, one.what) for one in records.oddities()] == [
        (TWO_OUTCOMES, "1/1: acked, expired"),
        (UNKNOWN, "9/1 acked"),
    ]
    assert records.oddities()[0].since is not None


def test_an_outcome_that_comes_again_in_one_life_is_noted(records: Records) -> None:
    records.add(1)
    records.emit(1, 1, life=1)
    records.tell([reported("1/1", "expired", ledger=False)], 1)
    records.tell([reported("1/1", "acked")], 1)
    assert not records.oddities()
    records.tell([reported("1/1", "acked")], 2)  # it was not confirmed in the life before
    assert not records.oddities()
    records.tell([reported("1/1", "acked")], 2)
    assert [(one.kind, one.what) for one in records.oddities()] == [(REPORTED_AGAIN, "1/1: acked")]
    assert records.oddities()[0].since is not None


def test_an_outcome_of_another_tree_than_the_one_tracked_is_noted(records: Records) -> None:
    records.add(2)
    records.emit(2, 2, life=1)
    records.track({"1/1": -(2**63) + 1, "2/1": 5})
    assert records.flying(1) == ["1/1"]
    records.tell([Reported("1/1", "acked", "", ledger=True, anchor=-(2**63) + 1)], 1)
    assert not records.oddities()
    records.tell([Reported("2/1", "acked", "", ledger=True, anchor=7)], 1)
    assert [(one.kind, one.what) for one in records.oddities()] == [(OTHER_TREE, "2/1: 7, not 5")]


# The verdict


def good() -> Collected:
    """The end of a run that lost nothing: one record acked at its second attempt, one poisoned."""
    first, second = line_of(1), line_of(2, POISON)
    return Collected(
        records=[Record(1, first, "acked", 2, ""), Record(2, second, "dead", 1, "poison")],
        trees=[
            Tree("1/1", 1, 90.0, 130.0, "expired", ""),
            Tree("1/2", 1, 130.0, 131.0, "acked", "acked"),
            Tree("2/1", 2, 90.0, 91.0, "failed", "failed"),
        ],
        sink={"1/2": list(enumerate(words(first))), "2/1": list(enumerate(words(second)))[:-1]},
        oddities=[],
        counters={"tracked": 3, "acked": 1, "failed": 1, "expired": 1, "rotations": 7},
        pending=0,
        outstanding=0,
        service={"tracked": 3, "acked": 1, "failed": 1, "expired": 1, "rotations": 8},
        calm=100.0,
        message_timeout=15.0,
    )


def test_a_run_that_lost_nothing_has_no_problem() -> None:
    assert judge(good()) == []


RECORDS, TREES = good().records, good().trees
TWICE = Oddity(TWO_OUTCOMES, "1/2: acked, expired", since=50.0, at=60.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"records": [], "trees": [], "sink": {}}, "there was no record"),
        ({"records": [RECORDS[0]._replace(state="flying"), RECORDS[1]]}, "no final outcome: 1 (flying)"),
        ({"trees": [TREES[0], TREES[2]], "sink": {}}, "records are acked, and no tree of theirs is: 1"),
        ({"records": [RECORDS[0], RECORDS[1]._replace(reason="")]}, "dead without a reason: 2"),
        ({"records": [RECORDS[0]._replace(state="dead", reason="x"), RECORDS[1]]}, "should not fail: 1 (x)"),
        ({"records": [RECORDS[0], RECORDS[1]._replace(state="acked")]}, "always fail are acked: 2"),
        ({"sink": {}}, "trees are acked without all of their words in the sink: 1/2"),
        ({"sink": {"1/2": [(0, "r1x0")]}}, "trees are acked without all of their words in the sink: 1/2"),
        (
            {"trees": [TREES[0]._replace(ledger="acked"), *TREES[1:]]},
            "trees are acked without all of their words in the sink: 1/1",
        ),
        ({"sink": {**good().sink, "7/1": [(0, "r7x0")]}}, "words in the sink are of no record: 7/1"),
        ({"sink": {**good().sink, "1/1": [(0, "r2x0")]}}, "words in the sink are of no record: 1/1"),
        ({"sink": {**good().sink, "1/1": [(9, "r1x0")]}}, "words in the sink are of no record: 1/1"),
        ({"trees": [TREES[0]._replace(reported=None), *TREES[1:]]}, "trees have no outcome: 1/1"),
        (
            {"trees": [TREES[0]._replace(reported=136.0), *TREES[1:]]},
            "within 35 s after the faults: 1/1 (36.0 s)",
        ),
        ({"oddities": [Oddity(FALSE_ACK, "1/2: nothing", None, 5.0)]}, "false ack: 1/2: nothing"),
        ({"oddities": [Oddity(OTHER_TREE, "1/2: 5, not 3", None, 5.0)]}, "of another tree: 1/2: 5, not 3"),
        ({"oddities": [Oddity(UNKNOWN, "9/9", None, 5.0)]}, "unknown outcome: 9/9"),
        ({"oddities": [TWICE]}, "two outcomes: 1/2: acked, expired"),
        ({"oddities": [TWICE], "rollbacks": [(10.0, 49.0), (61.0, 70.0)]}, "two outcomes"),
        ({"counters": {**good().counters, "tracked": 4}}, "the counters do not add up: 4 tracked, 3 ended"),
        ({"pending": 1, "outstanding": 1}, "1 trees are stuck in the ledger"),
        ({"outstanding": 2}, "2 outcomes are not confirmed"),
        ({"outstanding": -2}, "2 trees more were confirmed than were tracked"),
        ({"trees": [TREES[0]._replace(status="failed"), *TREES[1:]]}, "trees failed that should not: 1/1"),
        ({"trees": [TREES[0]._replace(ledger="failed"), *TREES[1:]]}, "trees failed that should not: 1/1"),
        ({"oddities": [TWICE._replace(kind=REPORTED_AGAIN)]}, "outcome reported again in one life"),
        ({"service": None}, "the service does not answer"),
        ({"service": {**good().counters, "acked": 2}}, "the service tells other counters: acked"),
        ({"service": {**good().counters, "rotations": 6}}, "the service tells other counters: rotations"),
        ({"left": ["b'acker:{chaos:0/1}:ack' is left"]}, "1 keys are left: b'acker:{chaos:0/1}:ack' is left"),
        ({"died": {"source": 1}}, "the source ended by itself 1 times"),
    ],
)
def test_each_violation_is_found(changes: dict[str, object], problem: str) -> None:
    problems = judge(replace(good(), **changes))  # type: ignore[arg-type]
    assert any(problem in one for one in problems), problems


def test_a_store_that_lost_what_it_reported_may_tell_something_else() -> None:
    assert judge(replace(good(), oddities=[TWICE], rollbacks=[(55.0, 56.0)])) == []
    assert judge(replace(good(), oddities=[TWICE], rollbacks=[(40.0, 52.0)])) == []


# The network


def test_commands_are_cut_where_they_end() -> None:
    first, second = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n", b"*1\r\n$4\r\nPING\r\n"
    for cut in range(len(first + second)):
        whole, rest = commands((first + second)[:cut])
        assert b"".join(whole) + rest == (first + second)[:cut]
        assert whole == ([first] if cut >= len(first) else [])
    assert commands(first + second) == ([first, second], b"")
    with pytest.raises(ValueError, match="expected"):
        commands(b"PING\r\n")


def test_script_calls_are_delivered_again_to_a_real_server(new_server: NewServer) -> None:
    server, copies = new_server(append_only=False), Copies()
    with redis.Redis.from_url(server.url) as client, socket.socket() as connection:
        digest = client.script_load("return redis.call('INCR', KEYS[1])")
        call = b"*4\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$1\r\nn\r\n" % digest.encode()
        for piece in (b"*1\r\n$4\r\nPING\r\n" + call[:20], call[20:] + call):
            copies(connection, piece)
        assert copies.deliver(server.port, random.Random(1)) == 2
        assert wait_until(lambda: client.get("n")) == b"2"
        assert copies.deliver(server.port, random.Random(1)) == 0


# The report


def test_a_report_counts_what_took_effect_by_kind() -> None:
    faults = [Done(Fault("poison", at, 0.0, 0), at, at, took=at < 3) for at in (1.0, 2.0, 3.0)]
    report = Report(
        seed=1, minutes=1.0, store="server", kind="valkey", message_timeout=15.0, seconds=60.0, records=10,
        acked=9, dead=1, trees=12, expired=1, failed=1, counters={}, restarts={}, died={}, harmed=50.0,
        still=10.0, longest_still=8.25, problems=[], done=faults,
    )  # fmt: skip
    assert report.took == 2
    assert "| poison | 2 | 1 |" in report.table()
    assert "in 20% of the time, the longest 8.2 s" in report.table()
    assert "nothing lost" in report.table()
    assert "- two" in replace(report, problems=["one", "two"]).table()
    assert json.loads(json.dumps(report.dump()))["took"] == 2


def test_a_pipeline_stands_still_where_no_record_is_acked_for_long() -> None:
    assert stand_stills([3.0, 99.0, 14.0, 12.0, 18.5, 19.0], began=10.0, over=30.0) == [11.0]
    assert stand_stills([], began=10.0, over=30.0) == [20.0]
    assert stand_stills([11.0], began=10.0, over=12.0) == []


# A short run


class Chaos(Run):
    """`python -m harness.chaos` as a process."""

    command = (sys.executable, "-m", "harness.chaos")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_a_short_run_loses_nothing_and_leaves_nothing(tmp_path: Path, java_home: Path) -> None:
    reported = tmp_path / "report.json"
    run = Chaos(
        tmp_path, "--seed", "144", "--minutes", "0.4", "--every", "1.2", "--json", str(reported),
    )  # fmt: skip
    report = run.report(reported)
    assert report["problems"] == []
    assert report["took"] == len(plan(144, 0.4, "server", 1.2)) >= 20, report["done"]
    assert report["records"] == report["acked"] + report["dead"] > 100
    run.assert_nothing_is_left()
