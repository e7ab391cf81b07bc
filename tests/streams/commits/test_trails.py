"""Commits whose trail is cut: the store is set back between any two exchanges, or others have gone on."""

import contextlib
import threading
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError, FailedException, UnreadableRecord
from acker.ledger.client import open_ledger
from acker.lines import Out
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams import SpoutOptions, StreamSpout
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.commits import scripts as commits_scripts
from acker.streams.commits.contents import Commit
from acker.streams.spouts import replays, settler
from acker.streams.staging import effects
from acker.streams.staging.staging import Staged
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.faults.simulator import Moment, moment, set_back
from tests.helpers.faults.stepping import Stepping

HORIZON = 600_000
DIGESTS = [b"0123456789abcdef", b"fedcba9876543210"]


class Failing:
    """A step that fails its row until `fails` is unset, and the spout of it."""

    def __init__(self, url: str) -> None:
        self.ledger = open_ledger(Store(url), "t", ackers=1)
        self.fails, self.seen = True, list[str]()
        self.worker = Worker(self.ledger, FunctionStep("step", "asks", self._work))
        self.worker.work()
        how = SpoutOptions("spout", "asks", "id", attempts=99)
        StreamSpout(self.ledger, how).write(pa.table({"id": ["a"]}))
        self.worker.work()

    def _work(self, row: dict[str, str], _: Out) -> None:
        if self.fails:
            raise FailedException("no")
        self.seen.append(row["id"])

    def settle(self) -> replays.Stepped:
        return settler.settle(self.ledger, "spout")


def test_a_row_is_replayed_or_still_pending_where_the_store_is_set_back_anywhere_in_its_replay(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Store.send
    for at in count():
        valkey_raw.flushall()
        job = Failing(valkey_url)
        before, sent = moment(valkey_raw), 0

        def cut(store: Store, asked: Sequence[Request], at: int = at, before: Moment = before) -> list[Reply]:
            nonlocal sent
            if sent == at:
                set_back(valkey_raw, before)
            sent += 1
            return send(store, asked)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "send", cut)
            with contextlib.suppress(AckerError):
                job.settle()
        if sent <= at:
            assert at > 20
            return
        job.fails, acked = False, 0
        for _ in range(8):
            job.worker.work()
            acked += job.settle().acked
            job.ledger.tick(force=True)
        assert (acked, set(job.seen)) == (1, {"a"}), at


def test_effects_are_recorded_where_the_store_is_set_back_anywhere_in_their_commit(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    for cut in count(1):
        for back in range(cut):
            valkey_raw.flushall()
            ledger = open_ledger(Store(valkey_url), "t", ackers=1)
            token = ledger.run(effects.stage(ledger.core, 3600, DIGESTS))
            going = Stepping(ledger, commits.commit(ledger.core, "writer", 0, of_effects(token)))
            going.go_on(back)
            before = moment(valkey_raw)
            going.go_on(cut - back)
            if going.ended:
                assert cut > 6
                return
            set_back(valkey_raw, before)
            going.go_on()
            assert ledger.run(effects.known(ledger.core, HORIZON, DIGESTS))[0] == set(DIGESTS), (back, cut)


def of_effects(token: str) -> Commit:
    return Commit((Staged("", effects=((token, HORIZON),)),))


def test_who_pauses_in_a_commit_hears_of_nothing_where_others_have_ended_it_and_gone_on(
    valkey_url: str,
) -> None:
    job = Failing(valkey_url)
    paused = Stepping(job.ledger, replays.step(job.ledger.core, "spout"))
    paused.until("publish")
    for _ in range(record._KEPT_SHARED + 3):
        job.worker.work()
        job.settle()
    paused.go_on()
    assert paused.ended
    job.fails = False
    job.worker.work()
    job.worker.work()
    assert job.settle().acked == 1
    assert set(job.seen) == {"a"}


def test_a_final_commit_that_the_store_loses_with_all_that_was_staged_is_no_error(
    valkey_url: str, valkey_raw: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    """Others may have seen of it what is lost: nobody can say that nothing has happened."""
    job = Failing(valkey_url)
    going = Stepping(job.ledger, replays.step(job.ledger.core, "spout"))
    going.until("publish")
    valkey_raw.flushall()
    going.go_on()
    assert going.ended
    assert "the store has lost commit 0" in caplog.text


def test_a_large_flight_whose_reply_is_lost_is_sent_again_and_goes_on(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=4)

    def fan(row: dict[str, str], out: Out) -> None:
        if row["id"] == "b":
            raise FailedException("no")
        for number in range(80):
            out.emit(f"to{number}", row)

    worker = Worker(ledger, FunctionStep("fan", "asks", fan))
    worker.work()
    StreamSpout(ledger, SpoutOptions("spout", "asks", "id", attempts=1)).write(pa.table({"id": ["a", "b"]}))
    send, large, own = Store.send, 0, threading.get_ident()

    def twice(store: Store, asked: Sequence[Request]) -> list[Reply]:
        nonlocal large
        if threading.get_ident() == own and len(asked) > 60:
            large += 1
            send(store, asked)
        return send(store, asked)

    monkeypatch.setattr(Store, "send", twice)
    assert worker.work() == 1
    assert 0 < large < 20


def test_a_commit_in_a_state_that_nobody_knows_is_an_error(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    key = "acker:{t}:commits:writer"
    for state, what in ((b"oops", b"{}"), (b"tracked", b"\xff")):
        valkey_raw.hset(key, mapping={"last": 0, "0:state": state, "0:what": what})
        with pytest.raises(UnreadableRecord, match="commit 0 of"):
            ledger.run(commits.commit(ledger.core, "writer", 0, Commit()))
    valkey_raw.delete(key)


def test_a_commit_keeps_a_bounded_number_of_trails(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    ledger.run(record.begin(ledger.core, "writer", 0, "{}"))
    for number in range(300):
        note = commits_scripts.note_trail(ledger.config, "writer", 0, f"token{number}", 1)
        assert ledger.store.send([note, note]) == [1, 1]
    assert valkey_raw.hlen("acker:{t}:commits:writer") < 110
    ahead = commits_scripts.note_trail(ledger.config, "writer", 0, "token299", 3)
    assert ledger.store.send([ahead]) == [0]
