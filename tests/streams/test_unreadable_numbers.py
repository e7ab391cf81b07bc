"""Numbers beside streams that cannot be read: a typed error that names them, and queries that go on."""

import logging
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import UnreadableRecord
from acker.inspect.stream_totals import stream_totals
from acker.ledger.client import Ledger
from acker.store import keys
from acker.streams import Stream, retention, subscriptions
from acker.streams.commits.roots import Tracking
from acker.streams.spouts import kept
from acker.streams.spouts.spout import StreamSpout
from acker.streams.subscriptions import Range
from tests.helpers.streaming import consume, counters, emit, stage, take

pytestmark = pytest.mark.cluster(slow=True)

LINES = keys.Stream("t", "lines")
NUMBERS = [b"", b"seven", b"\xff", b"1.5", b"nan", b"9" * 5000]


@pytest.mark.parametrize("broken", [b"", b"1", b"1 never", b"2 17", b"1 17 18", b"\xff", b"1 " + b"9" * 30])
def test_a_reader_that_is_unreadable_keeps_no_query_from_starting_and_goes_on(
    ledger: Ledger, raw: Any, broken: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        emit(ledger, 10)
    first = take(ledger, "lines", reader="broken", segments=1)
    take(ledger, "lines", reader="died", segments=1)
    raw.hset(LINES.readers(first.slot), "broken", broken)
    monkeypatch.setattr(subscriptions, "UNLOGGED", -1.0)
    with caplog.at_level(logging.ERROR, subscriptions.__name__):
        recovered = ledger.run(subscriptions.recover(ledger.core, "lines", first.slot))
    assert recovered == 1
    assert "reader b'broken'" in caplog.text
    # It takes what comes, and asks where nothing comes; nobody takes back what it has.
    for _ in range(2):
        raw.hset(LINES.readers(first.slot), "broken", broken)
        assert take(ledger, "lines", reader="broken").end == 3
        assert set(Stream(ledger, "lines").readers()) == {"broken"}
    assert ledger.run(subscriptions.recover(ledger.core, "lines", first.slot)) == 0


@pytest.mark.parametrize("broken", NUMBERS)
def test_a_number_of_a_subscription_that_is_unreadable_is_told_by_its_name(
    ledger: Ledger, raw: Any, broken: bytes
) -> None:
    stream = Stream(ledger, "lines")
    stream.subscribe("a")
    raw.hset(LINES.subscriptions, "name:a", broken)
    for look in (stream.subscribe, stream.readers):
        with pytest.raises(UnreadableRecord, match="stream 'lines', subscription 'a': expected a whole"):
            look("a")


@pytest.mark.parametrize("broken", [b"0,seven", b",", b"0,1.5", b"-1", b"\xff", b",".join([b"1"] * 65)])
def test_nothing_is_staged_for_slots_that_are_unreadable(ledger: Ledger, raw: Any, broken: bytes) -> None:
    Stream(ledger, "words").subscribe("a")
    anchors = emit(ledger, 5)
    raw.hset(keys.Stream("t", "words").subscriptions, "slots", broken)
    with pytest.raises(UnreadableRecord, match="stream 'words', the subscriptions it has: expected"):
        stage(ledger, anchors)
    assert not [key for key in raw.scan_iter() if b"staged" in key and b"words" in key]
    assert consume(ledger, "lines") == 1


@pytest.mark.parametrize(
    "field", ["next", "rows:0", "acked:0", "dropped:0", "segments", "bytes", "max_age", "max_bytes", "slot:x"]
)
def test_totals_of_a_stream_name_the_number_that_is_unreadable(ledger: Ledger, raw: Any, field: str) -> None:
    emit(ledger, 5)
    take(ledger, "lines")
    assert ledger.run(stream_totals(ledger.core))[0].segments == 1
    raw.hset(LINES.subscriptions, field, b"seven")
    with pytest.raises(UnreadableRecord, match=f"stream 'lines', {field}: expected a"):
        ledger.run(stream_totals(ledger.core))


@pytest.mark.parametrize("field", ["max_age", "max_bytes"])
@pytest.mark.parametrize("broken", NUMBERS[1:3] + NUMBERS[4:])
def test_limits_that_are_unreadable_drop_nothing_until_they_are_set_again(
    ledger: Ledger, raw: Any, field: str, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    Stream(ledger, "lines").limit(max_bytes=1)
    raw.hset(LINES.subscriptions, field, broken)
    with caplog.at_level(logging.ERROR, retention.__name__):
        for _ in range(3):
            emit(ledger, 5)
    assert f"stream 'lines', {field}: expected a" in caplog.text
    assert raw.xlen(LINES.entries) == 3
    Stream(ledger, "lines").limit(max_age=60.0, max_bytes=1)
    assert ledger.run(retention.retain(ledger.core, "lines")) == 2
    assert consume(ledger, "lines") == 1
    assert counters(ledger) == {"tracked": 15, "acked": 5}


@pytest.mark.parametrize("broken", NUMBERS)
def test_a_watermark_that_is_unreadable_is_told_by_its_partition(
    ledger: Ledger, raw: Any, broken: bytes
) -> None:
    spout = StreamSpout(ledger, Tracking("s", "lines", "id", offset="id"))
    spout.write(pa.table({"id": range(4)}))
    assert ledger.run(kept.watermark(ledger.core, "s")) == {"": 0}
    raw.hset(keys.Spout("t", "s").highest, "p", broken)
    with pytest.raises(UnreadableRecord, match="spout 's', offset of partition b'p': expected a whole"):
        ledger.run(kept.watermark(ledger.core, "s"))


@pytest.mark.parametrize(
    "broken",
    [
        b"", b"7", b"{}", b"[]", b"[" * 99_999, b"\xff", b'["lines", 0, "r", 1]', b'["li nes", 0, "r", 0, 1]',
        b'["lines", "0", "r", 0, 1]', b'["lines", -1, "r", 0, 1]', b'["lines", 0, 7, 0, 1]',
        b'["lines", 0, "r", 0, 1e400]', b'["lines", 0, "r", true, 1]',
    ],
)  # fmt: skip
def test_a_range_is_read_as_it_was_noted_or_not_at_all(broken: bytes) -> None:
    whole = Range("lines", 0, "r", 0, 7)
    assert Range.parse(whole.record()) == whole
    with pytest.raises(UnreadableRecord, match="not a range of a stream"):
        Range.parse(broken)
