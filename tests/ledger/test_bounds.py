"""Bounds that hold when processes share them; and the cost of a rejection."""

import multiprocessing
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest
import redis

from acker import Topology
from acker.errors import SpoutPendingFull, WritersFull
from acker.ledger import ids
from acker.ledger.calls import messages
from acker.ledger.calls.calls import HORIZON
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.ledgers import Trees, opened, reported
from tests.helpers.models.leaks import assert_no_leaks
from tests.helpers.models.ledger_state import age_writers, shard_key
from tests.helpers.servers.servers import Raw, wait_until

Found = TypeVar("Found")

PROCESSES = 4


def fill(url: str, number: int) -> tuple[int, int]:
    """Tracks slabs of 1 to 4 trees until many in a row were rejected; returns trees accepted and rejected."""
    ledger = open_ledger(Store(url, timeout=60), "tested")
    accepted = rejected = refusals = 0
    while refusals < 50:
        trees = Trees(1 + (number + refusals) % 4)
        [letter] = ledger.track_slabs(
            [NewSlab(trees.anchors, trees.values, trees.message_ids)], spout=f"spout-{number % 2}"
        )
        accepted += trees.count * (letter == "A")
        rejected += trees.count * (letter == "R")
        refusals = refusals + 1 if letter == "R" else 0
    return accepted, rejected


def keep(url: str, number: int) -> int:
    """Writes rows of one spout, until it has as many pending as it may; returns how many it wrote."""
    spout = StreamSpout(
        open_ledger(Store(url, timeout=60), "tested"),
        SpoutOptions("kept", "lines", "id", max_spout_pending=100),
    )
    written = 0
    try:
        while True:
            spout.write(pa.table({"id": [f"{number}-{written}"]}), timeout=0)
            written += 1
    except SpoutPendingFull:
        return written


