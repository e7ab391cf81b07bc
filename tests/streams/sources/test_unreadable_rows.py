"""Rows that a spout keeps and that cannot be read: counted once, not done, while all else is settled."""

from collections.abc import Callable
from typing import Any

import pytest

from acker.inspect.topology.totals import unreadable
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams.commits import publishing
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import lost_trees, settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.kept_rows import Keeping, consume, fail, letters, lines, pending, rows
from tests.helpers.faults.cuts import as_in_a_cluster
from tests.helpers.faults.unreadable_segments import BROKEN

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, message_timeout=600.0)


def spoil(ledger: Ledger, raw: Any, roots_id: str, change: Callable[[bytes], bytes | None]) -> None:
    """Changes the rows that the spout keeps of some roots; None: deletes them."""
    key = keys.Spout(ledger.config.name, "s").rows(roots_id)
    changed = change(raw.get(key))
    if changed is None:
        raw.delete(key)
    else:
        raw.set(key, changed)


@pytest.mark.parametrize("how", [*BROKEN, "gone"])
@pytest.mark.parametrize("attempts", [1, 2])
def test_kept_rows_that_cannot_be_read_stay_pending_and_keep_no_other_waiting(
    ledger: Ledger, keeping: Keeping, raw: Any, attempts: int, how: str
) -> None:
    options = SpoutOptions("s", "lines", "id", attempts=attempts, offset="offset")
    keeping.write(ledger, lines(100), options)
    [bad] = keeping.write(ledger, lines(1000, first=100), options)
    spoil(ledger, raw, bad.id, BROKEN.get(how, lambda payload: None))
    fail(ledger, lambda row: row["id"] in (7, 300))
    again = attempts - 1
    assert keeping.settle(ledger) == Stepped(acked=1098, replayed=again, dead=1 - again)
    for _ in range(2):  # what it was is settled, though some of the same roots never will be
        consume(ledger)
        keeping.settle(ledger)
    assert pending(ledger) == {"pending": 1, "acked": 1098 + again, "replayed": again, "dead": 1 - again}
    assert [letter.message_id for letter in letters(ledger)] == [b"7"] * (1 - again)
    assert ledger.run(unreadable(ledger.core)) == (how != "gone")  # once, however often they are read
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 100}


@pytest.mark.parametrize("attempts", [2, 3])
def test_damaged_attempts_of_a_row_keep_no_other_waiting(
    ledger: Ledger, keeping: Keeping, raw: Any, attempts: int
) -> None:
    options = SpoutOptions("s", "lines", "id", attempts=attempts)
    keeping.write(ledger, lines(3), options)
    fail(ledger, lambda row: row["id"] == 1)
    keeping.settle(ledger)
    [roots_id] = ledger.store.send([command("HKEYS", keys.Spout("t", "s").kept)])[0]
    spoil(ledger, raw, roots_id.decode(), lambda payload: payload.replace(b'[[1,"failed"', b'{[1,"failed"'))
    fail(ledger, lambda row: True, "again")
    keeping.write(ledger, lines(3, first=10), options)
    consume(ledger)
    assert keeping.settle(ledger) == Stepped(acked=3)
    assert pending(ledger)["pending"] == 1
    assert ledger.run(unreadable(ledger.core)) == 1


def test_trees_of_rows_that_cannot_be_read_are_not_tried_again_when_the_ledger_has_lost_them(
    ledger: Ledger, keeping: Keeping, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [bad] = keeping.write(ledger, lines(1000), SpoutOptions("s", "lines", "id"))
    spoil(ledger, raw, bad.id, BROKEN["torn"])
    fail(ledger, lambda row: row["id"] == 7)
    assert keeping.settle(ledger) == Stepped(acked=999)
    for _ in range(3):
        ledger.tick(force=True)
    monkeypatch.setattr(lost_trees, "AFTER", 0.0)
    before = ledger.counters()
    for _ in range(2):
        assert settler.recover(ledger) == 0
    assert ledger.counters() == before
    assert ledger.run(unreadable(ledger.core)) == 1


def test_a_commit_that_was_cut_is_finished_without_the_rows_that_it_could_not_read(
    ledger: Ledger, keeping: Keeping, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SpoutOptions("s", "lines", "id", attempts=2)
    keeping.write(ledger, lines(10), options)
    [bad] = keeping.write(ledger, lines(1000, first=10), options)
    spoil(ledger, raw, bad.id, BROKEN["torn"])
    fail(ledger, lambda row: row["id"] in (7, 300))

    def cut(*_: Any) -> Any:
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        as_in_a_cluster(patch)
        patch.setattr(publishing, "divide", cut)
        with pytest.raises(RuntimeError, match="cut"):
            keeping.settle(ledger)
    keeping.settle(ledger)
    assert pending(ledger) == {"pending": 2, "acked": 1008, "replayed": 1, "dead": 0}
    assert [row["id"] for row in rows(ledger)] == [7]
