"""Reasons of expired trees: they name the places of the tuples when a ticker looked."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import redis

from acker.inspect.locate import expiry_reasons, tuples
from acker.inspect.locate.expiry_reasons import IN_NO_STREAM, explain
from acker.inspect.locate.place import Place
from acker.inspect.locate.tuples import Location
from acker.inspect.locate.why import why
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.operate.ticker_hooks import explain as guarded
from acker.inspect.trees import failure_groups, failures
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import MOST_STEPS
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.tick import tick
from acker.ledger.tick.ticker import Ticker
from acker.store.client import Store
from acker.store.operation import Operation
from acker.streams import Stream
from acker.streams.commits.commit import commit as committing
from acker.streams.commits.contents import Commit
from acker.streams.log import holders
from tests.helpers.builders.streaming import (
    ack,
    after_each,
    commit,
    consume,
    emit,
    stage,
    take,
    track,
)
from tests.helpers.builders.tickers import running, silence
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.servers.servers import raw_client, wait_until

pytestmark = pytest.mark.cluster


def expire(ledger: Ledger, rounds: int = 4) -> int:
    """Ticks until all that is pending has expired; returns how many trees did."""
    ticking = partial(tick.tick, ledger.core, force=True, explain=explain)
    return sum(ledger.run(ticking()).expired for _ in range(rounds))


def reason(ledger: Ledger, anchor: int) -> str:
    found = ledger.run(failures.find(ledger.core, int(anchor)))
    assert found is not None
    assert found.status == "expired"
    return found.cause.reason


def causes(ledger: Ledger, *anchors: int) -> list[Cause]:
    found = [ledger.run(failures.find(ledger.core, int(anchor))) for anchor in anchors]
    return [one.cause for one in found if one is not None]


def test_expirations_are_counted_by_the_step_that_had_the_rows(ledger: Ledger) -> None:
    for name, reads in (("split", "lines"), ("count", "words"), ("s", "")):
        kind = "bolt" if reads else "spout"
        ledger.run(
            step_registry.register(ledger.core, Step(name, kind, "app", reads=(reads,) if reads else ()))
        )
    Stream(ledger, "pages").subscribe("render")
    emit(ledger, 3, "words")
    taken, waiting = emit(ledger, 2, "lines"), emit(ledger, 1, "pages")
    take(ledger, "lines")
    assert expire(ledger) == 6
    assert {cause.step for cause in causes(ledger, *taken)} == {"split"}
    assert [cause.step for cause in causes(ledger, *waiting)] == ["render"]
    counted = ledger.run(failure_groups.groups(ledger.core))
    assert [(one.count, one.step) for one in counted.groups] == [(3, "count"), (2, "split"), (1, "render")]
    assert [sum(one.lately[-2:]) for one in counted.groups] == [3, 2, 1], "five minutes may have just begun"
    assert {len(one.lately) for one in counted.groups} == {failure_groups.SLICES}
    before = counted.lately_until - 3 * failure_groups.SLICE_SECONDS
    earlier = replace(counted, groups=tuple(map(replace, counted.groups)), lately_until=before)
    both = failure_groups.add_up([earlier, counted])
    assert [(one.count, sum(one.lately[-5:-2]), sum(one.lately)) for one in both.groups] == [
        (6, 3, 6), (4, 2, 4), (2, 1, 2),
    ]  # fmt: skip
    only = ledger.run(failures.page(ledger.core, step="split", status="expired"))
    assert {tree.anchor for tree in only.trees} == {int(anchor) for anchor in taken}


def split(ledger: Ledger, anchors: Ids, stream: str, number: int) -> None:
    """A bolt that takes all lines there are and emits rows of some of their trees."""
    batch = take(ledger, "lines", reader=f"r{number}")
    commit(ledger, number, Commit((stage(ledger, anchors, stream),), (batch,)))


def test_trees_of_one_slab_expire_each_with_its_own_place(ledger: Ledger) -> None:
    Stream(ledger, "words").subscribe("audit")
    Stream(ledger, "words").subscribe("count")
    anchors = emit(ledger, 10)
    split(ledger, anchors[:7], "words", 0)  # what is not emitted is acked
    had = take(ledger, "words", "count")
    ledger.store.send([holders.note_request(ledger.core, had, "5f0c", 17)])
    [lost] = emit(ledger, 1, "other")
    ack(ledger, take(ledger, "other"))
    ledger.update(anchors[:1], ids.new_ids(1))
    [late] = emit(ledger, 1, "late")
    batch = take(ledger, "late")
    extra = ids.new_anchors(1)
    ledger.track(extra, ids.new_ids(1), ["m"], spout="s")
    assert expire(ledger) == 9
    ack(ledger, batch)  # too late
    place = "in stream words for subscription audit, taken by nobody; "
    place += "in stream words for subscription count, taken by query 5f0c (batch 17)"
    assert {reason(ledger, anchor) for anchor in anchors[:7]} == {place}
    assert reason(ledger, late).startswith(
        "in stream late for subscription default, taken by reader reader, "
    )
    assert reason(ledger, extra[0]) == IN_NO_STREAM
    assert {cause.step for cause in causes(ledger, *anchors[:7], late, extra[0])} == {""}, "no one step"
    assert ledger.run(failures.find(ledger.core, int(lost))) is None


def test_a_reason_and_why_say_which_steps_have_seen_the_slab_of_a_tree(ledger: Ledger) -> None:
    anchors = emit(ledger, 10)
    by = ledger.run(step_totals.mark(ledger.core, "split", 16))
    ledger.run(step_totals.mark(ledger.core, "store"))
    batch = take(ledger, "lines")
    commit(ledger, 0, Commit((stage(ledger, anchors[:7], "words"),), (batch,), by=by))
    [split, store] = ledger.run(why(ledger.core, int(anchors[0]))).seen
    assert (split.step, split.batch, store.step, store.at, store.age) == ("split", 16, "store", None, None)
    assert split.age is not None
    assert split.age < 60
    ledger.update(anchors[:1], ids.new_ids(1))
    consume(ledger, "words")
    assert expire(ledger) == 1
    seen = "split (batch 16) was the last to ack tuples of its slab; none in two message timeouts by store"
    assert reason(ledger, anchors[0]) == f"{IN_NO_STREAM}; {seen}"
    [alone] = emit(ledger, 1, slab=1)
    assert ledger.run(why(ledger.core, int(alone))).seen == ()


def test_a_256th_step_is_counted_with_others_and_is_one_of_them_in_reasons_and_traces(url: str) -> None:
    ledger = open_ledger(Store(url), "t", ackers=1, traces=1)
    for number in range(MOST_STEPS):
        ledger.run(step_totals.mark(ledger.core, f"s{number}"))
    anchors = emit(ledger, 4)
    batch = take(ledger, "lines")
    by = ledger.run(step_totals.mark(ledger.core, "late", 7))
    commit(ledger, 0, Commit((stage(ledger, anchors[:2]),), (batch,), by=by))
    answer = ledger.run(why(ledger.core, int(anchors[0])))
    assert (answer.seen[0].step, answer.seen[0].batch, answer.seen[1].at) == (step_totals.OTHERS, 7, None)
    assert answer.trace[-1].text() == "acked 1 row of stream lines by (others), batch 7"
    assert [(one.step, one.tuples) for one in ledger.run(step_totals.totals(ledger.core))] == [
        (step_totals.OTHERS, 4)
    ]
    assert expire(ledger) == 2
    seen = (
        "(others) (batch 7) was the last to ack tuples of its slab; none in two message timeouts by s0, s1, "
    )
    assert f"; {seen}" in reason(ledger, anchors[0])


def test_segments_staged_without_marks_are_acked(ledger: Ledger, raw: "redis.Redis") -> None:
    anchors = emit(ledger, 10)
    staged = stage(ledger, anchors)
    for key in raw.scan_iter("*:staged:*"):
        raw.hdel(key, "tuples:0", "trees:0")
    by = ledger.run(step_totals.mark(ledger.core, "split", 16))
    batch = take(ledger, "lines")
    commit(ledger, 0, Commit((staged,), (batch,), by=by))
    commit(ledger, 1, Commit(inputs=(take(ledger, "words"),), by=by))
    assert ledger.counters()["acked"] == 10
    assert ledger.run(step_totals.totals(ledger.core)) == []


def test_a_topology_without_streams_says_who_has_acked(ledger: Ledger) -> None:
    anchors = ids.new_anchors(2)
    ledger.track(anchors, ids.new_ids(2), ["a", "b"], spout="s")
    by = ledger.run(step_totals.mark(ledger.core, "split"))
    ledger.submit(ledger.core.update(anchors, ids.new_ids(2), 0, by, 2).calls)
    assert expire(ledger) == 2
    assert reason(ledger, anchors[1]) == "split was the last to ack tuples of its slab"


def test_runs_of_trees_with_different_reasons_and_holes_in_between(ledger: Ledger) -> None:
    anchors = emit(ledger, 1000)
    split(ledger, anchors, "words", 0)
    had = take(ledger, "words")
    pieces = (stage(ledger, anchors[::3], "a"), stage(ledger, anchors[1::3], "b"))
    commit(ledger, 1, Commit(pieces, (had,)))
    assert ledger.counters()["acked"] == 333
    assert expire(ledger) == 667
    assert {reason(ledger, anchor).split(" for ")[0] for anchor in anchors[::3]} == {"in stream a"}
    assert {reason(ledger, anchor).split(" for ")[0] for anchor in anchors[1::3]} == {"in stream b"}


def test_more_reasons_than_a_tick_tells_apart_keep_the_most_frequent(ledger: Ledger) -> None:
    anchors = emit(ledger, 100)
    batch = take(ledger, "lines")
    pieces = [stage(ledger, np.repeat(anchors[n], 1), f"s{n}") for n in range(40)]
    pieces.append(stage(ledger, anchors[40:], "many"))
    commit(ledger, 0, Commit(tuple(pieces), (batch,)))
    assert expire(ledger) == 100
    assert reason(ledger, anchors[99]).startswith("in stream many for")
    found = Counter(reason(ledger, anchor)[:10] for anchor in anchors[:40])
    assert found == {"in stream ": tick.MOST_REASONS - 2, "": 40 - (tick.MOST_REASONS - 2)}


def test_trees_in_a_commit_that_its_driver_left_half_done_are_said_to_be_there(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_by_script(monkeypatch)
    [anchor] = emit(ledger, 1)
    batch = take(ledger, "lines")
    what = Commit((stage(ledger, [anchor]),), (batch,))
    places: Sequence[Place] = ()
    for _ in after_each(ledger, committing(ledger.core, "writer", 0, what)):
        places = ledger.run(why(ledger.core, int(anchor))).places
        if {place.stream: place.commit for place in places} == {"words": "query writer, batch 0"}:
            break
    silence(ledger)
    assert expire(ledger) == 1
    assert reason(ledger, anchor) == "; ".join(place.text(timed=False) for place in places)


def test_a_look_at_many_large_segments_takes_a_bounded_number_of_their_trees_at_a_time(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_reasons, "_MOST_ROWS", 20)
    monkeypatch.setattr(expiry_reasons, "MOST_TREES", 30)
    looks: list[int] = []
    seen = tuples.look

    def look(core: Core, there: Sequence[Location], slabs: Any) -> Any:
        looks.append(sum(one.segment.rows for one in there))
        return seen(core, there, slabs)

    monkeypatch.setattr(tuples, "look", look)
    emitted = [emit(ledger, 15) for _ in range(5)]
    assert expire(ledger) == 75
    assert max(looks) == 30
    texts = [{reason(ledger, anchor) for anchor in anchors} for anchors in emitted]
    where = "in stream lines for its first subscription, taken by nobody"
    assert texts == [{where}] * 4 + [{""}]


def test_trees_without_a_look_expire_all_the_same(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry_reasons, "SECONDS", -1.0)
    [anchor] = emit(ledger, 1)
    assert expire(ledger) == 1
    assert reason(ledger, anchor) == ""


def test_what_is_set_aside_after_a_look_is_left_to_those_who_look_after_that(ledger: Ledger) -> None:
    anchors = emit(ledger, 3)

    def overtaken(core: Core) -> Operation[tick.Reasons]:
        found = yield from explain(core)
        for _ in range(3):
            yield from tick.rotate(core, force=True)
        return found

    assert ledger.run(tick.tick(ledger.core, explain=overtaken)).expired == 0
    assert expire(ledger, 1) == 3
    assert reason(ledger, anchors[0]).startswith("in stream lines for")


def test_reasons_that_are_always_old_are_not_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "HOLD", -1.0)
    anchors = emit(ledger, 3)
    looks: list[Core] = []

    def counted(core: Core) -> Any:
        looks.append(core)
        return explain(core)

    for _ in range(2):
        ledger.run(tick.tick(ledger.core, force=True))
    assert ledger.run(tick.tick(ledger.core, force=True, explain=counted)).expired == 3
    assert len(looks) == tick.MOST_LOOKS
    assert reason(ledger, anchors[0]) == ""


def test_a_bad_stream_keeps_no_tree(ledger: Ledger, url: str, caplog: pytest.LogCaptureFixture) -> None:
    [anchor] = emit(ledger, 1)
    Stream(ledger, "lines").subscribe("count")
    with raw_client(url) as client:
        client.hset("acker:{t/lines}:subscriptions", "slot:x", "count")
    ticking = partial(tick.tick, ledger.core, force=True, explain=guarded)
    assert sum(ledger.run(ticking()).expired for _ in range(4)) == 1
    assert reason(ledger, anchor) == ""
    assert "it is not known where they were" in caplog.text


def test_a_topology_without_streams_says_nothing(ledger: Ledger) -> None:
    anchors = ids.new_anchors(2)
    ledger.track(anchors, ids.new_ids(2), ["a", "b"], spout="s")
    assert expire(ledger) == 2
    assert reason(ledger, anchors[0]) == ""


def test_the_ticker_looks_for_reasons(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "quick", ackers=1, message_timeout=1.0, downtime=0)
    [anchor] = emit(ledger, 1)
    with running(Ticker(Store(valkey_url), hooks=HOOKS)):
        wait_until(lambda: ledger.counters()["expired"] == 1)
    assert reason(ledger, anchor) == "in stream lines for its first subscription, taken by nobody"


def test_an_end_without_a_reason_is_told_without_one(valkey_url: str) -> None:
    """A topology has no streams in which its trees could be, or nobody looked."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    [anchor] = track(ledger, ids.new_ids(1)).tolist()
    for _ in range(3):
        ledger.tick(force=True)
    assert ledger.run(why(ledger.core, anchor)).rest == "it has expired"
