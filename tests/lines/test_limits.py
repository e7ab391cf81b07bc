"""Streams that gather keep to their limits: requests that have rows in what is dropped fail, and say why."""

import re

import pytest
import redis

from acker.errors import AckerError
from acker.inspect.lines.overview import overview
from acker.inspect.locate.drops import drops
from acker.inspect.trees import failures
from acker.ledger import ids as ledger_ids
from acker.ledger.client import open_ledger
from acker.ledger.slabs import sections
from acker.ledger.tick import tick
from acker.lines import coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import Stream
from acker.streams.log.stream_totals import stream_totals
from acker.streams.sources.roots import Roots
from acker.streams.spouts import settler
from acker.streams.staging import vectors
from acker.streams.upkeep import gathered, removal, retention
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import run_cut
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import wait_until


@pytest.fixture
def job(valkey_url: str) -> Job:
    return Job(open_ledger(Store(valkey_url), "t", ackers=2), group=1)


def reasons(job: Job, roots: Roots) -> list[str]:
    """The reasons for which the last trees of requests failed."""
    found = [
        job.ledger.run(failures.find(job.ledger.core, int(anchor)))
        for anchor in roots.anchors(roots.sections)
    ]
    return [one.cause.reason for one in found if one is not None]


def end(job: Job, raw: "redis.Redis") -> None:
    """All goes on to its end; then nothing is left."""
    job.work()
    settler.settle(job.ledger)
    for _ in range(3):
        job.ledger.run(tick.tick(job.ledger.core, force=True))
    job.work()
    for stream in ("asks", "rows", "counts"):
        for name in ("fan", "count", "add"):
            try:
                job.ledger.run(retention.unsubscribe(job.ledger.core, stream, name))
            except AckerError:
                continue
    for name in raw.scan_iter(match="*dead*"):
        raw.delete(name, name.replace(b"dead", b"letters"))
    assert_settled(raw)
    [gather, other] = job.ledger.run(overview(job.ledger.core))[0].gathers
    assert (gather.rows, gather.groups, other.rows, other.groups) == (0, 0, 0, 0)
    for totals in job.ledger.run(stream_totals(job.ledger.core)):
        assert (totals.segments, totals.bytes) == (0, 0), totals.name


def test_rows_over_the_size_of_their_stream_fail(job: Job, valkey_raw: "redis.Redis") -> None:
    early = job.ask(3, 3)
    job.workers["fan"].work()
    late = job.ask(1, name="late")
    rows = Stream(job.ledger, "rows")
    rows.limit(max_bytes=1)
    job.workers["fan"].work()
    totals = rows.totals()
    assert (totals.segments, totals.dropped) == (1, 4)
    assert [(one.stream, one.segments, one.why) for one in job.ledger.run(drops(job.ledger.core))] == [
        ("rows", 4, "over max_bytes")
    ]
    rows.limit(max_bytes=1 << 30)
    job.work()
    assert job.sums == [1]
    assert settler.settle(job.ledger).dead == 2
    said = reasons(job, early)
    assert len(said) == 2
    assert all("stream rows dropped rows of the request: over max_bytes (1 bytes)" in one for one in said)
    assert reasons(job, late) == []
    assert job.ledger.counters()["failed"] == 2 * 2  # their first sections were over
    end(job, valkey_raw)


def test_rows_that_wait_too_long_fail_without_a_writer(job: Job, valkey_raw: "redis.Redis") -> None:
    old = job.ask(20)  # so that both tasks have some
    job.workers["fan"].work()
    Stream(job.ledger, "rows").limit(max_age=1)

    def dropped() -> bool:
        job.ledger.run(coordinator.retain(job.ledger.core))
        return Stream(job.ledger, "rows").totals().dropped == 1  # the other one is the newest

    wait_until(dropped)
    job.work()
    assert job.sums == []
    [said] = reasons(job, old)
    assert re.search(r"stream rows dropped rows of the request: older than max_age \(1 s\)", said)
    Stream(job.ledger, "rows").limit(max_age=1000)
    end(job, valkey_raw)


