"""What is bounded stays so when processes share it; and what a rejection costs."""

import multiprocessing
import statistics
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest
import redis

from acker.errors import SpoutPendingFull
from acker.ledger import open_ledger
from acker.store import Store
from acker.streams import kept
from acker.streams.roots import Tracking
from acker.streams.spout import StreamSpout
from acker.submissions import NewSlab
from tests.leaks import assert_no_leaks
from tests.ledgers import Trees, opened
from tests.servers import Raw

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
        Tracking("kept", "lines", "id", max_spout_pending=100),
    )
    written = 0
    try:
        while True:
            spout.write(pa.table({"id": [f"{number}-{written}"]}), timeout=0)
            written += 1
    except SpoutPendingFull:
        return written


def side_by_side(work: Callable[[str, int], Found], url: str) -> list[Found]:
    """What processes of their own return that do the same at once."""
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
    assert ledger.run(kept.pending(ledger.core, "kept"))["pending"] == 100


def test_a_rejected_track_costs_the_server_less_than_an_accepted_one(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url, high_water_mark=200_000)

    def cost() -> float:
        """Microseconds of the server for a track of 1,000 trees: the median of several."""
        found = []
        for _ in range(21):
            trees = Trees(1000)
            before = raw.info("commandstats")["cmdstat_evalsha"]["usec"]
            ledger.track_slabs([NewSlab(trees.anchors, trees.values, trees.message_ids)], spout="s")
            found.append(raw.info("commandstats")["cmdstat_evalsha"]["usec"] - before)
        return float(statistics.median(found))

    Trees(1000).track(ledger)
    accepted = cost()
    while True:
        trees = [Trees(1000) for _ in range(20)]
        slabs = [NewSlab(one.anchors, one.values, one.message_ids) for one in trees]
        if "R" in ledger.track_slabs(slabs, spout="s"):
            break
    size = raw.info("memory")["used_memory_dataset"]
    rejected = cost()
    assert rejected < accepted
    assert raw.info("memory")["used_memory_dataset"] - size < 100_000


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("SETEX acker:{t}:novelty 60 1", "no known kind"),
        ("SETEX other 60 1", "no known kind"),
        ("SET acker:{t}:turn 1", "no time to live"),
        ("SET acker:{t:0}:scratch 1", "outlived its call"),
        ("SET acker:{t:0}:slabs 1", "is a string"),
        ("HSET acker:{t:0}:clock " + " ".join(f"{n} 1" for n in range(17)), "more than 16 entries"),
    ],
)
def test_the_look_at_every_key_after_each_test_sees_what_should_not_be_left(
    valkey_raw: Raw, command: str, why: str
) -> None:
    assert_no_leaks(valkey_raw)
    valkey_raw.execute_command(*command.split())
    with pytest.raises(AssertionError, match=why):
        assert_no_leaks(valkey_raw)
    valkey_raw.flushall()
