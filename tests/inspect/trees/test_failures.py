"""The latest failures and expirations: exact, with message ids, and bounded."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import redis

from acker.errors import ValidationError
from acker.inspect.trees import failures
from acker.inspect.trees.failure import Failure
from acker.inspect.trees.failures import Numbers
from acker.ledger import ids
from acker.ledger.calls import encoding, scripts
from acker.ledger.calls.encoding import TreesCall
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause
from tests.helpers.builders.ledgers import Trees, confirm_all, opened, reported

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=3)


def listed(ledger: Ledger, limit: int = 100, **asked: Any) -> list[Failure]:
    found: list[Failure] = []
    cursor = None
    while True:
        page = ledger.run(failures.page(ledger.core, limit=limit, cursor=cursor, **asked))
        assert len(page.trees) <= limit
        found += page.trees
        cursor = page.cursor
        if cursor is None:
            return found


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def facts(trees: list[Failure]) -> dict[int, tuple[str, str, bytes | None, str | None]]:
    return {tree.anchor: (tree.status, tree.cause.reason, tree.message_id, tree.spout) for tree in trees}


@pytest.mark.parametrize("named", ["message {}", "message {:05}", "", "{0}" * 7])
def test_failures_and_expirations_are_reported_after_they_were_confirmed(ledger: Ledger, named: str) -> None:
    anchors, names = ids.new_anchors(300), [named.format(index).encode() for index in range(300)]
    ledger.track(anchors, ids.new_ids(300), names, spout="lines")
    one = ids.new_anchors(1)
    ledger.track(one, ids.new_ids(1), [b"\xff<b>"], spout="others")
    ledger.fail(anchors[[1, 7, 299]], "no such word")
    ledger.fail(anchors[20:120], "many")
    ledger.fail(one, "alone")
    confirm_all(ledger, "lines")
    expire(ledger)
    confirm_all(ledger, "lines")
    confirm_all(ledger, "others")
    expected: dict[int, tuple[str, str, bytes, str]] = {
        int(one[0]): ("failed", "alone", b"\xff<b>", "others")
    }
    for index, anchor in enumerate(anchors.tolist()):
        status, reason = ("failed", "many") if 20 <= index < 120 else ("expired", "")
        if index in (1, 7, 299):
            status, reason = "failed", "no such word"
        expected[anchor] = (status, reason, names[index], "lines")
    found = listed(ledger, 37)
    assert len(found) == len(expected)
    assert facts(found) == expected
    assert [tree.at for tree in found] == sorted((tree.at for tree in found), reverse=True)
    assert facts(listed(ledger, status="failed", spout="lines")).keys() == set(
        anchors[[1, 7, 299, *range(20, 120)]].tolist()
    )
    assert listed(ledger, status="expired", spout="others") == []
    assert facts(listed(ledger, 37, reason="SUCH")).keys() == set(anchors[[1, 7, 299]].tolist())
    assert listed(ledger, reason="such", status="expired") == listed(ledger, reason="such word!") == []


def test_a_tree_that_failed_before_its_track_is_reported(ledger: Ledger) -> None:
    trees = Trees(5)
    ledger.fail(trees.anchors[[0, 3]], "early")
    assert listed(ledger) == []
    trees.track(ledger)
    assert facts(listed(ledger)) == {
        trees.anchors[index]: ("failed", "early", b"message %d" % index, "s") for index in (0, 3)
    }


def test_acks_are_not_kept(ledger: Ledger) -> None:
    trees = Trees(50).track(ledger)
    trees.complete(ledger)
    Trees(1).track(ledger).complete(ledger)
    assert listed(ledger) == []
    assert set(ledger.run(failures.numbers(ledger.core)).values()) == {Numbers()}


@pytest.mark.parametrize(("slab", "text"), [(500, "negative: {}"), (1, "negative: {}"), (500, "{:>1000}")])
def test_trees_that_fail_at_once_have_reasons(url: str, raw: "redis.Redis", slab: int, text: str) -> None:
    ledger = opened(url)
    trees = [Trees(slab).track(ledger) for _ in range(500 // slab)]
    anchors = np.concatenate([one.anchors for one in trees])
    reasons = {int(anchor): text.format(n) for n, anchor in enumerate(anchors)}
    causes = [Cause(reason, "split", batch=n % 2).encode() for n, reason in enumerate(reasons.values())]
    submission = ledger.core.fail_each(anchors, causes)
    calls_for_one = len(ledger.core.fail(anchors, b"one").calls)
    assert len(submission.calls) == calls_for_one
    assert ledger.send(submission).failed == 500
    entries: Any = raw.xrange(ledger.core.shards[0].outcomes("s"))
    assert len(entries) <= (32 if text.startswith("{") else calls_for_one)
    assert max(len(fields[b"reasons"]) for _, fields in entries) < 16384 + 1100
    expected = Counter((anchor, "failed", reason) for anchor, reason in reasons.items())
    assert reported(ledger, *trees) == expected
    found = listed(ledger)
    assert Counter((one.anchor, one.status, one.cause.reason) for one in found) == expected
    assert {one.message_id for one in found} == {b"message %d" % index for index in range(slab)}
    [one] = listed(ledger, reason=text.format(77).strip()[-9:])[:1]
    assert one.cause == Cause(reasons[one.anchor], "split", batch=one.cause.batch)
    assert len(listed(ledger, step="split")) == 500
    assert ledger.run(failures.find(ledger.core, one.anchor)) == one
    assert ledger.run(failures.counted(ledger.core, 0)).failed == {("s", "split"): 500}
    assert confirm_all(ledger) == 500


def test_the_end_of_one_tree_is_found(ledger: Ledger) -> None:
    trees = Trees(600).track(ledger)
    others = [Trees(1).track(ledger) for _ in range(600)]
    for anchor in trees.anchors[:500]:
        ledger.fail([anchor], f"reason {anchor}")
    expire(ledger)
    for anchor in (trees.anchors[0], trees.anchors[499]):
        found = ledger.run(failures.find(ledger.core, int(anchor)))
        assert found is not None
        assert (found.status, found.cause.reason) == ("failed", f"reason {anchor}")
    for anchor in (trees.anchors[500], trees.anchors[599], others[0].anchors[0]):
        found = ledger.run(failures.find(ledger.core, int(anchor)))
        assert found is not None
        assert (found.anchor, found.status) == (anchor, "expired")
    assert ledger.run(failures.find(ledger.core, int(ids.new_anchors(1)[0]))) is None


def test_an_end_is_looked_for_in_few_steps_wherever_it_is(url: str) -> None:
    ledger = opened(url, outcomes_kept=2000)
    trees = Trees(2600).track(ledger)
    for part in np.split(trees.anchors, 650):
        ledger.fail(part, f"reason {part[3]}")
    last, middle = (int(trees.anchors[index]) for index in (-1, 1503))
    for anchor, reason, steps in (
        (last, f"reason {last}", 2),
        (middle, f"reason {middle}", 4),
        (-7, None, 4),
    ):
        operation, replies = failures.find(ledger.core, anchor), None
        for _ in range(steps):
            replies = ledger.store.send(operation.send(replies))  # type: ignore[arg-type]
        with pytest.raises(StopIteration) as end:
            operation.send(replies)  # type: ignore[arg-type]
        assert (end.value.value and end.value.value.cause.reason) == reason


def test_as_many_are_kept_as_the_topology_says_however_they_ended(url: str) -> None:
    ledger = opened(url, outcomes_kept=600)
    early = [Trees(100) for _ in range(9)]
    for trees in early:
        ledger.fail(trees.anchors, "early")
        trees.track(ledger)
    assert 600 <= len(listed(ledger)) <= 900
    late = Trees(100).track(ledger)
    for _ in range(9):
        Trees(100).track(ledger)
    ledger.fail(late.anchors, "late")
    assert set(late.anchors.tolist()) <= facts(listed(ledger)).keys()
    expire(ledger)
    found = listed(ledger)
    assert 600 <= len(found) <= 900
    assert {tree.status for tree in found} == {"expired"}


def test_a_bounded_number_is_kept_and_it_is_known_since_when(url: str) -> None:
    ledger = opened(url)
    slabs = [Trees(1000).track(ledger) for _ in range(13)]
    first, last = slabs[0], slabs[-1]
    ledger.fail(first.anchors, "first")
    assert ledger.run(failures.kept_since(ledger.core, int(first.anchors[0]))) is None
    for slab in slabs[1:]:
        ledger.fail(slab.anchors, "later")
    found = listed(ledger, 1000)
    assert 10_000 <= len(found) <= 11_000
    kept = facts(found)
    assert set(last.anchors.tolist()) <= kept.keys()
    assert first.anchors[0] not in kept
    since = ledger.run(failures.kept_since(ledger.core, int(first.anchors[0])))
    assert since == min(tree.at for tree in found)


def test_what_is_new_is_reported_once_and_counted_beyond_its_bound(ledger: Ledger) -> None:
    seen = ledger.run(failures.numbers(ledger.core))
    trees = Trees(100).track(ledger)
    ledger.fail(trees.anchors[:3], "first")
    new, now = ledger.run(failures.since(ledger.core, seen, 20))
    assert sorted(tree.anchor for tree in new) == sorted(trees.anchors[:3].tolist())
    assert ledger.run(failures.since(ledger.core, now, 20)) == ([], now)
    ledger.fail(trees.anchors[3:], "many")
    new, later = ledger.run(failures.since(ledger.core, now, 20))
    assert len(new) == 20
    assert sum(later[shard].ended - now[shard].ended for shard in now) == 97
    assert sum(later[shard].failed - now[shard].failed for shard in now) == 97


def test_a_failed_tree_in_each_of_many_big_slabs_keeps_its_message_id(url: str) -> None:
    ledger = opened(url)
    slabs = [ids.new_anchors(1000) for _ in range(90)]
    for anchors in slabs:
        names = [f"{index}" * 20 for index in range(1000)]
        ledger.track(anchors, ids.new_ids(1000), names, spout="s")
    ledger.fail(np.array([anchors[index] for anchors in slabs for index in (5, 555)]), "two of each")
    found = listed(ledger)
    assert len(found) == 180
    assert {tree.message_id for tree in found} == {b"5" * 20, b"555" * 20}


def test_a_call_that_names_too_many_big_slabs_leaves_message_ids_out(url: str) -> None:
    ledger = opened(url)
    slabs = [ids.new_anchors(1000) for _ in range(60)]
    for anchors in slabs:
        ledger.track(anchors, ids.new_ids(1000), [f"{index:0>100}" for index in range(1000)], spout="s")
    chosen = np.array([anchors[5] for anchors in slabs])
    submission = ledger.core.fail(chosen, b"one of each")
    assert len(submission.calls) == 2
    first, second = encoding.fail_calls(chosen, [b"one of each"], 1)
    both = TreesCall(
        0,
        first.slabs + second.slabs,
        first.counts + second.counts,
        first.indexes + second.indexes,
        first.reasons,
    )
    submission.calls[:] = [scripts.fail(ledger.core.config, ledger.core.shards[0], both)]
    assert ledger.send(submission).failed == 60
    named = [tree.message_id for tree in listed(ledger) if tree.message_id is not None]
    assert 30 < len(named) < 60
    assert set(named) == {b"5".zfill(100)}


@pytest.mark.parametrize("cursor", ["", "x", "é", "AAAA", "____" * 4])
def test_a_cursor_of_nothing_is_refused(ledger: Ledger, cursor: str) -> None:
    with pytest.raises(ValidationError):
        ledger.run(failures.page(ledger.core, cursor=cursor))
