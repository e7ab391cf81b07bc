"""A row at which workers die, or that holds them for longer than their lease, fails alone in the end."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.ledger.user_functions.async_calls import Pace
from acker.lines import Out
from acker.store import keys
from acker.store.client import Store
from acker.streams import SpoutOptions, Stream, StreamReader, StreamSpout
from acker.streams.log import fencing
from acker.streams.log.heartbeats import Lease
from acker.streams.spouts import settler
from acker.workers import poison
from acker.workers.poison import Careful
from acker.workers.steps import FunctionStep, GatherStep
from acker.workers.worker import Step, Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import slot_of
from tests.helpers.servers.servers import raw_client


def lapse(ledger: Ledger, stream: str, step: str) -> None:
    """Ends the leases of all workers, as if a minute had passed."""
    key = keys.Stream("t", stream).workers(slot_of(ledger, stream, step)).decode()
    with raw_client(ledger.store.url) as client:
        for reader, text in client.hgetall(key).items():
            if (lease := Lease.parse(text)) is not None:
                client.hset(key, reader, b"%d %d" % (lease.until - 60_000, lease.length))


def deaths(ledger: Ledger, step: Step) -> int:
    """Works until nothing is left, one worker after the other; returns how many have died.

    A KeyboardInterrupt ends one, as the end of its process does: it says nothing more to the store.
    """
    for died in range(100):
        worker = Worker(ledger, step)
        try:
            while worker.work():
                pass
        except KeyboardInterrupt:
            lapse(ledger, step.reads, step.name)
            assert worker.recover()
        else:
            worker.end()
            return died
    raise AssertionError("workers die again and again")


def passing(*bad: str, count: list[str] | None = None) -> Any:
    """A function of rows at some of which its process ends."""

    def step(row: dict[str, Any], out: Out) -> None:
        if count is not None:
            count.append(row["id"])
        if row["id"] in bad:
            raise KeyboardInterrupt
        out.emit("done", {"id": row["id"]})

    return step


def passing_away(*_: object) -> Any:
    raise KeyboardInterrupt


def ask(ledger: Ledger, names: Sequence[str], segments: int) -> None:
    Stream(ledger, "done").subscribe("look")
    spout = StreamSpout(ledger, SpoutOptions("rows", "rows", "id"))
    spout.write(pa.table({"id": names}), segments=segments)


@pytest.mark.parametrize(
    ("rows", "segments", "bad", "most"),
    [(1, 1, [0], 5), (3, 3, [1], 5), (1_000, 1, [567], 7), (1_000, 2, [3, 444, 999], 21)],
)
def test_a_row_at_which_workers_die_fails_alone(
    valkey_url: str, rows: int, segments: int, bad: list[int], most: int
) -> None:
    ledger, begun = open_ledger(Store(valkey_url), "t", ackers=2), list[str]()
    step = FunctionStep("slow", "rows", passing(*map(str, bad), count=begun))
    Worker(ledger, step).work()
    ask(ledger, [str(number) for number in range(rows)], segments)
    assert deaths(ledger, step) <= most
    assert all(begun.count(str(one)) >= fencing.MOST_DEATHS for one in bad)
    found = [str(row["id"]) for row in StreamReader(ledger, "done", "look").rows()]
    assert sorted(map(int, found)) == [number for number in range(rows) if number not in bad]
    StreamReader(ledger, "done", "look").ack_all()
    outcomes = list[pa.Table]()
    settled = settler.settle(ledger, "rows", outcomes.append)
    assert (settled.acked, settled.dead, settled.replayed) == (rows - len(bad), len(bad), 0)
    reasons = [one for table in outcomes for one in table.column("reason").to_pylist() if one]
    assert len(reasons) == len(bad)
    assert all("each time its worker died" in reason for reason in reasons)


def test_a_request_at_which_workers_that_gather_die_fails_alone(job: Job) -> None:
    step = job.workers["count"].step
    assert isinstance(step, GatherStep)
    make = step._make

    class Dying(make):  # type: ignore[misc, valid-type]
        def execute(self, row: dict[str, Any]) -> None:
            if row["i"] == 7:
                raise KeyboardInterrupt
            super().execute(row)

    step._make = Dying
    job.ask(10, 3, 0)
    job.workers["fan"].work()
    job.coordinate()
    assert deaths(job.ledger, step) <= 7
    job.work()
    assert sorted(job.sums) == [0, 3]
    settled = settler.settle(job.ledger, "asks")
    assert (settled.acked, settled.dead) == (2, 1)


def test_an_asynchronous_row_at_which_workers_die_fails_alone(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, begun = open_ledger(Store(valkey_url), "t", ackers=2), list[str]()
    noted = list[str]()

    async def step(row: dict[str, Any], out: Out) -> None:
        begun.append(row["id"])
        out.emit("done", {"id": row["id"]})

    def die(self: Careful, what: str) -> None:
        begin(self, what)
        noted.append(what)
        if len(noted) <= fencing.MOST_DEATHS:
            raise KeyboardInterrupt

    begin = Careful._begin
    monkeypatch.setattr(Careful, "_begin", die)
    monkeypatch.setattr(poison, "CAREFUL", 0)
    slow = FunctionStep("slow", "rows", step, pace=Pace(concurrency=4, timeout=60.0))
    Worker(ledger, slow).work()
    ask(ledger, ["a", "b", "c"], 1)
    with monkeypatch.context() as patched:
        patched.setattr(slow, "run", passing_away)
        worker = Worker(ledger, slow)
        with pytest.raises(KeyboardInterrupt):
            worker.work()
    lapse(ledger, "rows", "slow")
    assert worker.recover() == 1
    assert deaths(ledger, slow) == fencing.MOST_DEATHS
    assert len(begun) == 2
    assert settler.settle(ledger, "rows").dead == 1
