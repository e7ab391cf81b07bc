"""Commits of steps in other languages, cut at a request and sent again with more, less or the same."""

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from acker import Topology, Tuple
from acker.collectors.external.remote import commits, rows, stamping
from acker.collectors.external.remote.commits import FailedRow, ReceivedRows, SentRows
from acker.collectors.external.remote.stamping import Stamped
from acker.errors import StoreUnavailable, StreamLost, TopologyInUse
from acker.streams.staging.external import rotating
from tests.helpers.builders.collectors import Make
from tests.helpers.faults.stepping import before_script

KEY = "the key of a commit"


def stamped(topology: Topology, *sources: Tuple, key: str = KEY) -> Stamped:
    """Stamps of a row for each of these tuples, whose stream has a subscription."""
    core = topology.ledger.core
    topology.ledger.run(rows.declare(core, "items", "count"))
    topology.flush()
    return topology.ledger.run(stamping.stamp(core, "items", [one.anchors for one in sources], key))


def commit(
    topology: Topology,
    key: str,
    text: str,
    received: Sequence[ReceivedRows] = (),
    sent: Sequence[SentRows] = (),
    acks: Sequence[Tuple] = (),
) -> list[str]:
    """Carries a commit out as the service does; returns the positions that no segment has."""
    core, run = topology.ledger.core, topology.ledger.run
    pairs = [pair for one in acks for pair in one.edges.items()]
    plan = run(commits.plan(core, key, text, received, sent, pairs))
    unknown = run(commits.unknown_positions(core, plan))
    if not unknown:
        run(commits.carry_out(core, plan))
    return unknown


def sent(stamps: Stamped, *positions: int) -> list[SentRows]:
    return [SentRows("items", [stamps.stamps[one] for one in positions], stamps.subscriptions)]


