"""Everything that parses what others wrote, each as a function of bytes.

`python -m harness.fuzz` feeds them.

A target returns, or raises an error of acker's; anything else is a defect. What is read back from a store is
given to the operation that reads it, as the store's reply. Samples are inputs that are good.
"""

import base64
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from acker.collectors.tuples import Tuple
from acker.errors import AckerError
from acker.inspect.topology import history, series
from acker.inspect.trees import failures, find_record, pages
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.settings import topologies
from acker.ledger.settings.config import SCHEMA_VERSION, TopologyConfig
from acker.ledger.slabs import slabs
from acker.ledger.steps import step_registry
from acker.ledger.trees import cursors
from acker.lines import definition
from acker.spark.options.options import Options
from acker.spark.queries import batch_inputs, batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import address
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters import pages as dead_letters_pages
from acker.streams.log import fencing, schemas, segments, subscriptions
from acker.streams.log.stream_totals import stream_totals
from acker.streams.log.subscriptions import Range
from acker.streams.sources import dead_letter_store
from acker.streams.sources import kept_rows as kept
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.staging import vectors
from acker.streams.upkeep import retention


@dataclass(frozen=True)
class Target:
    """A parser, and inputs that it takes."""

    feed: Callable[[bytes], object]
    samples: tuple[bytes, ...]

    def __call__(self, data: bytes) -> bool:
        """Feeds it; whether it took the input."""
        try:
            self.feed(data)
        except AckerError:
            return False
        return True


def packed(*parts: bytes) -> bytes:
    """Parts as one input: each after its length (u16)."""
    return b"".join(len(part).to_bytes(2, "little") + part for part in parts)


