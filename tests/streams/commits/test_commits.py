"""Commits of what was staged: once, whole, and in their order."""

from typing import Any

import pytest
import redis

from acker.errors import CommitOrderError, StagingExpired, UnreadableRecord
from acker.ledger.client import Ledger
from acker.store import keys
from acker.store.operation import command
from acker.streams.commits import chunks, holding, origins, record
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.commits.origins import Origin
from acker.streams.staging import acks as inputs
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging import vectors
from tests.helpers.builders.streaming import (
    commit,
    consume,
    counters,
    delivered,
    emit,
    kept,
    rows,
    stage,
    take,
)
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster


def test_staged_data_that_timed_out_is_an_error_and_not_a_loss(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    segment_id = staged.segments[0].id
    shard = staged.segments[0].shards[0]
    batch = take(ledger, "lines")
    ledger.store.send(
        [_command("DEL", ledger.core.shards[shard].staged(segment_id, staged.segments[0].slots[0]))]
    )
    with pytest.raises(StagingExpired):
        commit(ledger, 0, Commit((staged,), (batch,)))
    assert rows(ledger, "words") == []
    assert len(rows(ledger, "lines")) == 10
    # The batch can run again.
    assert commit(ledger, 0, Commit((stage(ledger, anchors),), (batch,)))
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 10, "acked": 10}


@pytest.mark.parametrize("scripts", [0, 1, 2, 3])
def test_nothing_goes_on_after_a_script_that_says_no_at_the_end_of_a_flight(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, scripts: int
) -> None:
    monkeypatch.setattr(chunks, "MOST", scripts)
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 1)
    monkeypatch.setattr(holding, "_KEYS", 1)
    anchors = emit(ledger, 40, slab=1)
    staged = stage(ledger, anchors, rows=10)
    batch = take(ledger, "lines")
    work = Commit((staged,), (batch,))
    [gone, *_, last] = holding.staged_keys(ledger.core, work)
    assert gone != last
    ledger.store.send([_command("DEL", gone)])
    with pytest.raises(StagingExpired):
        commit(ledger, 0, work)
    assert rows(ledger, "words") == []
    assert commit(ledger, 0, Commit((stage(ledger, anchors),), (batch,)))
    consume(ledger, "words")
    assert counters(ledger) == {"tracked": 40, "acked": 40}


@pytest.mark.parametrize("scripts", [0, 1, 2, 3, 128])
def test_a_condition_that_does_not_hold_ends_all_however_many_there_are(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, scripts: int
) -> None:
    monkeypatch.setattr(chunks, "MOST", scripts)
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    work = Commit((staged,), (take(ledger, "lines"),))
    [(there, shard), *_] = vectors.keys_of(ledger.core, staged.segments[0])
    gone = ledger.core.shards[shard].staged("0" * 32, 1)
    conditions = [staging_scripts.check_staged([key]) for key in (gone, there, there, there)]
    at_hand = AtHand(conditions=conditions)
    assert not ledger.run(commits.commit(ledger.core, "writer", 0, work, at_hand=at_hand))
    assert at_hand.refused
    assert not ledger.run(record.is_stored(ledger.core, "writer", 0))
    assert rows(ledger, "words") == []
    assert len(rows(ledger, "lines")) == 10