def test_vectors_that_another_commit_has_staged_are_not_emitted_under_its_name(
    make: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, step = make(), make()
    [tracked] = made.spout("s").emit("m")
    stamps = stamped(made, tracked, tracked)

    def die() -> None:
        raise StoreUnavailable("the server was killed")

    before_script(
        monkeypatch, "apply_staged", die, lambda: commit(made, KEY, "less", (), sent(stamps, 0), [tracked])
    )
    with redis.Redis.from_url(url) as raw:
        [record] = raw.keys("acker:{t}:idempotency_key:*")
        raw.delete(record)  # a node that was set back has lost it
    with pytest.raises(StreamLost):
        commit(made, KEY, "more", (), sent(stamps, 0, 1), [tracked])
    items = step.incoming("items", subscription="count")
    items.ack(items.read(stamps.stamps[:1]))
    step.flush()
    assert made.counters()["acked"] == 0
    commit(made, "another key", "all", (), sent(again := stamped(made, tracked, key="another key"), 0))
    assert items.read(again.stamps)[0].tracked


def test_a_key_is_remembered_as_long_as_its_commit_may_send_rows(make: Make, url: str) -> None:
    made = make(stamp_ttl=6 * 3600)
    [tracked] = made.spout("s").emit("m")
    stamps = stamped(made, tracked)
    commit(made, KEY, "it", (), sent(stamps, 0), [tracked])
    with redis.Redis.from_url(url) as raw:
        [record] = raw.keys("acker:{t}:idempotency_key:*")
        assert raw.ttl(record) > 6 * 3600 - 60


def test_a_fail_of_a_row_that_its_sender_has_left_out_takes_no_effect(make: Make) -> None:
    made, step = make(ackers=1), make()
    tuples = [made.spout("s").emit(f"m{number}")[0] for number in range(3)]
    stamps = stamped(made, *tuples)
    commit(made, KEY, "it", (), sent(stamps, 1), tuples[1:2])
    items = step.incoming("items", subscription="count")
    void, real, beyond = items.read(stamps.stamps)
    items.fail([void, beyond], "bad")
    items.ack(real)
    step.flush()
    assert [made.counters()[one] for one in ("acked", "failed")] == [1, 0]


def test_an_early_fail_of_a_row_that_its_sender_leaves_out_takes_no_effect(make: Make) -> None:
    made, step = make(ackers=1), make()
    tuples = [made.spout("s").emit(f"m{number}")[0] for number in range(3)]
    stamps = stamped(made, *tuples)
    items = step.incoming("items", subscription="count")
    void, real, beyond = items.read(stamps.stamps)
    items.fail([void, beyond], "bad")
    items.ack(real)
    step.flush()
    commit(made, KEY, "it", (), sent(stamps, 1), tuples[1:2])
    assert [made.counters()[one] for one in ("acked", "failed")] == [1, 0]


@pytest.mark.parametrize("early", [True, False])
def test_rows_that_their_sender_has_left_out_may_be_acked_and_failed(make: Make, early: bool) -> None:
    made = make(ackers=1)
    tuples = [made.spout("s").emit(f"m{number}")[0] for number in range(4)]
    stamps = stamped(made, *tuples)
    if not early:
        commit(made, KEY, "it", (), sent(stamps, 0, 1), tuples[:2])
    read = made.ledger.run(rows.read(made.ledger.core, "items", "count", stamps.stamps))
    assert [row.state for row in read] == ["tracked"] * 4
    if early:
        commit(made, KEY, "it", (), sent(stamps, 0, 1), tuples[:2])
    name = read[0].segment
    done = ReceivedRows("items", "count", [(name, [(0, 2)])], [FailedRow(name, str(stamps.stamps[3]), "bad")])
    beyond = ReceivedRows("items", "count", [(name, [(0, 4)])])
    assert "has 2 rows, got position 4" in commit(made, "a", "beyond", [beyond])[0]
    for _ in range(2):
        assert not commit(made, "b", "done", [done])
    assert [made.counters()[one] for one in ("acked", "failed")] == [2, 0]


def test_a_commit_that_took_effect_before_its_segment_was_sent_does_so_again(make: Make) -> None:
    made = make(ackers=1)
    tuples = [made.spout("s").emit(f"m{number}")[0] for number in range(2)]
    stamps = stamped(made, *tuples)
    read = made.ledger.run(rows.read(made.ledger.core, "items", "count", stamps.stamps))
    done = ReceivedRows("items", "count", [(read[0].segment, [(1, 5)])])
    assert not commit(made, "a", "done", [done])
    commit(made, KEY, "it", (), sent(stamps, 0, 1), tuples)
    assert not commit(made, "a", "done", [done])
    assert commit(made, "b", "done", [done])
    assert not commit(made, "c", "rest", [ReceivedRows("items", "count", [(read[0].segment, [(0, 0)])])])
    assert made.counters()["acked"] == 2


def test_a_commit_goes_on_though_a_number_of_rows_cannot_be_read(make: Make, raw: Any) -> None:
    made = make(ackers=1)
    [tracked] = made.spout("s").emit("m")
    stamps = stamped(made, tracked)
    commit(made, KEY, "it", (), sent(stamps, 0), [tracked])
    [row] = made.ledger.run(rows.read(made.ledger.core, "items", "count", stamps.stamps))
    for key in raw.scan_iter("acker:{t:*:staged:*"):
        if raw.hexists(key, "rows"):
            raw.hset(key, "rows", "1")
    assert not commit(made, "a", "done", [ReceivedRows("items", "count", [(row.segment, [(0, 1)])])])
    assert made.counters()["acked"] == 0


def test_a_rotation_is_refused_while_rows_of_the_key_before_are_open(make: Make) -> None:
    made = make()
    core, run = made.ledger.core, made.ledger.run
    [tracked] = made.spout("s").emit("m")
    stamps = stamped(made, tracked)
    run(rotating.rotate(core))
    commit(made, KEY, "it", (), sent(stamps, 0), [tracked])
    with pytest.raises(TopologyInUse, match="items 1"):
        run(rotating.rotate(core))
    [row] = run(rows.read(core, "items", "count", stamps.stamps))
    assert row.state == "tracked"
    commit(made, "another", "done", [ReceivedRows("items", "count", [(row.segment, [(0, 0)])])])
    assert made.counters()["acked"] == 1


def test_a_commit_sends_rows_of_both_keys(make: Make) -> None:
    made = make()
    core, run = made.ledger.core, made.ledger.run
    tuples = [made.spout("s").emit(f"m{number}")[0] for number in range(2)]
    before = stamped(made, tuples[0])
    run(rotating.rotate(core))
    after = stamped(made, tuples[1])
    rows_sent = SentRows("items", [*before.stamps, *after.stamps], after.subscriptions)
    commit(made, KEY, "it", (), [rows_sent], tuples)
    found = run(rows.read(core, "items", "count", [*before.stamps, *after.stamps]))
    acked = [(row.segment, [(row.position, row.position)]) for row in found]
    assert made.counters()["acked"] == 0
    commit(made, "another", "done", [ReceivedRows("items", "count", acked)])
    assert made.counters()["acked"] == 2
