"""Readers whose segments are given back while they work on them: either they commit, or the next one does."""

from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from acker.errors import ReaderFenced
from acker.inspect.operate.removal import remove
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.store.operation import Operation, Request
from acker.streams import Stream, StreamReader
from acker.streams.commits import commit as commits
from acker.streams.commits import release
from acker.streams.commits.contents import Commit
from acker.streams.log.subscriptions import Range
from tests.helpers.builders.streaming import consume, counters, emit, stage, take
from tests.helpers.faults.paused_drivers import one_by_one


def rows(ledger: Ledger, stream: str) -> list[Any]:
    return [row["_acker"] for row in StreamReader(ledger, stream).rows()]


def made(ledger: Ledger, batch: Range) -> Commit:
    """What a bolt makes of the rows of a stream: of each row two."""
    return Commit(
        (stage(ledger, [one for anchor in rows(ledger, "lines") for one in [anchor] * 2]),), (batch,)
    )


def commit_as_another(ledger: Ledger) -> None:
    """The next reader of the subscription, with all that there is for it."""
    batch = take(ledger, "lines", reader="next")
    if batch.end > batch.start:
        ledger.run(commits.commit(ledger.core, "next", batch.end, made(ledger, batch)))


def go_on(ledger: Ledger, one: Operation[Any], asked: list[Request], most: int = 1000) -> list[Request]:
    """Sends so many requests of an operation; returns the one that comes after them, if any."""
    with suppress(StopIteration):
        for _ in range(most if asked else 0):
            asked = one.send(ledger.store.send(asked))
        return asked
    return []


@pytest.mark.parametrize("both", [False, True])
def test_what_is_given_back_at_any_moment_of_a_commit_is_committed_once(valkey_url: str, both: bool) -> None:
    """both: the next reader has committed when the first goes on."""
    fenced = 0
    for after in count():
        ledger = open_ledger(Store(valkey_url), f"after{after}", ackers=2, slab_limit=4)
        emit(ledger, 10)
        emit(ledger, 5)
        batch = take(ledger, "lines")
        stopped = one_by_one(commits.commit(ledger.core, "w", 0, made(ledger, batch)))
        asked: list[Request] = next(stopped)
        asked = go_on(ledger, stopped, asked, after)
        ended = not asked
        back = Stream(ledger, "lines").give_back("reader")
        assert back in (0, 2)
        if both:
            commit_as_another(ledger)
        if back:
            with pytest.raises(
                ReaderFenced, match="what reader reader of stream 'lines' had taken was given"
            ):
                go_on(ledger, stopped, asked)
            fenced += 1
        else:
            go_on(ledger, stopped, asked)
        commit_as_another(ledger)
        assert rows(ledger, "lines") == []
        assert len(rows(ledger, "words")) == 30
        consume(ledger, "words")
        reported = counters(ledger)
        reported.pop("duplicates", None)
        assert reported == {"tracked": 15, "acked": 15}
        ledger.run(remove(ledger.config.name, force=True))
        if ended:
            assert after > 8
            assert 0 < fenced < after
            return


@pytest.mark.parametrize("cut", [False, True])
def test_a_commit_that_comes_between_two_requests_of_giving_back(valkey_url: str, cut: bool) -> None:
    """Stopped before each request of the commit, and then of giving back, which goes on, or comes again."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    for of_commit in (0, 1, 2, 3, 4, 5, 9):
        for of_back in count():
            emit(ledger, 10)
            batch = take(ledger, "lines", reader=f"{of_commit} {of_back}")
            writer = f"{of_commit} {of_back}"
            commit = one_by_one(commits.commit(ledger.core, writer, 0, made(ledger, batch)))
            slow = one_by_one(release.give_back(ledger.core, "lines", batch.slot, batch.reader))
            asked = go_on(ledger, commit, next(commit), of_commit)
            back = go_on(ledger, slow, next(slow), of_back)
            with suppress(ReaderFenced):
                go_on(ledger, commit, asked)
            if cut:
                Stream(ledger, "lines").give_back(batch.reader)
            else:
                go_on(ledger, slow, back)
            commit_as_another(ledger)
            assert rows(ledger, "lines") == []
            assert len(rows(ledger, "words")) == 20, (of_commit, of_back)
            consume(ledger, "words")
            if not back:
                break
        assert of_back > 1
    reported = counters(ledger)
    assert reported["tracked"] == reported["acked"]
    assert set(reported) <= {"tracked", "acked", "duplicates"}