def test_a_stored_commit_whose_data_timed_out_gives_way_to_the_rerun(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    ledger.run(record.begin(ledger.core, "writer", 0, Commit((staged,)).dump()))
    assert ledger.run(record.is_stored(ledger.core, "writer", 0))
    ledger.run(holding.discard(ledger.core, Commit((staged,))))
    assert not ledger.run(commits.finish(ledger.core, "writer", 0))
    assert commit(ledger, 0, Commit((stage(ledger, anchors),), (take(ledger, "lines"),)))
    assert len(rows(ledger, "words")) == 10


def test_a_commit_sent_again_is_known_as_the_same(ledger: Ledger) -> None:
    what = Commit((stage(ledger, emit(ledger, 5)),), (take(ledger, "lines"),))
    assert commit(ledger, 3, what)
    assert commit(ledger, 3, what)
    assert len(rows(ledger, "words")) == 5
    assert ledger.run(commits.finish(ledger.core, "writer", 3))
    assert not ledger.run(commits.finish(ledger.core, "writer", 4))


def test_commits_of_a_writer_go_forward_only_and_the_last_two_are_kept(ledger: Ledger, url: str) -> None:
    for number in range(5):
        commit(ledger, number, Commit())
    assert commit(ledger, 3, Commit())
    with pytest.raises(CommitOrderError, match=r"commit 2 comes after commit 4.*: .*new checkpoint"):
        commit(ledger, 2, Commit())
    with raw_client(url) as client:
        stored = client.hgetall(keys.commits("t", "writer"))
    assert set(stored) == {b"last", b"3:state", b"3:what", b"4:state", b"4:what"}
    assert not kept(url, b"commits")


def test_what_is_staged_and_not_committed_times_out(ledger: Ledger, url: str) -> None:
    stage(ledger, emit(ledger, 100), rows=10, ttl=100)
    assert not kept(url, b"staged")
    assert not kept(url, b"words}:payload")
    with raw_client(url) as client:
        assert all(0 < client.ttl(key) <= 100 for key in client.scan_iter(b"*words}:payload*"))


def test_reasons_of_their_own_take_no_writers_of_their_own(ledger: Ledger) -> None:
    anchors, reasons = emit(ledger, 500), [f"no {number}" for number in range(500)]
    [segment] = [piece.segment for piece in delivered(ledger, take(ledger, "lines"))]
    places = vectors.keys_of(ledger.core, segment)
    ledger.store.send([command("HSET", shard.clock, "most_writers", 60) for shard in ledger.core.shards])
    for _ in range(2):
        ledger.run(inputs.fail_once(ledger.core, places, anchors, reasons))
    ledger.run(inputs.fail_once(ledger.core, places, anchors[:100], reasons[:100]))
    assert (counters(ledger)["failed"], counters(ledger).get("late", 0)) == (500, 0)


def _command(name: str, key: bytes) -> Any:
    from acker.store.operation import command

    return command(name, key)


def test_a_batch_over_other_ranges_than_the_commit_of_its_number_is_an_error(
    ledger: Ledger, raw: redis.Redis
) -> None:
    """Stored or done; an earlier version has not noted of what its commits are."""
    emit(ledger, 10)
    emit(ledger, 10)
    first, second = take(ledger, "lines", segments=1), take(ledger, "lines", segments=1)
    of = Origin.from_ranges([first])
    ledger.run(record.begin(ledger.core, "writer", 0, Commit(inputs=(first,), origin=of).dump()))
    for acked in (0, 10):
        for other in (
            Origin.from_ranges([second]),
            Origin.from_ranges([first, second]),
            Origin.from_ranges([]),
        ):
            what = Commit((stage(ledger, []),), (second,), origin=other)
            with pytest.raises(CommitOrderError, match="commit of that number, of segments 1 to 1 of reader"):
                commit(ledger, 0, what)
            with pytest.raises(CommitOrderError, match="Start with a new checkpoint"):
                ledger.run(commits.finish(ledger.core, "writer", 0, other))
        assert counters(ledger).get("acked", 0) == acked
        assert ledger.run(commits.finish(ledger.core, "writer", 0, of))
    assert ledger.run(commits.finish(ledger.core, "writer", 0, Origin.from_ranges([], whole=False)))
    key = keys.commits("t", "writer")
    [stored] = raw.hmget(key, "0:what")
    assert isinstance(stored, bytes)
    digest, _, reported = stored.partition(b" ")
    assert reported.decode() == of.dump()
    raw.hset(key, "0:what", digest)
    assert ledger.run(commits.finish(ledger.core, "writer", 0, Origin.from_ranges([second])))
    raw.hset(key, "0:what", digest + b" [7]")
    with pytest.raises(UnreadableRecord, match="not the origin of a commit"):
        ledger.run(commits.finish(ledger.core, "writer", 0, of))


@pytest.mark.parametrize(
    ("one", "other", "contradict"),
    [
        (Origin(frozenset({("a", 0, 2)})), Origin(frozenset({("a", 0, 2)})), False),
        (Origin(frozenset({("a", 0, 2)})), Origin(frozenset({("a", 0, 2), ("b", 0, 1)})), True),
        (Origin(frozenset({("a", 0, 2)}), whole=False), Origin(frozenset({("a", 0, 2), ("b", 0, 1)})), False),
        (Origin(frozenset({("a", 0, 2)}), whole=False), Origin(frozenset({("b", 0, 1)})), True),
        (Origin(frozenset({("a", 0, 2)}), whole=False), Origin(frozenset({("b", 0, 1)}), whole=False), False),
        (Origin(frozenset({("a", 0, 2)}), whole=False), Origin(frozenset({("a", 0, 3)}), whole=False), True),
        (Origin(others="x"), Origin(others="y"), True),
        (Origin(others="x"), Origin(), False),
        (Origin(others="at 1"), Origin(others="at 2"), True),
        (Origin(others="run a"), Origin(others="run b"), True),
        (Origin(others="at 1"), Origin(others="digest"), False),
    ],
)
def test_origins_contradict_each_other_as_far_as_they_are_known(
    one: Origin, other: Origin, contradict: bool
) -> None:
    assert one.contradicts(other) is other.contradicts(one) is contradict


def test_a_run_has_planned_itself_what_it_did_not_find_in_its_checkpoint() -> None:
    """So a commit of a batch that an earlier run had logged is of another one; not the other way round."""
    logged, planned = Origin(others=origins.time_identity("1")), Origin(others=origins.run_identity("run"))
    assert logged.contradicts(planned)
    assert not planned.contradicts(logged)
