"""Values that Spark and Arrow have, and Python has not: text that is no UTF-8, days after the year 9999."""

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import UnreadableRecord
from acker.ledger.client import Ledger
from acker.streams.dead_letters import dead_letters
from acker.streams.log import segments
from acker.streams.sources.columns import message_ids
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.streams.staging import failed_rows
from tests.helpers.builders.kept_rows import consume, letters
from tests.helpers.builders.kept_rows import rows as rows_of
from tests.helpers.builders.streaming import counters

LATIN = "café".encode("latin-1")
"""No UTF-8."""
LATE = np.int32(3_000_000)
"""A day of the year 10183."""


def text(*found: bytes | None, kind: pa.DataType | None = None) -> pa.Array:
    """Text of any bytes, as Spark's: nobody looks at them."""
    plain = pa.array(found, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind or pa.string(), len(plain), plain.buffers(), plain.null_count)


NESTED = [
    text(b"a", LATIN, None),
    text(b"a", LATIN, kind=pa.large_string()),
    pa.StructArray.from_arrays([text(LATIN), pa.array([1])], ["inner", "n"]),
    pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), text(LATIN, b"b")),
    pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), text(LATIN, b"b")),
    pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), text(LATIN), text(LATIN)),
]


@pytest.mark.parametrize("column", NESTED, ids=lambda column: str(column.type))
def test_text_of_any_bytes_is_read_as_it_was_written(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    [found] = segments.decode(segments.encode([batch], "lz4"))
    assert found.equals(batch)
    assert len(segments.values(found)) == len(column)


def test_text_whose_parts_do_not_fit_together_is_unreadable_all_the_same() -> None:
    batch = pa.RecordBatch.from_arrays([text(LATIN, b"abc")], ["x"])
    payload = segments.encode([batch], "none")
    ends, other = (np.array([0, end, 7], dtype=np.int32).tobytes() for end in (4, 900))
    broken = payload.replace(ends, other)
    assert broken != payload
    with pytest.raises(UnreadableRecord, match="not the rows of a segment"):
        list(segments.decode(broken))


def test_values_that_python_has_not_are_shown_as_text() -> None:
    days = pa.array([0, LATE], pa.int32()).cast(pa.date32())
    found = segments.values(pa.RecordBatch.from_arrays([text(LATIN, b"a"), days], ["line", "day"]))
    assert found[0]["line"] == "caf�"
    assert (found[1]["line"], found[0]["day"].year) == ("a", 1970)
    assert "10183" in found[1]["day"]


def test_such_rows_are_tracked_failed_replayed_and_buried_and_hold_nothing_up(ledger: Ledger) -> None:
    days = pa.array([LATE] * 3, pa.int32()).cast(pa.date32())
    rows = pa.table({"id": text(b"0", LATIN, b"2"), "day": days})
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2)).write(rows)
    for replayed, dead in ((1, 0), (0, 1)):
        found = rows_of(ledger)
        bad = [row["_acker"] for row in found if row["id"] not in ("0", "2")]
        reasons = pa.RecordBatch.from_arrays([pa.array(bad), text(*[LATIN] * len(bad))], ["_acker", "why"])
        _, [why] = failed_rows.rows_failures(*reasons.columns)
        ledger.fail(bad, why)
        consume(ledger)
        stepped = settler.settle(ledger)
        assert (stepped.replayed, stepped.dead) == (replayed, dead)
    assert settler.settle(ledger) == Stepped()
    [letter] = letters(ledger)
    assert (letter.message_id, letter.reason, letter.row["id"]) == (LATIN, "caf�", "caf�")
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=1)
    assert counters(ledger) == {"tracked": 5, "acked": 3, "failed": 2, "late": 2}


@pytest.mark.parametrize("column_type", [pa.binary(), pa.large_binary(), pa.string()], ids=str)
def test_a_message_id_may_be_any_bytes(column_type: pa.DataType) -> None:
    column = text(LATIN) if column_type == pa.string() else pa.array([LATIN], column_type)
    found = message_ids(pa.table({"id": column}), "id")
    assert found.cast(pa.binary()).to_pylist() == [LATIN]
