"""A look for places that trees outrun, and the bounds of what one look reads."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from acker.inspect.locate import drops, expiry_reasons, place, search, why
from acker.inspect.trees import failures
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.tick import tick
from acker.store.operation import Request
from acker.store.replies import seconds
from acker.streams import Stream
from acker.streams.commits.contents import Commit
from acker.streams.upkeep import retention, scripts
from tests.helpers.builders.streaming import commit, consume, emit, stage, take
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)


def ask(ledger: Ledger, anchor: int, **how: Any) -> why.Why:
    return ledger.run(why.why(ledger.core, anchor, **how))


def spread(ledger: Ledger, *streams: str) -> int:
    """A tree with a row in each of some streams."""
    [anchor] = emit(ledger, 1).tolist()
    pieces = tuple(stage(ledger, [anchor, anchor], stream) for stream in streams)
    commit(ledger, 0, Commit(pieces, (take(ledger, "lines"),)))
    return int(anchor)


@pytest.mark.parametrize(("moves", "looks"), [(0, 1), (1, 2), (2, 3), (99, 3)])
def test_a_tree_that_goes_on_during_the_look_is_looked_for_again_three_times_at_most(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, moves: int, looks: int
) -> None:
    anchor = spread(ledger, "a", "b", "c", "d")
    look, done = search.look, list[int]()

    def outrun(*arguments: Any) -> Any:
        found = yield from look(*arguments)
        done.append(len(found[0]))
        if len(done) <= moves:
            consume(ledger, "abcd"[len(done) - 1])
        return found

    monkeypatch.setattr(search, "look", outrun)
    answer = ask(ledger, anchor)
    assert len(done) == looks
    if moves < 3:
        assert (answer.complete, len(answer.places)) == (True, 4 - moves)
    else:
        assert (answer.complete, answer.rest) == (None, why.MOVED)


def test_rows_are_counted_in_places_and_bytes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = spread(ledger, "a", "b", "c")

    def counted() -> list[int | None]:
        return [one.rows for one in ask(ledger, anchor, rows=True).places]

    assert counted() == [2, 2, 2]
    monkeypatch.setattr(place, "MOST_ROWS", 2)
    assert counted() == [2, 2, None]
    size = Stream(ledger, "a").totals().bytes
    monkeypatch.setattr(place, "MOST_BYTES", size + size // 2)
    assert counted() == [2, None, None]


def expired(ledger: Ledger, *anchors: Ids) -> list[str]:
    """Expires all there is, and gives the reasons of some trees."""
    ticking = partial(tick.tick, ledger.core, force=True, explain=expiry_reasons.explain)
    for _ in range(4):
        ledger.run(ticking())
    ended = [ledger.run(failures.find(ledger.core, int(anchor))) for anchor in np.concatenate(anchors)]
    return [one.cause.reason for one in ended if one is not None]


@pytest.mark.parametrize(("bound", "slabs_looked_at"), [("MOST_SLABS", 2), ("_MOST_PARTS", 3)])
def test_trees_that_a_tick_does_not_come_to_expire_without_a_reason(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, bound: str, slabs_looked_at: int
) -> None:
    monkeypatch.setattr(expiry_reasons, bound, 2)
    monkeypatch.setattr(expiry_reasons, "_MOST_ROWS", 1)
    slabs = [emit(ledger, 2) for _ in range(8)]
    told = expired(ledger, *slabs)
    assert len(told) == 16
    where = "in stream lines for its first subscription, taken by nobody"
    assert set(told) == {where, ""}
    assert told.count(where) == 2 * slabs_looked_at


def test_a_drop_is_named_for_no_unseen_tree(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    anchors = emit(ledger, 1), emit(ledger, 1)
    Stream(ledger, "lines").limit(max_bytes=1)
    assert ledger.run(retention.retain(ledger.core, "lines")) == 1
    monkeypatch.setattr(expiry_reasons, "SECONDS", -1.0)
    assert expired(ledger, *anchors) == ["", ""]


def test_a_drop_before_its_track_is_not_named_for_a_tree(ledger: Ledger) -> None:
    emit(ledger, 1)
    emit(ledger, 1)
    Stream(ledger, "lines").limit(max_bytes=1)
    assert ledger.run(retention.retain(ledger.core, "lines")) == 1
    [drop] = ledger.run(drops.drops(ledger.core))
    wait_until(lambda: now(ledger) > drop.at + 0.002)
    [anchor] = emit(ledger, 1, "other").tolist()
    ledger.update([anchor], ids.new_ids(1))
    answer = ask(ledger, anchor)
    assert (answer.complete, answer.rest) == (False, why.IN_NO_STREAM)


def test_the_latest_drops_of_a_stream_are_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "MOST_DROPS", 3)
    emit(ledger, 1)
    Stream(ledger, "lines").limit(max_bytes=1)
    for rows in (2, 3, 4, 5):
        emit(ledger, rows)  # each drops the one before
    assert [one.rows for one in ledger.run(drops.drops(ledger.core))] == [4, 3, 2]
    Stream(ledger, "lines").subscribe("late")
    Stream(ledger, "lines").unsubscribe("late")
    kept = ledger.run(drops.drops(ledger.core))
    assert [(one.rows, one.why) for one in kept] == [
        (5, "subscription late was dropped"), (4, "over max_bytes"), (3, "over max_bytes"),
    ]  # fmt: skip


def now(ledger: Ledger) -> float:
    """The server's clock, in seconds."""
    [instant] = ledger.store.send([Request(ledger.core.shards[0].clock, ["TIME"])])
    return seconds(instant)
