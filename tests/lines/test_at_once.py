"""A commit that one server carries out at once may end after any of its scripts: others go on from there."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import StagingExpired
from acker.ledger.calls import scripts as ledger_lua
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Out, arrivals, coordinator
from acker.store import keys, operation
from acker.store.client import Store
from acker.store.operation import Request
from acker.streams import StreamReader
from acker.streams.commits import chunks, run
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers import leases
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import counters
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.faults.simulator import Killed
from tests.helpers.models.leaks import assert_settled

pytestmark = pytest.mark.slow

WHO = [(who, killed) for who in ("spout", "fan", "coordinator", "count") for killed in (False, True)]
WHO.remove(("spout", True))  # a writer hears of no loss, and writes again


class Cut:
    """Has the first chain be only so long, as where a script of it was refused. killed: its reply is lost."""

    def __init__(self, members: int, *, killed: bool) -> None:
        self.left, self.killed = members, killed
        self.full = 0

    def chain(self, members: Sequence[Request]) -> Request:
        if self.full:
            return operation.chain(members)
        self.full = len(members)
        return operation.chain(members[: self.left])

    def send(self, store: Store, asked: Sequence[Request]) -> Any:
        replies = SEND(store, asked)
        if self.killed and self.full and any(one.script and one.script.name == "chain" for one in asked):
            raise Killed
        return replies


SEND = Store.send


@pytest.mark.parametrize(("who", "killed"), WHO)
def test_a_commit_that_ends_after_any_of_its_scripts_takes_effect_once(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, who: str, killed: bool
) -> None:
    members = full = 0
    while not full or members < full:
        members += 1
        job = Job(open_ledger(Store(valkey_url), f"t{who}{members}", ackers=2))
        job.ask(1)
        job.work()
        settler.settle(job.ledger)  # so that it is known which spouts the shards have
        job.sums.clear()
        if who != "spout":
            job.ask(2, 0, 3)
        if who in ("coordinator", "count"):
            job.workers["fan"].work()
        if who == "count":
            job.coordinate()
        cut = Cut(members, killed=killed)
        with monkeypatch.context() as patched:
            patched.setattr(run, "chain", cut.chain)
            patched.setattr(Store, "send", lambda store, asked, cut=cut: cut.send(store, asked))
            patched.setattr(leases, "LEASE", -1.0)
            try:
                if who == "spout":
                    job.ask(2, 0, 3)
                elif who == "coordinator":
                    job.ledger.run(coordinator.step(job.ledger.core, job.reader))
                else:
                    Worker(job.ledger, job.workers[who].step).work()
            except Killed:
                assert killed
            except StagingExpired:  # it was stored, and nothing staged: as where the memory ends
                assert not killed
                if who == "spout":
                    job.ask(2, 0, 3)
            full = cut.full
        job.reader = OutcomeReader(job.ledger.core, SPOUT)
        if who in job.workers:
            job.workers[who].recover()
        job.work()
        assert sorted(job.sums) == [0, 2, 3]
        assert settler.settle(job.ledger).acked == 3
        found = counters(job.ledger)
        assert [found.get(name, 0) for name in ("tracked", "acked", "failed", "late")] == [12, 12, 0, 0]
        for _ in range(3):
            job.ledger.tick(force=True)
    assert full > 5
    assert_settled(valkey_raw)


@pytest.mark.parametrize("who", ["fan", "count"])
def test_a_worker_goes_on_where_only_the_reply_to_its_commit_was_lost(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """It is sent again, and finds acked what it has acked itself."""
    job, twice = Job(open_ledger(Store(valkey_url), "t", ackers=2)), list[str]()
    job.ask(2)
    if who == "count":
        job.workers["fan"].work()
        job.coordinate()

    def again(store: Store, asked: Sequence[Request]) -> Any:
        if "chain" in [one.script.name for one in asked if one.script]:
            twice.append(who)
            SEND(store, asked)
        return SEND(store, asked)

    reader = job.workers[who].reader
    with monkeypatch.context() as patched:
        patched.setattr(Store, "send", again)
        assert job.workers[who].work()
    assert twice == [who]
    assert job.workers[who].reader == reader
    job.work()
    assert job.sums == [2]
    assert settler.settle(job.ledger).acked == 1


@pytest.mark.parametrize("line", ["line", ""])
def test_a_chain_that_comes_again_much_later_changes_nothing(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Also when all that it did is over, and forgotten."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2))
    sent, chains = Store.send, list[Request]()

    def noting(store: Store, asked: Sequence[Request]) -> Any:
        chains.extend(one for one in asked if one.one_server)
        return sent(store, asked)

    monkeypatch.setattr(Store, "send", noting)
    spout = StreamSpout(job.ledger, SpoutOptions("s", "asks" if line else "lines", "id", line=line))
    for name in ("first", "second"):  # the shards know the spout from the first on
        spout.write(pa.table({"id": [name], "n": [1]}))
        job.work()
        StreamReader(job.ledger, "lines").ack_all()
        assert settler.settle(job.ledger, "s").acked == 1
    assert len(chains) >= (2 if line else 1)
    for key in valkey_raw.scan_iter("*:progress:*"):  # as when its time is over
        valkey_raw.delete(key)
    before, had = counters(job.ledger), set(valkey_raw.scan_iter())
    monkeypatch.setattr(Store, "send", sent)
    for one in chains:
        sent(job.ledger.store, [one])
    assert set(valkey_raw.scan_iter()) == had
    job.work()
    assert StreamReader(job.ledger, "lines").ack_all() == 0
    assert [counters(job.ledger).get(name) for name in ("tracked", "acked")] == [
        before.get(name) for name in ("tracked", "acked")
    ]
    assert len(job.sums) == (2 if line else 0)


@pytest.mark.parametrize("apart", [False, True])
def test_a_commit_that_is_refused_takes_no_number(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """Another coordinator would go on after it, and a third one, which knows the number, still take it."""
    if apart:
        script_by_script(monkeypatch)
    core = open_ledger(Store(valkey_url), "t", ackers=1).core
    gone = ledger_lua.check_outcomes(core.shards[0].outcomes(SPOUT), [(b"1-0", b"0" * 16)])
    at_hand = AtHand(conditions=[gone])
    assert not Store(valkey_url).run(commits.commit(core, coordinator.WRITER, 0, Commit(), at_hand=at_hand))
    assert at_hand.refused
    assert not valkey_raw.exists(keys.commits("t", coordinator.WRITER))


@pytest.mark.parametrize("apart", [False, True])
def test_a_late_subscriber_gets_emits(valkey_url: str, monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    """A worker looks at the streams that it emits to before it works, and that may take an hour."""
    if apart:
        script_by_script(monkeypatch)
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    found: dict[str, list[str]] = {"early": [], "late": []}
    early, late = (
        Worker(ledger, FunctionStep(name, "made", lambda row, _, own=own: own.append(row["id"])))
        for name, own in found.items()
    )

    def fan(row: dict[str, Any], out: Out) -> None:
        if row["id"] == "second":
            assert not late.work()  # it subscribes
        out.emit("made", {"id": row["id"], **({"new": 1} if row["id"] == "third" else {})})

    worker = Worker(ledger, FunctionStep("fan", "asks", fan))
    for one in (worker, early):
        assert not one.work()
    spout = StreamSpout(ledger, SpoutOptions("asks", "asks", "id"))
    for name in ("first", "second", "third"):
        spout.write(pa.table({"id": [name]}))
        assert worker.work() == 1
    for one in (early, late):
        one.work()
    assert found == {"early": ["first", "second", "third"], "late": ["second", "third"]}
    assert settler.settle(ledger, "asks").acked == 3


def test_a_server_runs_a_bounded_number_of_scripts_at_once_however_many_shards_there_are(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=256), group=1)
    sizes = list[int]()

    def measured(members: Sequence[Request]) -> Request:
        sizes.append(len(members))
        return operation.chain(members)

    job.ask(*[1] * 200)
    assert job.workers["fan"].work()
    monkeypatch.setattr(arrivals, "chain", measured)
    job.coordinate()
    assert len(sizes) > 1, "200 groups of a request each have outcomes in more than a hundred shards"
    assert max(sizes) <= chunks.MOST
    job.work()
    assert job.sums == [1] * 200
