"""Numbers beside streams that cannot be read: a typed error that names them, and queries that go on."""

import logging
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import UnreadableRecord
from acker.inspect.operate.removal import remove
from acker.ledger.client import Ledger
from acker.store import keys
from acker.streams import Stream, StreamWriter
from acker.streams.log import fencing, subscriptions
from acker.streams.log.stream_totals import stream_totals
from acker.streams.sources import kept_rows as sources_kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped, writer_of
from acker.streams.upkeep import retention
from tests.helpers.builders import kept_rows
from tests.helpers.builders.kept_rows import fail, letters, lines
from tests.helpers.builders.streaming import consume, counters, emit, slot_of, stage, take

pytestmark = pytest.mark.cluster(slow=True, first=True)

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
    monkeypatch.setattr(fencing, "UNLOGGED", -1.0)
    with caplog.at_level(logging.ERROR, subscriptions.__name__):
        recovered = ledger.run(fencing.recover(ledger.core, "lines", first.slot))
    assert recovered == 1
    assert "reader b'broken'" in caplog.text
    # It takes what comes, and asks where nothing comes; nobody takes back what it has.
    for _ in range(2):
        raw.hset(LINES.readers(first.slot), "broken", broken)
        assert take(ledger, "lines", reader="broken").end == 3
        assert set(Stream(ledger, "lines").readers()) == {"broken"}
    assert ledger.run(fencing.recover(ledger.core, "lines", first.slot)) == 0


@pytest.mark.parametrize("broken", NUMBERS)
def test_a_number_of_a_subscription_that_is_unreadable_is_reported_by_its_name(
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
    "field",
    [
        "next",
        "rows:SLOT",
        "acked:SLOT",
        "dropped:SLOT",
        "segments",
        "bytes",
        "max_age",
        "max_bytes",
        "slot:x",
    ],
)
def test_totals_of_a_stream_name_the_number_that_is_unreadable(ledger: Ledger, raw: Any, field: str) -> None:
    emit(ledger, 5)
    field = field.replace("SLOT", str(take(ledger, "lines").slot))
    assert ledger.run(stream_totals(ledger.core))[0].segments == 1
    raw.hset(LINES.subscriptions, field, b"seven")
    with pytest.raises(UnreadableRecord, match=f"stream 'lines', {field}: expected a"):
        ledger.run(stream_totals(ledger.core))


@pytest.mark.parametrize("broken", NUMBERS)
def test_counts_that_are_unreadable_end_no_call_half_done(ledger: Ledger, raw: Any, broken: bytes) -> None:
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1))
    spout.write(lines(3))
    counts = keys.Spout("t", "s")
    [slot] = ledger.run(subscriptions.slots(ledger.core, "lines"))
    fields = {
        f"rows:{slot}": broken,
        f"acked:{slot}": broken,
        "emitted": broken,
        "segments": broken,
        "bytes": broken,
    }
    raw.hset(LINES.subscriptions, mapping=fields)
    fail(ledger, lambda row: row["id"] == 1)
    raw.hset(counts.counts, mapping=dict.fromkeys(("pending", "acked", "dead"), broken))
    left = counts.declared()[3]
    for roots_id in raw.hkeys(left):
        raw.hset(left, roots_id, broken)
    assert settler.settle(ledger) == Stepped(acked=2, dead=1)
    assert [letter.message_id for letter in letters(ledger)] == [b"1"]
    spout.write(lines(3, first=3))
    consume(ledger, "lines")
    assert settler.settle(ledger) == Stepped(acked=3)
    assert raw.xlen(LINES.entries) == 0


@pytest.mark.parametrize("field", ["next", "cursor:SLOT"])
@pytest.mark.parametrize("broken", [b"", b"seven"])
def test_numbers_that_are_unreadable_end_a_call_before_anything_has_changed(
    ledger: Ledger, raw: Any, field: str, broken: bytes
) -> None:
    Stream(ledger, "lines").subscribe("default")
    emit(ledger, 5)
    writer = StreamWriter(ledger, "lines")
    batch = writer.batch(pa.table({"line": ["untracked"]}))
    field = field.replace("SLOT", str(slot_of(ledger)))
    sound = raw.hget(LINES.subscriptions, field)
    raw.hset(LINES.subscriptions, field, broken)
    if field == "next":
        with pytest.raises(UnreadableRecord, match="subscription"):
            writer.publish(batch)
    else:
        with pytest.raises(UnreadableRecord, match="subscription"):
            take(ledger, "lines")
    if sound is None:
        raw.hdel(LINES.subscriptions, field)
    else:
        raw.hset(LINES.subscriptions, field, sound)
    writer.publish(batch)
    assert raw.xlen(LINES.entries) == consume(ledger, "lines") == 2
    raw.hset(LINES.subscriptions, "name:default", broken)
    ledger.run(remove(ledger.config.name, force=True))
    assert all(raw.ttl(key) > 0 for key in raw.scan_iter())


@pytest.mark.parametrize("field", ["last", "0:state", "0:what"])
@pytest.mark.parametrize("broken", [b"", b"\xff", b"prepared \xff"])
def test_commits_that_are_unreadable_end_their_own_spout_only(
    ledger: Ledger, raw: Any, field: str, broken: bytes
) -> None:
    for name in ("a", "b"):
        StreamSpout(ledger, SpoutOptions(name, f"lines-{name}", "id", attempts=2)).write(lines(3))
        ledger.fail([row["_acker"] for row in kept_rows.rows(ledger, f"lines-{name}")][:1], "bad")
        settler.settle(ledger, name)
        consume(ledger, f"lines-{name}")
    assert raw.hset(keys.commits("t", writer_of("a")), field, broken) == 0
    with suppress(UnreadableRecord):
        settler.settle(ledger)
    assert ledger.run(sources_kept_rows.pending(ledger.core, "b"))["pending"] == 0
    if field == "last":
        with pytest.raises(UnreadableRecord, match="last commit of writer"):
            settler.settle(ledger, "a")


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
def test_an_unreadable_watermark_is_reported(ledger: Ledger, raw: Any, broken: bytes) -> None:
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", offset="id"))
    spout.write(pa.table({"id": range(4)}))
    assert ledger.run(sources_kept_rows.watermark(ledger.core, "s")) == {"": 0}
    raw.hset(keys.Spout("t", "s").highest, "p", broken)
    with pytest.raises(UnreadableRecord, match="spout 's', offset of partition b'p': expected a whole"):
        ledger.run(sources_kept_rows.watermark(ledger.core, "s"))
