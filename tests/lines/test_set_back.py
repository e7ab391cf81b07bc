"""A store is set back while workers of a line work. See test_histories.py for any moment of that."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.ledger.client import open_ledger
from acker.lines import Out
from acker.store import keys
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.commits import release
from acker.streams.log import fencing, subscriptions
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.set_backs import Moment, moment, set_back, tag
from tests.helpers.faults.stepping import Stepping

ROWS = 3


def test_a_bundle_bound_in_part_is_given_back_as_a_whole(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """A copy of the call that binds a reader comes late, and its segments have other numbers by now."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=1))
    job.ask(ROWS)
    assert job.workers["fan"].work()
    job.coordinate()
    core, run = job.ledger.core, job.ledger.run
    slot = run(subscriptions.find(core, "rows", "count"))
    claimed = run(subscriptions.claim(core, "rows", slot, "dead", 0, name="count"))
    assert claimed == 4, "of each task rows, and a last word"
    valkey_raw.hset(keys.Stream("t", "rows").fences(slot, "dead"), "dead 0", "1 attempt")
    back, bound = run(fencing.take_back(core, "rows", slot, "dead"))
    assert (back, len(bound)) == (2, 1)
    assert job.workers["count"].work() == 2
    assert run(release.give_back(core, "rows", slot, "dead")) == 2
    job.work()
    assert job.sums == [ROWS]


@pytest.mark.parametrize("once", [False, True])
def test_nothing_is_committed_of_rows_whose_tuples_a_node_has_lost_while_they_were_worked_on(
    valkey_url: str, valkey_raw: "redis.Redis", once: bool
) -> None:
    """They are in no tree any more, and what was made of them would be."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    before = list[Moment]()

    def make(row: dict[str, Any], out: Out) -> None:
        set_back(valkey_raw, before.pop(), {tag(ledger.core.shards[0].slabs)})
        out.emit("made", {"id": row["id"]})

    first = Worker(ledger, FunctionStep("first", "asks", lambda row, out: out.emit("rows", row)))
    second = Worker(ledger, FunctionStep("second", "rows", make), once=once)
    for one in (first, second):
        assert not one.work()
    made = StreamReader(ledger, "made")
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id")).write(pa.table({"id": ["a"]}))
    before.append(moment(valkey_raw))
    assert first.work()
    assert not second.work()
    assert not before
    second.work()  # it begins anew
    assert list(made.tables()) == []
    pending = ledger.counters()
    assert pending["tracked"] - pending["acked"] - pending["failed"] == 1


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("who", ["fan", "count", "add"])
def test_requests_that_a_worker_had_acked_fail_at_once_where_the_store_knows_that_no_more(
    valkey_url: str, valkey_raw: "redis.Redis", who: str, *, once: bool
) -> None:
    """While it lives nobody else has what it took: they would wait until their time is over."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3), attempts=2)
    job.workers[who] = Worker(job.ledger, job.workers[who].step, once=once)
    before = list[Moment]()
    for _ in range(2):  # by its second batch it has a commit that the store knows of
        job.ask(2, 3)
        for name, worker in job.workers.items():
            if name == who and len(job.sums) == 2:
                going = Stepping(job.ledger, worker._work(False))
                going.until("chain")
                before.append(moment(valkey_raw))
                going.go_on()
            worker.work()
            job.coordinate()
    set_back(valkey_raw, before.pop())
    settled = Counter[str]()
    for _ in range(3):
        job.work()
        found = settler.settle(job.ledger, "asks")
        settled.update(acked=found.acked, replayed=found.replayed, dead=found.dead)
    assert +settled == ({"acked": 2, "dead": 2} if once else {"acked": 4, "replayed": 2})
    assert once or sorted(job.sums[-2:]) == [2, 3]
