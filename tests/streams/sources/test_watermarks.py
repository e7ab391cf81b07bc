"""Watermarks: up to where all rows of a source are done."""

import pyarrow as pa
import pytest

from acker.errors import SpoutPendingFull
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import kept_rows
from acker.streams.sources.columns import offsets
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import lost_trees, settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.kept_rows import Keeping, consume, fail, letters, lines, rows
from tests.helpers.builders.streaming import run_cut

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def test_a_watermark_is_held_back_by_what_is_not_done(ledger: Ledger, keeping: Keeping) -> None:
    options = SpoutOptions("s", "lines", "id", attempts=2, offset="offset", partition="partition")

    def write(partition: str, first: int, count: int) -> None:
        table = lines(count, first)
        keeping.write(ledger, table.append_column("partition", pa.array([partition] * count)), options)

    def watermark() -> dict[str, int]:
        keeping.settle(ledger)
        return ledger.run(kept_rows.watermark(ledger.core, "s"))

    assert watermark() == {}
    write("a", 10, 10)
    assert watermark() == {"a": 10}
    consume(ledger)
    assert watermark() == {"a": 20}
    write("a", 20, 10)
    write("b", 0, 5)
    fail(ledger, lambda row: row["id"] == 25)
    assert watermark() == {"a": 25, "b": 5}
    write("a", 30, 10)
    assert watermark() == {"a": 25, "b": 5}
    fail(ledger, lambda row: row["id"] == 25)
    assert watermark() == {"a": 40, "b": 5}
    assert len(letters(ledger)) == 1


def test_a_partition_has_the_name_that_its_column_has_and_null_has_none() -> None:
    plain = pa.array([b"a", b"None", b"caf\xe9", None])
    text = pa.StringArray.from_buffers(4, plain.buffers()[1], plain.buffers()[2], plain.buffers()[0])
    rows = pa.table({"offset": [1, 2, 3, 4], "text": text, "bytes": plain, "number": [7, 7, 8, None]})
    named = {"a": (1, 1), "None": (2, 2), "caf\\xe9": (3, 3), "": (4, 4)}
    assert offsets(rows, "offset", "text") == offsets(rows, "offset", "bytes") == named
    assert offsets(rows, "offset", "number") == {"7": (1, 2), "8": (3, 3), "": (4, 4)}


def _pieces(ledger: Ledger, keeping: Keeping, options: SpoutOptions, *firsts: int) -> Commit:
    """A batch of pieces of 100 rows each, in this order."""
    staged, roots = [], list[Roots]()
    for first in firsts:
        new, piece = keeping.emit(ledger, lines(100, first), options)
        staged.append(piece)
        roots += new
    return Commit(tuple(staged), tuple(roots))


def test_a_watermark_does_not_pass_rows_of_a_batch_that_wait_for_room(
    ledger: Ledger, keeping: Keeping
) -> None:
    how = SpoutOptions("s", "lines", "id", offset="offset", max_spout_pending=250)
    keeping.write(ledger, lines(100), how)
    work = _pieces(ledger, keeping, how, 200, 100)
    with pytest.raises(SpoutPendingFull):
        ledger.run(commit.commit(ledger.core, "w", 0, work))
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 0}
    consume(ledger)
    keeping.settle(ledger)
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 100}
    ledger.run(commit.commit(ledger.core, "w", 0, work))
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 100}
    consume(ledger)
    keeping.settle(ledger)
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 300}


def test_a_watermark_does_not_pass_a_cut_batch(
    valkey_url: str, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the tracked rows are lost, tried again, and acked."""
    monkeypatch.setattr(lost_trees, "AFTER", 0.0)
    how = SpoutOptions("s", "lines", "id", offset="offset")
    for after in range(100):
        ledger = open_ledger(Store(valkey_url), f"cut{after}", ackers=2, slab_limit=100)
        work = _pieces(ledger, keeping, how, 100, 0)
        cut = run_cut(ledger, commit.commit(ledger.core, "w", 0, work), after)
        assert ledger.run(kept_rows.watermark(ledger.core, "s")).get("", 0) == 0, after
        settler.recover(ledger, "s")
        acked: set[int] = set()

        def take(table: pa.Table, acked: set[int] = acked) -> None:
            acked.update(int(row["message_id"]) for row in table.to_pylist() if row["status"] == "acked")

        for _ in range(2):
            keeping.settle(ledger, "s", on_outcomes=take)
            consume(ledger)
        keeping.settle(ledger, "s", on_outcomes=take)
        watermark = ledger.run(kept_rows.watermark(ledger.core, "s")).get("", 0)
        assert acked.issuperset(range(watermark)), after
        ledger.run(commit.commit(ledger.core, "w", 0, work))
        consume(ledger)
        keeping.settle(ledger, "s")
        assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"": 200}, after
        if not cut:
            return
    raise AssertionError("it never came to its end")


def test_a_dead_letter_that_is_replayed_holds_no_watermark_back(ledger: Ledger, keeping: Keeping) -> None:
    how = SpoutOptions("s", "lines", "id", attempts=2, offset="offset", partition="partition")
    table = lines(20)
    keeping.write(ledger, table.append_column("partition", pa.array(["a"] * 20)), how)
    for _ in range(2):
        fail(ledger, lambda row: row["id"] == 7)
        keeping.settle(ledger)
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"a": 20}
    [letter] = letters(ledger)
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"a": 20}
    fail(ledger, lambda row: True)
    assert keeping.settle(ledger) == Stepped(replayed=1)
    assert ledger.run(kept_rows.watermark(ledger.core, "s")) == {"a": 20}
    assert [(row["id"], row["partition"]) for row in rows(ledger)] == [(7, "a")]
