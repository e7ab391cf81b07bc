"""A commit expires none of its trees, however long it takes; its death ends that after three heartbeats."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.trees import failures
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import texts
from acker.ledger.tick import tick
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, command
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.sources import roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import replays
from acker.streams.staging import staging
from acker.streams.staging.staging import Staged, Staging
from tests.helpers.builders.kept_rows import fail, lines
from tests.helpers.builders.streaming import emit, rows, stage, take
from tests.helpers.builders.tickers import age, silence
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.cluster(slow=True)

HOW = SpoutOptions("s", "lines", "id", attempts=3)
Made = tuple[Operation[Any], int]


@pytest.fixture
def ledger(url: str) -> Ledger:
    # Nothing waits for a job here: what does not expire is kept by its commit.
    # And a commit is not taken for dead where the machine is slow: three heartbeats are 15 s.
    return open_ledger(Store(url), "t", ackers=3, downtime=0, message_timeout=600.0)


def ticks(ledger: Ledger, rounds: int = 6, alive: bool = True) -> int:
    """Ticks as a ticker does; returns how many trees expired. alive: each commit has its heartbeats."""
    core, expired = ledger.core, 0
    assert HOOKS.before_rotation is not None
    for _ in range(rounds):
        if not alive:
            silence(ledger)
        ledger.run(HOOKS.before_rotation(core))
        expired += ledger.run(tick.tick(core, force=True, explain=HOOKS.explain)).expired
        if alive:
            age(ledger, -1.0)
    return expired


def _tracked(ledger: Ledger, count: int = 20) -> tuple[tuple[roots.Roots, ...], Ids]:
    made = ledger.run(roots.stage(ledger.core, HOW, Staging("lines"), lines(count).to_batches()))
    return made, np.concatenate([one.anchors() for one in made])


def _failing(ledger: Ledger, anchors: Ids) -> Staged:
    why = texts([f"bad {n}" for n in range(len(anchors))], "split", 7)
    return Staged("", (), tuple(ledger.run(staging.stage_failures(ledger.core, 3600, anchors, why))))


def tracks_and_fails(ledger: Ledger) -> Made:
    """A bolt that tracks its records, emits rows of some and fails others."""
    made, anchors = _tracked(ledger)
    what = Commit((stage(ledger, anchors[:10]), _failing(ledger, anchors[10:15])), made)
    return commits.commit(ledger.core, "query", 0, what), 20


def acks(ledger: Ledger) -> Made:
    """A job that acks rows and emits others."""
    anchors = emit(ledger, 30)
    batch = take(ledger, "lines")
    return commits.commit(ledger.core, "job:1", 0, Commit((stage(ledger, anchors[:7]),), (batch,))), 30


def fails_all(ledger: Ledger) -> Made:
    """A bolt whose batch fails as a whole."""
    emit(ledger, 30)
    what = Commit(inputs=(take(ledger, "lines"),), failed="why")
    return commits.commit(ledger.core, "query", 0, what), 30


def replayed(ledger: Ledger) -> Made:
    """The settler's replays."""
    StreamSpout(ledger, HOW).write(lines(20))
    fail(ledger, lambda row: row["id"] < 15)
    return replays.step(ledger.core, "s"), 15


KINDS = [tracks_and_fails, acks, fails_all, replayed]


def finish(ledger: Ledger, operation: Operation[Any], replies: Any) -> None:
    while True:
        try:
            replies = ledger.store.send(operation.send(replies))
        except StopIteration:
            return


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is one chunk is never under way."""
    script_by_script(monkeypatch)


def _run_until(ledger: Ledger, operation: Operation[Any], pending: int) -> None:
    """Carries a commit out until so many trees are pending."""
    replies: Any = None
    while not ledger.run(_registered(ledger)) or _pending(ledger) < pending:
        replies = ledger.store.send(operation.send(replies))


def _pending(ledger: Ledger) -> int:
    found = ledger.counters()
    return found["tracked"] - found["failed"] - found["acked"]


def _registered(ledger: Ledger) -> Operation[int]:
    [found] = yield [command("HLEN", keys.committing(ledger.config.name))]
    return int(found)


@pytest.mark.parametrize("made_by", KINDS)
def test_its_death_ends_that_after_three_heartbeats(
    ledger: Ledger, made_by: Callable[[Ledger], Made]
) -> None:
    operation, pending = made_by(ledger)
    _run_until(ledger, operation, pending)
    assert ticks(ledger, 3) == 0
    assert ticks(ledger, 4, alive=False) == pending


def test_a_commit_that_begins_between_the_look_and_the_rotation_expires_nothing(ledger: Ledger) -> None:
    operation, pending = acks(ledger)
    assert ticks(ledger, 2) == 0
    assert HOOKS.before_rotation is not None
    ledger.run(HOOKS.before_rotation(ledger.core))
    _run_until(ledger, operation, pending)
    assert ledger.run(tick.tick(ledger.core, force=True, explain=HOOKS.explain)).expired == 0


def test_the_reason_names_the_commit_whose_driver_died(ledger: Ledger) -> None:
    made, anchors = _tracked(ledger)
    what = Commit((_failing(ledger, anchors),), made)
    _run_until(ledger, commits.commit(ledger.core, "5f0c", 3, what), len(anchors))
    assert ticks(ledger, 4, alive=False) == len(anchors)
    found = ledger.run(failures.find(ledger.core, int(anchors[0])))
    assert found is not None
    assert "query 5f0c, batch 3" in found.cause.reason
    assert "plain Python" not in found.cause.reason


def test_a_commit_beats_while_it_waits_for_an_answer(url: str) -> None:
    ledger = open_ledger(Store(url), "beats", ackers=2, message_timeout=1.0, downtime=0)
    operation, _ = acks(ledger)
    goes_on, stopped, key = threading.Event(), threading.Event(), keys.committing("beats")
    send, sent = ledger.store.send, list[int]()

    def stopping(requests: Any) -> Any:
        if threading.current_thread().name == "commit":
            sent.append(1)
            if len(sent) == 8:
                stopped.set()
                assert goes_on.wait(60)
        return send(requests)

    ledger.store.send = stopping  # type: ignore[method-assign]
    thread = threading.Thread(target=partial(ledger.run, operation), name="commit")
    thread.start()
    try:
        assert stopped.wait(60)
        with raw_client(url) as client:
            [field] = [name for name in client.hkeys(key) if name.endswith(b":at")]
            first = int(client.hget(key, field) or 0)
            wait_until(lambda: int(client.hget(key, field) or 0) > first + 500)
    finally:
        goes_on.set()
        thread.join(60)
    with raw_client(url) as client:
        assert not client.exists(key)
    assert len(rows(ledger, "words")) == 7