def side_by_side(work: Callable[[str, int], Found], url: str) -> list[Found]:
    """The results of processes that do the same at once."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        return pool.starmap(work, [(url, number) for number in range(PROCESSES)])


def test_the_high_water_mark_is_exact_under_spouts_of_several_processes(url: str) -> None:
    ledger = opened(url, high_water_mark=1000)
    found = side_by_side(fill, url)
    accepted, rejected = (sum(column) for column in zip(*found, strict=True))
    counters = ledger.counters()
    # Each process ends by having a tree alone rejected.
    assert counters["tracked"] == accepted == 1000
    assert counters["rejected"] == rejected


def test_pending_rows_are_exact_under_spouts_of_several_processes(valkey_url: str) -> None:
    ledger = opened(valkey_url, ackers=2)
    assert sum(side_by_side(keep, valkey_url)) == 100
    assert ledger.run(kept_rows.pending(ledger.core, "kept"))["pending"] == 100


def test_a_rejected_track_costs_the_server_less_than_an_accepted_one(url: str, raw: "redis.Redis") -> None:
    open_one, full = (
        opened(url, name, high_water_mark=mark) for name, mark in (("open", 10**6), ("full", 1))
    )
    Trees(1).track(full)

    def cost(ledger: Ledger) -> float:
        """Microseconds of the server for a track of 1,000 trees."""
        trees = Trees(1000)
        before = raw.info("commandstats")["cmdstat_evalsha"]["usec"]
        ledger.track_slabs([NewSlab(trees.anchors, trees.values, trees.message_ids)], spout="s")
        return float(raw.info("commandstats")["cmdstat_evalsha"]["usec"] - before)

    size = raw.info("memory")["used_memory_dataset"]
    assert cost(full) > 0
    for _ in range(100):
        cost(full)
    assert raw.info("memory")["used_memory_dataset"] - size < 100_000
    # In turn, and the least: these are microseconds of a clock, and others have the processor in between.
    accepted, rejected = zip(*((cost(open_one), cost(full)) for _ in range(60)), strict=True)
    assert min(rejected) < min(accepted)
    assert full.counters()["tracked"] == 1
    assert open_one.counters()["tracked"] == 60_000


def limit_writers(raw: "redis.Redis", ledger: Ledger, most: int) -> None:
    """Has each shard remember so many writers."""
    for shard in ledger.core.shards:
        raw.hset(shard.clock.decode(), "most_writers", most)


def forget_writers(raw: "redis.Redis", ledger: Ledger) -> None:
    """Lets so much time pass that silent writers are forgotten."""
    for _ in range(2):
        age_writers(raw, ledger, int(HORIZON * 1000))
        ledger.tick(force=True)


def track_of(trees: Trees) -> list[NewSlab]:
    return [NewSlab(trees.anchors, trees.values, trees.message_ids)]


def test_a_shard_full_of_writers_refuses_new_ones_and_forgets_none(url: str, raw: "redis.Redis") -> None:
    first = opened(url)
    first.register_spout("s")
    limit_writers(raw, first, 3)
    trees = Trees(2)
    sent = first.core.track(track_of(trees), "s")
    first.send(sent)
    others = [opened(url) for _ in range(3)]
    for other in others[:2]:
        other.update(trees.anchors[:1], ids.new_ids(1))
    before = first.counters()
    refused = others[2].core.update(trees.anchors[1:], trees.values[1:])
    for _ in range(2):
        with pytest.raises(WritersFull, match="this shard remembers 3 writers"):
            others[2].send(refused)
    assert first.counters() == before
    # What known writers send again is known, and they go on.
    for call in sent.calls:
        call.reply = None
    first.send(sent)
    assert first.counters() == {**before, "duplicates": 1}
    for known in (first, *others[:2]):
        known.update(trees.anchors[:1], ids.new_ids(1))
    assert not reported(first, trees)
    forget_writers(raw, first)
    others[2].send(refused)
    assert reported(first, trees) == {(int(trees.anchors[1]), "acked", ""): 1}


def test_a_writer_that_is_refused_takes_no_other_of_its_process_with_it(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url, ackers=2)
    limit_writers(raw, ledger, 1)
    Trees(1).complete(ledger)
    anchors = [int(Trees(1).anchors[0]) for _ in range(20_000)]
    with pytest.raises(WritersFull):  # so many calls that they would take several writers
        ledger.update(anchors, ids.new_ids(len(anchors)))
    for _ in range(20):
        Trees(1).complete(ledger)


def test_a_writer_in_both_generations_is_counted_once(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    limit_writers(raw, ledger, 2)
    Trees(1).complete(ledger)
    age_writers(raw, ledger, int(HORIZON * 1000))
    ledger.tick(force=True)
    Trees(1).complete(ledger)
    Trees(1).complete(opened(url))
    with pytest.raises(WritersFull):
        Trees(1).complete(opened(url))


def test_messages_refused_for_their_writer_are_sent_later(url: str, raw: "redis.Redis") -> None:
    with Topology(url, "tested", ackers=1, linger=0.05) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        limit_writers(raw, topology.ledger, 0)
        [tuple_] = spout.emit("m")
        with pytest.raises(WritersFull):
            topology.flush()
        bolt.ack(tuple_)
        limit_writers(raw, topology.ledger, 10)
        topology.flush()
        [outcome] = wait_until(lambda: list(spout.outcomes(timeout=0.1)))
        assert (outcome.message_id, outcome.status) == (b"m", "acked")
        spout.confirm(outcome)


def test_messages_of_a_service_take_a_writer_if_they_have_a_key(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)

    def send(count: int, keys: bool) -> int:
        """Sends messages one by one; returns how many writers the shard remembers then."""
        for number in range(count):
            one = messages.Messages(acks=[(-1 - 2 * number, 1)])
            ledger.run(messages.send(ledger.core, one, f"key-{number}" if keys else None))
        return raw.hlen(shard_key(ledger, 0, "writers").decode())

    assert send(20, keys=False) == 1
    assert send(5, keys=True) == 6
    limit_writers(raw, ledger, 6)
    assert send(5, keys=True) == 6  # sent again
    with pytest.raises(WritersFull):
        send(6, keys=True)
    assert send(20, keys=False) == 6


def test_a_million_writers_are_remembered_in_bounded_memory(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    trees = Trees(3).track(ledger)
    empty = raw.info("memory")["used_memory"]
    fill = """
        for n = tonumber(ARGV[1]), math.min(tonumber(ARGV[1]) + 99999, 999997) do
          redis.call('HSET', KEYS[1], string.format('%016d', n), '1 0 0')
        end
    """
    for first in range(0, 1_000_000, 100_000):
        raw.eval(fill, 1, shard_key(ledger, 0, "writers").decode(), first)
    trees.complete(opened(url), 0)
    with pytest.raises(WritersFull, match="1000000"):
        trees.complete(opened(url), 1)
    trees.complete(ledger, 2)
    assert len(reported(ledger, trees)) == 2
    assert raw.info("memory")["used_memory"] - empty < 128 << 20


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("SETEX acker:{t}:novelty 60 1", "no known kind"),
        ("SETEX other 60 1", "no known kind"),
        ("SET acker:{t}:turn 1", "no time to live"),
        ("SET acker:{t:0/1}:scratch 1", "outlived its call"),
        ("SET acker:{t:0/1}:slabs 1", "is a string"),
        ("HSET acker:{t:0/1}:clock " + " ".join(f"{n} 1" for n in range(17)), "more than 16 entries"),
    ],
)
def test_the_look_after_each_test_sees_unowned_keys(valkey_raw: Raw, command: str, why: str) -> None:
    assert_no_leaks(valkey_raw)
    valkey_raw.execute_command(*command.split())
    with pytest.raises(AssertionError, match=why):
        assert_no_leaks(valkey_raw)
    valkey_raw.flushall()