def parts(data: bytes) -> list[bytes]:
    """The parts of an input; the last may be shorter than it says."""
    found, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def fields(data: bytes) -> list[bytes]:
    """Names and values of an entry of a stream or a hash: an even number of parts."""
    found = parts(data)
    return found[: len(found) // 2 * 2]


def answered(operation: Generator[Any, Any, object], *replies: object) -> object:
    """The result of an operation that gets these replies, one exchange each; None where it wants more."""
    for reply in (None, *replies):
        try:
            operation.send(reply)
        except StopIteration as end:
            return end.value
    operation.close()
    return None


def core() -> Core:
    """A topology of one shard and one spout."""
    return Core(TopologyConfig("t", 1), frozenset({"s"}))


def text(data: bytes) -> str:
    """Any text; bytes that are none stand for themselves."""
    return data.decode("utf-8", "surrogateescape")


def _tuple(data: bytes) -> None:
    parsed = Tuple.parse(text(data))
    assert Tuple.parse(str(parsed)) == parsed


def _cursor(data: bytes) -> None:
    position = cursors.decode(text(data), ("q",), 4)
    assert cursors.decode(cursors.encode(position, ("q",)), ("q",), 4) == position


def _outcome(data: bytes) -> None:
    for reported in outcomes.parse(0, b"1-0", fields(data)).slabs:
        assert all(index < 5 for index in reported.indexes_in(5))


def _message_ids(data: bytes) -> None:
    count = int.from_bytes(data[:2], "little")
    assert len(slabs.unpack_message_ids(data[2:], count)) == count


def _header(data: bytes) -> None:
    header = slabs.read(data)
    assert header is None or slabs.is_tracked(data) == (header.count > 0) or header.kind == slabs.WAITING


def _search(data: bytes) -> None:
    """A page of trees by message id, in which the store names one slab."""
    slab = b"\0\0\0\0\0\x01\x10\0"
    found = fields(data)
    header, blob = (found[0], found[1]) if found else (b"", b"")
    stored = core()
    replies: dict[object, object] = {
        "HSCAN": [b"0", [slab, header]],
        stored.shards[0].slabs: [header],
        stored.shards[0].message_ids: [blob],
        "HSTRLEN": len(blob),
    }
    operation = pages.find(stored, b"m1")
    requests = next(operation)
    while requests[0].script is None:  # until it reads the trees that it found
        try:
            requests = operation.send(
                [replies[one.args[0] if one.args[0] in replies else one.key] for one in requests]
            )
        except StopIteration:
            return


def _failure(data: bytes) -> None:
    entry = [b"5-0", fields(data)]
    answered(failures.page(core()), [[b"5", b"5", b"0"]], [[entry]], [[]], [[]])
    answered(failures.kept_since(core(), 1 << 20), [[entry]], [[]])


def _history(data: bytes) -> None:
    found = answered(
        history.after(core(), 0), [[[b"%d-0" % n, [b"r", one]] for n, one in enumerate(parts(data))]]
    )
    if isinstance(found, list):
        series.series(found).total_percentiles(0.5)


def _steps(data: bytes) -> None:
    answered(step_registry.steps(core()), [[1_700_000_000, 0], fields(data)])


def _topology(data: bytes) -> None:
    answered(topologies.register("t", {}, create=False), [fields(data), 1, None])


def _dead_letter(data: bytes) -> None:
    reported, row = [*parts(data), b"", b""][:2]
    answered(dead_letters.get(core(), "1-0@s"), [[[b"1-0", fields(reported)]]], [row])


def _page_of_dead_letters(data: bytes) -> None:
    asked = dead_letters.Filter()
    position = dead_letters_pages.decoded(text(data), asked)
    assert dead_letters_pages.decoded(dead_letters_pages.encoded(position, asked), asked) == position


def _search_of_records(data: bytes) -> None:
    searches = find_record.decoded(text(data), b"m")
    assert find_record.decoded(find_record.encoded(searches, b"m"), b"m") == searches


def _rows(data: bytes) -> None:
    for batch in segments.decode(data):
        str(batch.schema)  # not the values: Arrow has days that Python has not, and nulls without end


def _schema(data: bytes) -> None:
    answered(schemas.read(core(), "lines"), [data])


def _staged(data: bytes) -> None:
    found = (parts(data) + [b""] * 4)[:4]
    answered(vectors.apply(core(), [(b"staged", 0)], "1"), [found])


def _options(data: bytes) -> None:
    words = [text(part) for part in fields(data)]
    Options.parse(dict(zip(words[::2], words[1::2], strict=True)))


def _notes(data: bytes) -> None:
    answered(batch_inputs.ranges(core(), MicroBatch("q", 1, "r")), [parts(data)])


def _readers(data: bytes) -> None:
    answered(fencing.readers(core(), "lines", 0), [fields(data), [b"1700000000", b"5"]])


def _subscriptions(data: bytes) -> None:
    """The hash of a stream's subscriptions, as all who read it get it; `entry` is what was given back."""
    found = fields(data)
    known = dict(zip(found[::2], found[1::2], strict=True))
    operation = stream_totals(core(), ["lines"])
    next(operation)
    try:
        requests = operation.send([found])
        back = [[b"1-0", [b"entry", known.get(b"entry", b"1-0"), b"segment", b"", b"rows", b"1"]]]
        operation.send([[b"1700000000", b"5"], *[back] * (len(requests) - 1)])
    except StopIteration:
        pass
    limits = [known.get(name) for name in (b"max_age", b"max_bytes", b"bytes", b"segments", b"gather")]
    answered(retention.retain(core(), "lines"), [limits, [], [], [b"1700000000", b"5"]])
    told = [known.get(name) for name in (b"slots", b"next", b"gather", b"fair", b"epoch")]
    slots = answered(subscriptions.slots(core(), "lines"), [told])
    assert slots is None or len(slots) <= subscriptions.MOST  # type: ignore[arg-type]
    answered(subscriptions.find(core(), "lines", "a"), [known.get(b"name:a", b"0")])
    kept = [known.get(b"name:a", b"0"), known.get(b"external")]
    answered(subscriptions.subscribe(core(), "lines", "a"), [0, kept])


def _registered(data: bytes) -> None:
    batch_roots.parse_registered(MicroBatch("q", 1, "r"), fields(data))


def _watermark(data: bytes) -> None:
    """Offsets, and a stored piece of roots."""
    found = parts(data)
    split = len(found) // 2 * 2
    answered(kept.watermark(core(), "s"), [found[:split]], [found[split:]])


def _samples() -> dict[str, tuple[bytes, ...]]:
    slab = b"\0\0\0\0\0\x01\x10\0"
    roots = Roots("ab" * 16, 4, 5, 2, SpoutOptions("s", "lines", "id"), 1, {"p": (0, 3)})
    rows = segments.encode(pa.table({"id": ["a"], "n": [1]}).to_batches(), "lz4")
    entry = [
        b"whole", b"\x05\0\0\0\x01\0" + slab, b"part", slab + b"\x05\0\0\0\x02\0\0\0\x01\0",
        b"status", b"failed", b"reasons", b"\x03\0bad\x01\0b", b"why", b"\0\0\x01\0", b"at", b"1700000000000",
    ]  # fmt: skip
    trees = slab + b"\x05\0\0\0\x02\0\0\0\x02\0\x06\0\0\0\x01\0\x01\0ab"
    kept = [
        b"status", b"failed", b"at", b"1700000000000", b"reasons", b"\x03\0bad\x01\0b", b"why", b"\0\0\x01\0",
        b"spout", b"s", b"trees", trees,
    ]  # fmt: skip
    letter = {
        "message_id": b"m", "anchor": b"4096", "status": b"failed", "reason": b"bad", "attempts": b"3",
        "at": b"1700000000000", "stream": b"lines", "step": b"", "batch": b"-1",
    }  # fmt: skip
    dead_row = dead_letter_store.pack_row(roots.dump(), rows)
    searches = find_record.Searches("a", None, "", 3, 5)
    letters_at = dead_letters_pages.LettersPosition(1_700_000_000_000, "s", "5-0", "9-0")
    config = {"schema": str(SCHEMA_VERSION), "message_timeout_ms": "30000", "spouts": "1", "spout:s": "1"}
    config |= {name: str(value) for name, value in TopologyConfig("t").settings.items()}
    options = {"url": "redis://h:1/0", "topology": "t", "stream": "s", "message_id": "id", "outcomes": "true"}
    step = step_registry.Step("split", "bolt", batch=1, reads=("lines",))
    reading = history.HEAD.pack(history.VERSION, 1, *([1.0] * len(history.COLUMNS))) + b"\x10" + bytes(8)
    position = cursors.Position(1, 2, 3, 4, [slab])
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    own = {
        "slots": "1,2", "next": "3", "name:a": "1", "slot:1": "a", "slot:2": "c", "cursor:1": "1-0",
        "rows:1": "7", "acked:1": "3", "dropped:1": "0", "segments": "2", "bytes": "99", "max_age": "60.5",
        "entry": "1700000000000-0",
    }  # fmt: skip
    reported = {
        "1|stages": "5 7 ", "1|of:5": "1", "1|of:7": "1", "1|n:5.0": "1", "1|entry:5.0:1": "3.4.5#1",
        "1|roots:3.4.5#1": f"[{roots.dump()}]",
    }  # fmt: skip
    return {
        "address": (
            b"redis://u:p@h:1/0",
            b"rediss+sentinel://a,b:2/x/1?ssl_cert_reqs=none",
            b"unix:///a?db=1",
        ),
        "cursor": (cursors.encode(position, ("q",)).encode(),),
        "dead letter": (
            packed(packed(*(x for name, value in letter.items() for x in (name.encode(), value))), dead_row),
        ),
        "search of records": (str(find_record.encoded(searches, b"m")).encode(),),
        "page of dead letters": (dead_letters_pages.encoded(letters_at, dead_letters.Filter()).encode(),),
        "header": (bytes([2, 0, 5, 0]) + bytes(20),),
        "history": (packed(reading, reading),),
        "line": (b'7 [["rows",3,["a"]],["counts",1,[]]]',),
        "message ids": (b"\x02\0" + b"\x01\0\x02\0abb",),
        "notes": (packed(Range("lines", 0, "only", 0, 7).dump().encode()),),
        "options": (packed(*(x.encode() for pair in options.items() for x in pair)),),
        "outcome": (packed(*entry),),
        "failure": (packed(*kept),),
        "readers": (packed(b"only", b"1 1699999999000", b"died", b"0 1699999999000"),),
        "registered": (packed(*(x.encode() for pair in reported.items() for x in pair)),),
        "rows": (rows, segments.encode(pa.table({"n": [1]}).to_batches(), "none")),
        "schema": (base64.b64encode(schema.serialize().to_pybytes()),),
        "search": (packed(bytes([2, 0, 2, 0]) + bytes(20), b"\x02\0\x02\0m0m1"),),
        "staged": (packed(b"0", b"\x01\0", slab),),
        "steps": (packed(b"split q", b"17 " + step.dump().encode()),),
        "subscriptions": (packed(*(x.encode() for pair in own.items() for x in pair)),),
        "topology": (packed(*(x.encode() for pair in config.items() for x in pair)),),
        "tuple": (b"4096:5,-7:-8", b""),
        "watermark": (packed(b"p", b"7", roots.dump().encode()), packed(b"p", b"7")),
    }


_FEEDS: dict[str, Callable[[bytes], object]] = {
    "address": lambda data: address.parse(text(data)),
    "cursor": _cursor,
    "dead letter": _dead_letter,
    "page of dead letters": _page_of_dead_letters,
    "search of records": _search_of_records,
    "header": _header,
    "history": _history,
    "line": lambda data: definition.parse("a", data),
    "message ids": _message_ids,
    "notes": _notes,
    "options": _options,
    "outcome": _outcome,
    "failure": _failure,
    "readers": _readers,
    "registered": _registered,
    "rows": _rows,
    "schema": _schema,
    "search": _search,
    "staged": _staged,
    "steps": _steps,
    "subscriptions": _subscriptions,
    "topology": _topology,
    "tuple": _tuple,
    "watermark": _watermark,
}

TARGETS = {name: Target(_FEEDS[name], samples) for name, samples in _samples().items()}