@pytest.mark.parametrize("released", [False, True])
def test_no_step_is_given_a_part_of_a_request(job: Job, valkey_raw: "redis.Redis", released: bool) -> None:
    """released: the bundle was, and nobody has worked on it."""
    lost = job.ask(4)
    job.workers["fan"].work()
    if released:
        job.coordinate()
    job.ask(1, name="kept")
    job.workers["fan"].work()
    rows = Stream(job.ledger, "rows")
    rows.limit(max_bytes=rows.totals().bytes - 1)
    assert job.ledger.run(retention.retain(job.ledger.core, "rows")) == 1
    rows.limit(max_bytes=1 << 30)
    job.work()
    assert job.sums == [1]
    [said] = reasons(job, lost)
    assert "over max_bytes" in said
    end(job, valkey_raw)


def test_rows_without_vectors_are_lost_and_not_acked(job: Job, valkey_raw: "redis.Redis") -> None:
    """A segment without vectors was acked, and with it its bundle: but not one whose rows are gone."""
    roots = job.ask(5)
    job.workers["fan"].work()
    [(_, place), *_] = job.ledger.run(gathered.places(job.ledger.core, "rows"))
    [one] = job.ledger.run(gathered.at(job.ledger.core, "rows", place.decode()))
    valkey_raw.delete(keys.Stream("t", "rows").payload(one.segment.id))
    for key, _ in vectors.keys_of(job.ledger.core, one.segment):
        assert valkey_raw.delete(key)
    job.work()
    assert job.sums == []
    assert len(reasons(job, roots)) == 1


@pytest.mark.parametrize("ack", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_a_subscription_leaves_what_waits(
    job: Job, valkey_raw: "redis.Redis", ack: bool, other: bool
) -> None:
    rows = Stream(job.ledger, "rows")
    if other:
        rows.subscribe("other")
    roots = job.ask(3)
    job.workers["fan"].work()
    waits = sum(
        len(job.ledger.run(gathered.at(job.ledger.core, "rows", name.decode())))
        for _, name in job.ledger.run(gathered.places(job.ledger.core, "rows"))
    )
    assert waits == 2
    name = "other" if other else "count"
    assert job.ledger.run(retention.unsubscribe(job.ledger.core, "rows", name, ack=ack)) == waits
    assert rows.totals().segments == (waits if other else 0)
    assert len(job.ledger.run(drops(job.ledger.core))) == 1
    job.work()
    if ack:
        assert job.sums == ([3] if other else [0])
        assert settler.settle(job.ledger).acked == 1
    else:
        assert job.sums == []
        assert [said.partition(":")[0] for said in reasons(job, roots)] in (
            [f"subscription {name} of stream rows was dropped"],
            ["in section counts"],
        )
    end(job, valkey_raw)


def test_a_stream_is_removed_with_what_waits(job: Job, valkey_raw: "redis.Redis") -> None:
    job.ask(3, 4)
    job.workers["fan"].work()
    assert list(valkey_raw.scan_iter(match="*rows}:payload*"))
    job.ledger.run(removal.remove_stream(job.ledger.core, "rows"))
    left = [key for key in valkey_raw.scan_iter(match="*rows}:*") if valkey_raw.ttl(key) < 0]
    assert left == []


def test_rows_of_a_group_go_with_its_coordinator(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    after, cut = 0, True
    while cut:
        valkey_raw.flushall()
        job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=1)
        roots = job.ask(3)
        job.workers["fan"].work()
        group = sections.group_of(ledger_ids.slab_of(int(roots.anchors(1)[0])))
        job.ledger.fail(roots.anchors(3))
        job.ledger.fail(roots.anchors(2))
        cut = run_cut(job.ledger, gathered.close(job.ledger.core, "rows", group, 2), after)
        job.ledger.run(gathered.close(job.ledger.core, "rows", group, 2))
        own = keys.Stream("t", "rows")
        [late] = job.ledger.store.send([command("HGET", own.subscriptions, "too_late")])
        assert late == b"3"
        end(job, valkey_raw)
        after += 1
    assert after > 4


@pytest.mark.parametrize("places", [1, 200])
def test_places_of_one_moment_are_all_seen(job: Job, valkey_raw: "redis.Redis", places: int) -> None:
    own = keys.Stream("t", "rows")
    names = [b"%016x:0" % n for n in range(places)]
    for name in names:
        valkey_raw.zadd(own.gathering, {name: 7})
    valkey_raw.zadd(own.gathering, {b"%016x:0" % 999: 8})
    seen, mark = list[bytes](), gathered.START
    while found := job.ledger.run(gathered.places(job.ledger.core, "rows", mark)):
        seen, mark = seen + [name for _, name in found], found[-1]
    assert seen == [*names, b"%016x:0" % 999]
    valkey_raw.delete(own.gathering)
