"""Damage to any byte of any key: every operation ends as it should, and all other trees are right."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import redis
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acker.drpc import keeping
from acker.errors import AckerError
from acker.inspect.lines.overview import overview
from acker.inspect.locate import stuck
from acker.inspect.locate.why import why
from acker.inspect.operate.removal import remove
from acker.inspect.topology import health, history
from acker.inspect.topology.graph import graph
from acker.inspect.topology.totals import totals
from acker.inspect.trees import failures, find_record, pages
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes import counts, outcomes
from acker.ledger.slabs.sections import SPOUT
from acker.ledger.steps import step_registry, step_totals
from acker.lines import Gather, Line, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import Stream, StreamReader, StreamWriter, downtime
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters import pages as dead_letters_pages
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.filled import filled
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.faults.set_backs import moment

pytestmark = pytest.mark.timeout(600)
HOW = SpoutOptions("kept", "lines", "id", attempts=1, offset="id")


def damage(raw: Any, key: bytes, rng: Random) -> None:
    """Changes a piece of what a key holds: a value, or one of its fields, entries or members."""
    match raw.type(key):
        case b"string":
            raw.set(key, spoilt(raw.get(key), rng), keepttl=True)
        case b"hash":
            field = rng.choice(sorted(raw.hkeys(key)))
            value = raw.hget(key, field)
            if rng.random() < 0.2:
                raw.hdel(key, field)
                raw.hset(key, spoilt(field, rng), value)
            else:
                raw.hset(key, field, spoilt(value, rng))
        case b"set":
            member = rng.choice(sorted(raw.smembers(key)))
            raw.srem(key, member)
            raw.sadd(key, spoilt(member, rng))
        case b"zset":
            member, score = rng.choice(raw.zrange(key, 0, -1, withscores=True))
            raw.zrem(key, member)
            raw.zadd(key, {spoilt(member, rng): score})
        case b"stream":
            entry, fields = rng.choice(raw.xrange(key) or [(b"0-1", {b"a": b"b"})])
            name = rng.choice(sorted(fields))
            raw.xdel(key, entry)
            milliseconds, number = raw.xinfo_stream(key)["last-generated-id"].split(b"-")
            changed = fields | {name: spoilt(fields[name], rng)}
            raw.xadd(key, changed, id=b"%b-%d" % (milliseconds, int(number) + 1))


def spoilt(value: bytes, rng: Random) -> bytes:
    """Other bytes."""
    changed, at = bytearray(value or b"?"), rng.randrange(len(value or b"?"))
    match rng.randrange(4):
        case 0:
            del changed[at:]
        case 1:
            changed[at:at] = changed[at:]
        case _:
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def operations(ledger: Ledger, trees: list[Trees]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The operations of jobs, services and people on a topology."""
    core, bad = ledger.core, Random(1)
    anchor = int(trees[0].anchors[0])

    def run(operation: Any) -> Callable[[], object]:
        return lambda: ledger.run(operation)

    yield "counters", run(counts.counters(core))
    yield "latencies", run(counts.latencies(core))
    yield "totals", run(totals(core))
    yield "health", run(health.health(core))
    yield "record history", run(history.record(core))
    yield "window", run(history.window(core, "10m"))
    yield "graph", run(graph(core))
    yield "steps", run(step_registry.steps(core))
    yield "step totals", run(step_totals.totals(core))
    yield "mark", run(step_totals.mark(core, "split"))
    yield "trees", run(pages.trees(core))
    yield "find", run(pages.find(core, b"message 1"))
    yield "failures", run(failures.page(core))
    yield "record", run(find_record.find(core, b"1"))
    yield "stuck", run(stuck.stuck(core))
    yield "lines", run(overview(core))
    yield "why", run(why(core, anchor))
    yield "keep calls", run(keeping.keep(core))
    yield "keep rows", run(downtime.keep(core))
    yield "pending", run(kept_rows.pending(core, "kept"))
    yield "watermark", run(kept_rows.watermark(core, "kept"))
    yield "letters", run(dead_letters_pages.page(core))
    yield "groups", run(dead_letters_pages.groups(core))
    yield "discard", lambda: ledger.run(dead_letters.discard(core, ["1-1@kept"]))
    yield "settle", lambda: settler.settle(ledger)
    yield "recover", lambda: settler.recover(ledger)
    yield "sweep", run(coordinator.sweep(core))
    yield "coordinate", run(coordinator.step(core, outcomes.OutcomeReader(core, SPOUT)))
    for name in ("lines", "words", "gathers", "asks"):
        stream, reader = Stream(ledger, name), StreamReader(ledger, name, "one")
        yield f"subscribe {name}", partial(stream.subscribe, "default")
        yield f"totals of {name}", stream.totals
        yield f"readers of {name}", partial(stream.readers, "one")
        yield f"rows of {name}", partial(_all, reader)
        yield f"ack {name}", reader.ack_all
        yield f"drop of {name}", partial(stream.unsubscribe, "two")
    yield "write", lambda: StreamWriter(ledger, "words").write(pa.table({"word": ["or"]}))
    yield "emit", lambda: StreamSpout(ledger, HOW).write(pa.table({"id": range(4, 6)}))
    for one in bad.sample(trees, 2):
        yield "track", partial(one.track, ledger)
    yield "new tree", lambda: Trees(3).track(ledger)
    yield "reset", lambda: ledger.reset_timeout(trees[-1].anchors)
    yield "confirm", lambda: ledger.run(outcomes.confirm(core, "kept", []))
    for _ in range(4):
        yield "tick", lambda: ledger.tick(force=True)


