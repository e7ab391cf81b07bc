"""Records that cannot be read keep no page, series or list from the others."""

from typing import Any

import pytest

from acker.errors import UnreadableRecord
from acker.inspect.topology import history
from acker.inspect.topology.totals import totals
from acker.inspect.trees import failures, pages
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.ledger.trees import trees as ledger_trees
from acker.store import keys
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.faults.unreadable import break_header, first, slab_of, together
from tests.helpers.models.ledger_state import shard_key

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.mark.parametrize("how", ["newer", "short"])
def test_an_unreadable_slab_is_a_typed_error_and_no_page(url: str, raw: Any, how: str) -> None:
    ledger = opened(url)
    trees = Trees(3).track(ledger)
    break_header(ledger, raw, trees, how)
    with pytest.raises(UnreadableRecord):
        ledger.run(ledger_trees.tree(ledger.core, first(trees)))
    assert len(ledger.run(pages.trees(ledger.core)).trees) == 0
    assert len(ledger.run(pages.find(ledger.core, "message 1")).trees) == 0
    assert ledger.run(totals(ledger.core)).oldest_age is None
    Trees(2).track(ledger).complete(ledger)


def test_pages_of_waiting_trees_go_on_past_failures_that_are_unreadable(url: str, raw: Any) -> None:
    ledger = opened(url)
    torn, whole = Trees(2), Trees(2)
    for one in (torn, whole):
        ledger.fail(one.anchors[:1], "early")
    key = shard_key(ledger, 0, "failures")
    raw.hset(key, slab_of(torn), raw.hget(key, slab_of(torn)) + b"\x01")
    found = ledger.run(pages.trees(ledger.core)).trees
    assert {tree.anchor for tree in found} == {first(torn), first(whole)}


def test_failures_that_are_unreadable_are_passed_over(url: str, raw: Any) -> None:
    ledger = opened(url)
    members = [Trees(3).track(ledger) for _ in range(4)]
    for one in members:
        ledger.fail(one.anchors, "bad")
    stream = ledger.core.shards[0].recent
    entries = raw.xrange(stream)
    newest = int(entries[-1][0].split(b"-")[0])
    _, fields = entries[-1]
    for place, change in enumerate(
        (
            {b"status": b"lost"},
            {b"trees": b"short"},
            {b"at": b"never"},
            {b"trees": slab_of(members[0]) + b"\xff" * 9},
        )
    ):
        raw.xadd(stream, {**fields, **change}, id=f"{newest + place + 1}-0")
    raw.hincrby(shard_key(ledger, 0, "counters"), "recent", 4)
    page = ledger.run(failures.page(ledger.core, limit=100))
    assert {tree.anchor for tree in page.trees} == set(together(members)[0].tolist())
    assert page.cursor is None
    found = ledger.run(failures.find(ledger.core, first(members[0])))
    assert found is not None
    assert found.cause.reason == "bad"
    fresh, _ = ledger.run(failures.since(ledger.core, {}, 100))
    assert len(fresh) == 12
    raw.xadd(stream, {"no": "entry"}, id=f"{newest + 9}-0")
    raw.xtrim(stream, minid=f"{newest + 1}-0", approximate=False)
    assert ledger.run(failures.kept_since(ledger.core, first(members[0]))) is not None


def test_readings_of_the_history_that_are_unreadable_are_passed_over(url: str, raw: Any) -> None:
    ledger = opened(url)
    assert ledger.run(history.record(ledger.core)) is not None
    stream = keys.history(ledger.config.name, 1)
    entry_id, fields = raw.xrevrange(stream, count=1)[0]
    packed = fields[b"reading"]
    at = int(entry_id.split(b"-")[0])
    broken = (b"\x02" + packed[1:], packed[:-1], b"\x01", packed[:2] + b"\xff" * 8 + packed[10:])
    for place, reading in enumerate(broken):
        raw.xadd(stream, {"reading": reading}, id=f"{at + place + 1}-0")
    raw.xadd(stream, {"reading": packed}, id=f"{at + 9}-0")
    found = ledger.run(history.after(ledger.core, 0))
    assert [reading.at for reading in found if not reading.first] == [at, at + 9]
    assert [reading.at for reading in ledger.run(history.window(ledger.core, "10m"))][-1] == at + 9
    assert len(ledger.run(history.latest(ledger.core, 3))) == 1


@pytest.mark.parametrize(
    "broken", [b"", b"1", b"x {}", b"1 []", b'1 {"name": 5}', b"1 " + b"[" * 100_000, b"9" * 30 + b" {}"]
)
def test_steps_that_are_unreadable_are_passed_over(url: str, raw: Any, broken: bytes) -> None:
    ledger = opened(url)
    ledger.run(step_registry.register(ledger.core, Step("split", "bolt", reads=("lines",))))
    raw.hset(keys.steps(ledger.config.name), "broken", broken)
    assert [step.name for step in ledger.run(step_registry.steps(ledger.core))] == ["split"]
