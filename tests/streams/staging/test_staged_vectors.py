"""Staged vectors of few words are applied together: by one call for a shard, each chunk for itself."""

from collections import Counter
from typing import Any

import pytest
import redis

from acker.errors import UnreadableRecord
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.store.operation import Operation
from acker.streams.log.segments import new_hex_id
from acker.streams.staging import vectors
from acker.streams.staging.staging import stage_deltas
from acker.streams.staging.vectors import Applied, VectorKey
from tests.helpers.builders.streaming import counters


def staged(ledger: Ledger, anchors: ids.Ids, deltas: ids.Ids) -> VectorKey:
    staged_id = new_hex_id()
    requests, shards = stage_deltas(ledger.core, 60, anchors, deltas, staged_id, 0, "0")
    ledger.store.send(requests)
    [shard] = shards
    return ledger.core.shards[shard].staged(staged_id, 0), shard


def run(ledger: Ledger, operation: Operation[Any]) -> tuple[Any, list[str]]:
    """The result of an operation, and the scripts that it has called."""
    scripts, replies = list[str](), None
    try:
        while True:
            requests = operation.send(replies)  # type: ignore[arg-type]
            scripts += [one.script.name for one in requests if one.script is not None]
            replies = ledger.store.send(requests)
    except StopIteration as end:
        return end.value, scripts


def made_of(ledger: Ledger, pending: int, segments: int) -> tuple[ids.Ids, list[VectorKey]]:
    """Trees, each with a tuple of its own (`end`), and segments each of which has a tuple of every tree."""
    anchors = ids.anchors_from(ids.new_slab(), pending)
    ledger.track(anchors, anchors, [b"m"] * pending, spout="s")
    return anchors, [staged(ledger, anchors, ids.new_ids(pending)) for _ in range(segments)]


def end(ledger: Ledger, anchors: ids.Ids) -> None:
    """Acks the tuples that trees have of their own: only the tuples of segments are left."""
    ledger.update(anchors, anchors)


def test_small_ones_of_a_shard_go_together_and_large_ones_do_not(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    first, few = made_of(ledger, 3, 20)
    second, many = made_of(ledger, 17, 2)

    for to in "12":
        applied, scripts = run(ledger, vectors.apply(ledger.core, [*few, *many], to))
        assert scripts == ["apply_staged"] * 3, "the small ones, and each of the large ones"
        assert applied == Applied()

    end(ledger, first)
    end(ledger, second)
    found = counters(ledger)
    assert (found["acked"], found.get("late", 0)) == (20, 0)


def test_a_call_has_no_more_of_them_than_a_script_may(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    trees = [made_of(ledger, 1, 1) for _ in range(100)]
    places = [place for _, [place] in trees]

    for to in "12":
        _, scripts = run(ledger, vectors.apply(ledger.core, places, to))
        assert len(scripts) == 3, "48, 48 and 4"

    for anchors, _ in trees:
        end(ledger, anchors)
    assert counters(ledger)["acked"] == 100


def test_of_several_chunks_only_a_lost_one_stays(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    trees = [made_of(ledger, 1, 1) for _ in range(4)]
    places = [place for _, [place] in trees]
    run(ledger, vectors.apply(ledger.core, places, "1"))
    run(ledger, vectors.apply(ledger.core, places[:1], "2"))
    [(fourth, _)] = trees[3][1]
    valkey_raw.hset(fourth, "state", "0")  # as a store that was set back has it

    applied, scripts = run(ledger, vectors.apply(ledger.core, places, "2"))

    assert scripts == ["apply_staged"]
    assert (applied.late, applied.lost) == (0, 1)
    for anchors, _ in trees:
        end(ledger, anchors)
    assert counters(ledger)["acked"] == 3
    assert not any(valkey_raw.exists(key) for key, _ in places), "nothing of them is left"
    again, scripts = run(ledger, vectors.apply(ledger.core, places, "2"))
    assert (again, scripts, counters(ledger)["acked"]) == (Applied(), [], 3)


def test_nothing_is_applied_with_an_unreadable_one(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    anchors, places = made_of(ledger, 1, 3)
    valkey_raw.hset(places[2][0], "indexes:0", b"\0")
    heads = ledger.run(vectors.read_staged(places, ours=True))
    [(call, _)] = vectors.calls_of(ledger.core, places, heads, "1", vectors.CommitProgress("c", Counter()))
    before = valkey_raw.get(ledger.core.shards[0].vector(ids.slab_of(int(anchors[0]))))

    with pytest.raises(UnreadableRecord, match="chunk 0 of 1"):
        ledger.store.send([ledger.core.request(call)])

    assert valkey_raw.get(ledger.core.shards[0].vector(ids.slab_of(int(anchors[0])))) == before
    assert [valkey_raw.hget(key, "state") for key, _ in places] == [b"0"] * 3


def test_what_an_earlier_version_has_staged_goes_alone(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    anchors, places = made_of(ledger, 1, 2)
    run(ledger, vectors.apply(ledger.core, places, "1"))
    for key, _ in places:
        valkey_raw.hdel(key, "words")

    _, scripts = run(ledger, vectors.apply(ledger.core, places, "2"))

    assert scripts == ["apply_staged"] * 2
    end(ledger, anchors)
    assert counters(ledger)["acked"] == 1
