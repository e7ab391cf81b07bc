"""Places of trees among more segments than a call reads: all pages prove all. The bounds are a tenth."""

import pytest

from acker.inspect.locate import expiry_reasons, search, stuck, why
from acker.inspect.locate.why import Why
from acker.inspect.trees import failures
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.tick import tick
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.commits.commit import commit as committing
from acker.streams.commits.contents import Commit
from tests.helpers.builders.streaming import commit, emit, stage, take
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.faults.simulator import scripts_of

SEGMENTS = 1_001


def ask(ledger: Ledger, anchor: int) -> list[Why]:
    """All pages of the answer."""
    pages = [ledger.run(why.why(ledger.core, anchor))]
    while pages[-1].cursor is not None:
        assert (pages[-1].complete, len(pages[-1].cursor) <= search.MOST_CURSOR) == (None, True)
        pages.append(ledger.run(why.why(ledger.core, anchor, cursor=pages[-1].cursor)))
    return pages


def test_each_place_among_many_segments_is_found(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script_by_script(monkeypatch)
    bounds = {"MOST_SEGMENTS": 1_000, "MOST_PLACES": 100, "MOST_SEEN": 50, "_PAGE": 50}
    for name, bound in bounds.items():
        monkeypatch.setattr(search, name, bound)
    monkeypatch.setattr(stuck, "MOST_SEGMENTS", 1_000)
    monkeypatch.setattr(expiry_reasons, "_PAGE", 50)
    ledger = open_ledger(Store(valkey_url), "t", ackers=2, message_timeout=600.0)
    wide, last = emit(ledger, 2).tolist()
    Stream(ledger, "words").subscribe("count")
    batch = take(ledger, "lines")
    what = Commit((stage(ledger, [wide] * SEGMENTS + [last], rows=1),), (batch,))

    # Before they are published, a cursor cannot name them all: that it does not know then, it says.
    operation = committing(ledger.core, "writer", 0, what)
    asked = next(operation)
    while "publish" not in scripts_of(asked):
        asked = operation.send(ledger.store.send(asked))
    pages = ask(ledger, wide)
    there = {place.segment for page in pages for place in page.places if place.commit}
    assert len(there) == SEGMENTS
    assert (pages[-1].complete, pages[-1].rest) == (None, why.MANY)

    commit(ledger, 0, what)
    pages = ask(ledger, wide)
    places = [place for page in pages for place in page.places]
    assert len(places) == len({place.entry for place in places}) == SEGMENTS
    assert {(place.stream, place.subscription) for place in places} == {("words", "count")}
    assert max(len(page.places) for page in pages) <= search.MOST_PLACES + 50
    assert (pages[-1].complete, pages[-1].rest) == (True, "")
    # Of the one in the last segment the first call finds nothing.
    [first, second] = ask(ledger, last)
    assert (first.places, first.rest) == ((), "looked at 1,000 of about 1,002 segments")
    assert ([place.stream for place in second.places], second.complete) == (["words"], True)

    # A tick looks at as many: of the tree that it did not come to it says nothing, and nothing false.
    monkeypatch.setattr(tick, "HOLD", 100.0)  # the machine may be busy
    for _ in range(3):
        ledger.run(tick.tick(ledger.core, force=True, explain=expiry_reasons.explain))
    ended = [ledger.run(failures.find(ledger.core, anchor)) for anchor in (wide, last)]
    assert [one.cause.reason for one in ended if one is not None] == [
        "in stream words for subscription count, taken by nobody", "",
    ]  # fmt: skip

    emit(ledger, 3, "x")
    page = ledger.run(stuck.stuck(ledger.core))
    assert [(one.stream, one.segments, one.rows, one.partly) for one in page.stuck] == [
        ("words", stuck.MOST_SEGMENTS, stuck.MOST_SEGMENTS, True)
    ]
    assert page.cursor is not None
