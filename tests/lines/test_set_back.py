"""A store is set back between any two requests of a commit, to any moment of it: `finished` gets all rows."""

import contextlib
import threading
from collections.abc import Callable, Sequence

import pytest
import redis

from acker.errors import AckerError
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams.commits import at_once as commits_at_once
from acker.streams.spouts import settler
from tests.helpers.line_job import Job
from tests.helpers.turns import Moment, moment, set_back

ROWS = 3
FARTHEST = 8
"""Exchanges that are lost at a time."""


def losing(
    monkeypatch: pytest.MonkeyPatch, raw: "redis.Redis", first: int, after: int, act: Callable[[], object]
) -> bool:
    """Does something while a store loses some exchanges, from `first` on; False where it ends before that."""
    send, number, before, own = Store.send, 0, list[Moment](), threading.get_ident()

    def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        nonlocal number
        if threading.get_ident() != own:
            return send(store, requests)
        if number == first:
            before.append(moment(raw))
        if number == after:
            set_back(raw, before.pop())
        number += 1
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", counted)
        with contextlib.suppress(AckerError):  # it is tried again
            act()
    return number > after


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("who", ["fan", "count", "coordinator"])
def test_a_store_that_is_set_back_in_a_commit_finishes_no_request_without_all_its_rows(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, who: str, at_once: bool
) -> None:
    """Where one server has all keys, a commit is carried out by one script; elsewhere, phase by phase."""
    if not at_once:
        monkeypatch.setattr(commits_at_once, "MOST", 0)
    tried = 0
    for lost in range(1, FARTHEST + 1):
        first = 0
        while True:
            valkey_raw.flushall()
            job = Job(open_ledger(Store(valkey_url), "t", ackers=3), attempts=9, group=2)
            job.ask(*[ROWS] * 4)
            if who != "fan":
                job.workers["fan"].work()
            if who == "count":
                job.coordinate()
            act = job.coordinate if who == "coordinator" else job.workers[who].work
            if not losing(monkeypatch, valkey_raw, first, first + lost, act):
                break
            acked = 0
            while acked < 4:
                job.work()
                acked += settler.settle(job.ledger, "asks").acked
                job.ledger.tick(force=True)
            assert set(job.sums) == {ROWS}, (first, lost)
            first, tried = first + 1, tried + 1
    assert tried > (10 if at_once else 8 * FARTHEST)
