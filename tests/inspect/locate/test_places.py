"""Places of a tree's tuples, which prove themselves by their XOR."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acker.errors import ValidationError
from acker.inspect.locate import search
from acker.inspect.locate import stuck as stuck_places
from acker.inspect.locate import why as looking
from acker.inspect.locate.search import SearchCursor
from acker.inspect.locate.stuck import StuckPage, stuck
from acker.inspect.locate.why import Why, why
from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.commits.commit import commit as committing
from acker.streams.commits.contents import Commit
from acker.streams.log import holders
from acker.streams.log.subscriptions import Range
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts.replays import emit_recorded
from acker.streams.staging.staging import Staging
from acker.streams.upkeep import retention
from tests.helpers.builders.streaming import ack, after_each, commit, emit, run_cut, stage, take
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.models.places import unexplained
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster


def ask(ledger: Ledger, anchor: int, **how: Any) -> Why:
    return ledger.run(why(ledger.core, int(anchor), **how))


def whole(ledger: Ledger, anchor: int, **how: Any) -> Why:
    """All pages in one; the last one says whether that is all."""
    answer = ask(ledger, anchor, **how)
    found = list(answer.places)
    while answer.cursor:
        answer = ask(ledger, anchor, cursor=answer.cursor, **how)
        found += answer.places
    return Why(answer.anchor, answer.tree, answer.ended, tuple(found), answer.complete, answer.rest)


def look_for_stuck(ledger: Ledger) -> StuckPage:
    return ledger.run(stuck(ledger.core))


def test_one_row_of_ten_thousand_is_stuck_with_one_of_two_subscriptions(ledger: Ledger) -> None:
    words = Stream(ledger, "words")
    for name in ("audit", "count"):
        words.subscribe(name)
    [anchor] = emit(ledger, 1)
    batch = take(ledger, "lines")
    pieces = (stage(ledger, np.full(9_999, anchor), rows=1_000), stage(ledger, [anchor]))
    commit(ledger, 0, Commit(pieces, (batch,)))
    had = take(ledger, "words", "count")
    ack(ledger, Range(had.stream, had.slot, had.reader, had.start, had.end - 1))
    answer = ask(ledger, anchor, rows=True)
    assert (answer.complete, answer.rest) == (True, "")
    of = {name: [one for one in answer.places if one.subscription == name] for name in ("audit", "count")}
    assert sum(one.rows or 0 for one in of["audit"]) == 10_000
    assert {(one.stream, one.taken_by) for one in of["audit"]} == {("words", None)}
    assert of["audit"][0].row_numbers == tuple(range(100))
    [stuck] = of["count"]
    assert (stuck.rows, stuck.row_numbers) == (1, (0,))
    assert stuck.taken_by is not None
    assert (stuck.taken_by.reader, stuck.taken_by.query) == ("reader", "")
    ack(ledger, take(ledger, "words", "audit"))
    answer = ask(ledger, anchor, rows=True)
    assert ([one.segment for one in answer.places], answer.complete) == ([stuck.segment], True)


def test_it_names_the_query_and_batch_that_have_taken_a_row_and_its_step(ledger: Ledger) -> None:
    [anchor] = emit(ledger, 1)
    assert ask(ledger, anchor).places[0].taken_by is None
    batch = take(ledger, "lines")
    ledger.store.send([holders.note_request(ledger.core, batch, "5f0c", 17)])
    [place] = ask(ledger, anchor).places
    assert place.taken_by is not None
    assert place.taken_by.text() == "query 5f0c (batch 17)"
    step = Step("split", "bolt", application="nightly", query_id="5f0c", query="words", reads=("lines",))
    ledger.run(step_registry.register(ledger.core, step))
    # Of the steps of its query it is the one that reads the stream.
    other = Step("other", "bolt", application="nightly", query_id="5f0c", query="words", reads=("more",))
    ledger.run(step_registry.register(ledger.core, other))
    [place] = ask(ledger, anchor).places
    assert place.since is not None
    assert place.text().startswith("in stream lines for subscription default, published ")
    assert place.text().endswith(" s ago, taken by split (application nightly, query words, batch 17)")
    # What it has taken after that batch is of another one.
    [other] = emit(ledger, 1)
    take(ledger, "lines")
    assert ask(ledger, other).places[0].taken_by is not None
    assert ask(ledger, other).places[0].taken_by.batch is None  # type: ignore[union-attr]
    Stream(ledger, "lines").give_back("reader")
    assert [place.taken_by for place in ask(ledger, anchor).places] == [None]


def test_a_stream_with_the_name_of_the_bolt_that_emits_it_is_not_held_by_that_bolt(ledger: Ledger) -> None:
    [anchor] = emit(ledger, 1)
    Stream(ledger, "split.words").subscribe("default")
    pieces = (stage(ledger, [anchor], "split.words"), stage(ledger, [anchor], "split.held"))
    batch = take(ledger, "split.held", reader="split")  # as collector.held does
    commit(ledger, 0, Commit(pieces, (take(ledger, "lines"), batch)))
    step = Step("split", "bolt", query_id="5f0c", emits=("split.words", "split.held"))
    ledger.run(step_registry.register(ledger.core, step))
    found = {place.stream: place.held_by for place in ask(ledger, anchor).places}
    assert found == {"split.words": "", "split.held": "held by bolt split for a later batch"}


def test_what_a_commit_has_applied_and_not_published_is_found_too(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_by_script(monkeypatch)
    [anchor] = emit(ledger, 1)
    batch = take(ledger, "lines")
    staged = stage(ledger, [anchor, anchor])
    seen = set()
    for _ in after_each(ledger, committing(ledger.core, "writer", 0, Commit((staged,), (batch,)))):
        answer = ask(ledger, anchor)
        assert answer.complete is True, answer
        seen.add(tuple(sorted(place.commit for place in answer.places)))
        assert "lines" in {place.stream for place in answer.places} or len(answer.places) == 1
    assert ("", "query writer, batch 0") in seen
    [place] = ask(ledger, anchor).places
    assert (place.stream, place.commit) == ("words", "")


def test_rows_that_a_commit_tracks_are_found_wherever_it_is_cut(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_by_script(monkeypatch)
    how, rows = SpoutOptions("s", "lines", "line"), pa.table({"line": ["a", "b"]})
    made, staged = ledger.run(
        emit_recorded(ledger.core, how, Staging("lines"), rows.combine_chunks().to_batches())
    )
    ledger.run(step_registry.register(ledger.core, Step("s", "spout", query_id="5f0c")))
    anchor = made[0].anchors()[0]
    seen = set()
    for _ in after_each(ledger, committing(ledger.core, "5f0c", 0, Commit((staged,), made))):
        answer = ask(ledger, anchor)
        if answer.tree is not None:
            assert answer.complete is True, answer
            seen |= {place.text() for place in answer.places if place.commit}
    assert seen == {
        "in a commit that is under way and tracks it: query 5f0c, batch 0",
        "on the way into stream lines for its first subscription: a commit is under way: query 5f0c, batch 0",
    }
    assert [place.rows for place in ask(ledger, anchor, rows=True).places] == [1]


def test_a_tuple_in_no_stream_makes_the_answer_incomplete_and_says_what_it_may_be(ledger: Ledger) -> None:
    [anchor] = emit(ledger, 1)
    [extra] = ids.new_ids(1)
    ledger.update([anchor], [extra])
    answer = ask(ledger, anchor)
    assert answer.complete is False
    assert answer.rest == looking.IN_NO_STREAM
    assert len(answer.places) == 1
    ledger.update([anchor], [extra])
    assert ask(ledger, anchor).complete is True


def test_what_the_limits_have_dropped_is_in_no_stream(ledger: Ledger) -> None:
    [anchor] = emit(ledger, 1)
    emit(ledger, 1)
    Stream(ledger, "lines").limit(max_bytes=1)
    assert ledger.run(retention.retain(ledger.core, "lines")) == 1
    answer = ask(ledger, anchor)
    assert (answer.complete, answer.places) == (False, ())


def test_trees_that_are_over_unknown_or_not_tracked_yet_are_said_to_be(ledger: Ledger) -> None:
    [acked, failed] = emit(ledger, 2)
    batch = take(ledger, "lines")
    ledger.fail([failed], "bad record")
    assert ask(ledger, failed).rest == "it has failed: bad record"
    ack(ledger, batch)
    assert ask(ledger, acked).rest.startswith("it is over")
    unknown = int(ids.new_anchors(1)[0])
    assert ask(ledger, unknown).rest == looking.UNKNOWN
    assert ask(ledger, unknown).complete is None
    waiting = ids.new_anchors(1)
    ledger.update(waiting, ids.new_ids(1))
    assert ask(ledger, int(waiting[0])).rest == looking.NO_TRACK
    with pytest.raises(ValidationError, match="anchor"):
        ask(ledger, 2**63)


def test_more_segments_than_one_call_looks_at_come_page_by_page_and_the_last_one_proves_all(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_SEGMENTS", 7)
    monkeypatch.setattr(search, "_PAGE", 3)
    [anchor] = emit(ledger, 1)
    batch = take(ledger, "lines")
    pieces = tuple(
        stage(ledger, [anchor, anchor], stream, rows=1) for stream in ("a", "b") for _ in range(10)
    )
    commit(ledger, 0, Commit(pieces, (batch,)))
    first = ask(ledger, anchor)
    assert first.complete is None
    assert first.rest == "looked at 9 of about 40 segments"
    answer = whole(ledger, anchor)
    assert (answer.complete, len(answer.places), len(set(answer.places))) == (True, 40, 40)
    # What is acked between two pages has been counted: all that can be said is that the tree went on.
    ack(ledger, take(ledger, "a"))
    assert first.cursor is not None
    rest = ask(ledger, anchor, cursor=first.cursor)
    while rest.cursor:
        rest = ask(ledger, anchor, cursor=rest.cursor)
    assert (rest.complete, rest.rest) == (None, looking.MOVED)
    far = SearchCursor(1, "lines", f"{1 << 64}-0").text(int(anchor))
    for bad in ("", "x", "é", "MA", far, first.cursor[:-8], first.cursor * 2000):
        with pytest.raises(ValidationError, match="cursor"):
            ask(ledger, anchor, cursor=bad)
    with pytest.raises(ValidationError, match="cursor"):
        ask(ledger, int(emit(ledger, 1)[0]), cursor=first.cursor)


def test_what_is_stuck_is_summed_by_who_has_it_and_how_much_nobody_has(ledger: Ledger) -> None:
    assert look_for_stuck(ledger).stuck == ()
    Stream(ledger, "lines").subscribe("count")
    Stream(ledger, "lines").subscribe("audit")
    for _ in range(4):
        emit(ledger, 10)
    batch = take(ledger, "lines", "count", segments=2)
    ledger.store.send([holders.note_request(ledger.core, batch, "5f0c", 3)])
    ack(ledger, Range(batch.stream, batch.slot, batch.reader, 0, 1))
    count, audit = look_for_stuck(ledger).stuck
    assert (count.subscription, count.segments, count.rows) == ("count", 3, 30)
    [mine] = [share for share in count.shares if share.holder is not None]
    assert mine.holder is not None
    assert (mine.segments, mine.rows, mine.holder.query, mine.holder.batch) == (1, 10, "5f0c", 3)
    assert (audit.subscription, audit.segments, [share.holder for share in audit.shares]) == (
        "audit", 4, [None],
    )  # fmt: skip
    ack(ledger, take(ledger, "lines", "audit"))
    Stream(ledger, "lines").give_back("reader", "count")
    [count] = look_for_stuck(ledger).stuck
    assert [(share.holder, share.segments) for share in count.shares] == [(None, 3)]


def test_stuck_rows_come_by_whole_subscriptions(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_places, "MOST_SEGMENTS", 3)
    for stream in ("a", "b", "c"):
        for _ in range(2):
            emit(ledger, 1, stream)
    page = look_for_stuck(ledger)
    assert [(one.stream, one.segments, one.partly) for one in page.stuck] == [
        ("a", 2, False),
        ("b", 2, False),
    ]
    rest = ledger.run(stuck(ledger.core, cursor=page.cursor))
    assert ([one.stream for one in rest.stuck], rest.cursor) == (["c"], None)
    for _ in range(3):
        emit(ledger, 1, "c")
    rest = ledger.run(stuck(ledger.core, cursor=page.cursor))
    assert [(one.segments, one.partly) for one in rest.stuck] == [(3, True)]
    for bad in ("", "c/0", "Yw", "Yy94"):
        with pytest.raises(ValidationError, match="cursor"):
            ledger.run(stuck(ledger.core, cursor=bad))


def test_a_cut_look_does_not_say_that_all_is_well(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_places, "MOST_SEGMENTS", 3)
    for _ in range(3):
        emit(ledger, 1)
    ack(ledger, take(ledger, "lines"))  # as a reader whose batch may run again: it has not forgotten them
    emit(ledger, 2)
    [one] = look_for_stuck(ledger).stuck
    assert (one.stream, one.segments, one.rows, one.partly) == ("lines", 0, 0, True)
    monkeypatch.setattr(stuck_places, "MOST_SEGMENTS", 4)
    [one] = look_for_stuck(ledger).stuck
    assert (one.segments, one.rows, one.partly) == (1, 2, True)


def test_readers_that_give_a_stream_up_leave_no_note_of_what_they_had(ledger: Ledger, url: str) -> None:
    emit(ledger, 1)
    batch = take(ledger, "lines")
    ledger.store.send([holders.note_request(ledger.core, batch, "5f0c", 3)])
    Stream(ledger, "lines").give_back("reader")
    with raw_client(url) as client:
        assert list(client.scan_iter("*holder*")) == []


_STEPS = st.lists(
    st.tuples(st.sampled_from(["spout", "split", "ack", "fail", "give back", "cut"]), st.integers(0, 5)),
    max_size=14,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=_STEPS)
def test_the_xor_of_the_places_is_the_ack_value(valkey_url: str, history: list[tuple[str, int]]) -> None:
    with raw_client(valkey_url) as client:
        client.flushall()
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    for name in ("a", "b"):
        Stream(ledger, "words").subscribe(name)
    anchors: list[int] = []
    for number, (what, seed) in enumerate(history):
        _step(ledger, what, seed, number, anchors)
        assert unexplained(ledger) == [], what
        for anchor in _pending(ledger)[:3]:
            assert ask(ledger, anchor).complete is True, (what, anchor)


def _pending(ledger: Ledger) -> list[int]:
    return [tree.anchor for tree in ledger.run(pages.trees(ledger.core, limit=1000)).trees]


def _step(ledger: Ledger, what: str, seed: int, number: int, anchors: list[int]) -> None:
    if what == "spout":
        anchors += map(int, emit(ledger, 1 + seed, slab=1 + seed % 3))
        return
    if what in ("split", "cut"):
        batch = take(ledger, "lines", reader=f"r{number}", segments=1)
        if batch.end == batch.start or not anchors:
            return
        chosen = [anchors[(seed + n) % len(anchors)] for n in range(3)]
        rows: list[Any] = [chosen[:2], [chosen[2]]] if len(set(chosen)) == 3 else list(chosen[:1])
        alive = set(_pending(ledger))
        rows = [one for one in rows if set(one if isinstance(one, list) else [one]) <= alive]
        if not rows:
            return
        staged = stage(ledger, rows, f"words{'s' if isinstance(rows[0], list) else ''}")
        operation = committing(ledger.core, f"w{number}", 0, Commit((staged,), (batch,)))
        run_cut(ledger, operation, seed if what == "cut" else 1000)
    elif what == "ack":
        ack(ledger, take(ledger, "words", "ab"[seed % 2], reader=f"r{number}", segments=1 + seed))
    elif what == "fail" and anchors:
        ledger.fail([anchors[seed % len(anchors)]], "bad")
    elif what == "give back":
        for reader in Stream(ledger, "words").readers("a"):
            Stream(ledger, "words").give_back(reader, "a")