def _all(reader: StreamReader) -> list[dict[str, Any]]:
    return list(reader.rows())


def right(ledger: Ledger, trees: list[Trees], shard: int) -> Counter[str]:
    """The outcomes of a shard's trees, read from its stream."""
    counts_of = {ids.slab_of(int(one.anchors[0])): one.count for one in trees}
    found: Counter[str] = Counter()
    [entries] = ledger.store.send([command("XRANGE", ledger.core.shards[shard].outcomes("good"), "-", "+")])
    for entry in outcomes.parse_all(shard, entries)[0]:
        mine = [one for one in entry.slabs if one.slab in counts_of]
        for one in mine:
            found[entry.status] += len(one.indexes_in(counts_of[one.slab]))
    return found


class Snapshot:
    """A topology with all kinds of keys, as the store dumps them, and the trees of a spout of its own."""

    def __init__(self, trees: list[Trees], held: dict[bytes, tuple[bytes, int]]) -> None:
        self.trees = trees
        self.held = held


@pytest.fixture
def snapshot(valkey_url: str) -> Iterator[Snapshot]:
    """A topology that all examples begin with."""
    ledger = filled(valkey_url, "hurt")
    trees = list[Trees]()
    while len({ids.shard_of(ids.slab_of(int(one.anchors[0])), 2) for one in trees}) < 2 or len(trees) < 8:
        trees.append(Trees(5).track(ledger, "good"))
    for one in trees:
        one.complete(ledger, 0, 1)
        ledger.fail(one.anchors[2:3], "bad")
    with redis.Redis.from_url(valkey_url) as raw:
        held = {key: life for key, life in moment(raw).items() if key.startswith(b"acker:{hurt")}
    yield Snapshot(trees, held)
    with redis.Redis.from_url(valkey_url) as raw:
        for key in raw.scan_iter("acker:*"):
            raw.delete(key)


def test_a_name_of_a_stream_that_is_no_text_ends_no_reading(valkey_url: str, valkey_raw: Any) -> None:
    ledger = opened(valkey_url, "hurt")
    valkey_raw.sadd(keys.streams("hurt"), b"li\xe5es")
    assert ledger.run(history.record(ledger.core)) is not None
    [stream] = ledger.run(graph(ledger.core)).nodes
    assert stream.name == "li\ufffdes"
    ledger.run(remove("hurt", force=True))
    assert not [key for key in valkey_raw.keys("acker:*hurt*") if valkey_raw.ttl(key) == -1]


def test_a_group_without_a_name_hides_no_line(valkey_url: str, valkey_raw: Any) -> None:
    ledger = opened(valkey_url, "hurt")
    Line(ledger, "line", [Gather("gathers")])
    valkey_raw.zadd(keys.Stream("hurt", "gathers").gathering, {b"no group:0:1": 1})
    [line] = ledger.run(overview(ledger.core))
    assert line.gathers[0].oldest_request is None
    ledger.run(remove("hurt", force=True))


@settings(max_examples=60)
@example(seed=10444108)  # the time of a shard's rotation
@given(seed=st.integers(0, 2**32))
def test_any_damage_to_any_key_ends_in_errors_of_ours_and_leaves_other_trees_right(
    valkey_url: str, valkey_raw: Any, snapshot: Snapshot, seed: int
) -> None:
    rng, raw = Random(seed), valkey_raw
    for key in raw.scan_iter("acker:*"):
        raw.delete(key)
    for key, (dumped, ttl) in snapshot.held.items():
        raw.restore(key, ttl, dumped, replace=True)
    raw.sadd(keys.TOPOLOGIES, "hurt")
    key = rng.choice(sorted(snapshot.held))
    damage(raw, key, rng)
    try:
        ledger = open_ledger(Store(valkey_url), "hurt", create=False)
    except AckerError:
        return
    for name, operation in operations(ledger, snapshot.trees):
        try:
            operation()
        except AckerError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}, with damage to {key!r}") from error
    for shard in range(2):
        own = [one for one in snapshot.trees if ids.shard_of(ids.slab_of(int(one.anchors[0])), 2) == shard]
        if b"{hurt:%d/" % shard not in key and b":config" not in key:
            found = right(ledger, own, shard)
            assert found == {"acked": 2 * len(own), "failed": len(own), "expired": 2 * len(own)}, key
    with suppress(AckerError):
        ledger.run(remove("hurt", force=True))
