"""The state of a real store, compared with the state of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.store import keys
from acker.store.replies import pairs
from acker.streams.log import segments
from acker.streams.staging.external import bits
from tests.helpers.models.external import requests
from tests.helpers.models.external.shard import Key, Progress, Shard, Staged
from tests.helpers.models.external.stream import Stream
from tests.helpers.models.external.trees import Slab, is_over
from tests.helpers.models.ledger_state import read_shards

SLOW = 120_000
"""Milliseconds that a history takes at most: by so much a key's life may have passed beside its clock."""


def assert_same_trees(raw: "redis.Redis", ledger: Ledger, shards: Sequence[Shard]) -> None:
    """Fails where trees differ: their values, outcomes, and the rotations of their slabs."""
    for shard, real in zip(shards, read_shards(raw, ledger), strict=True):
        trees = shard.trees
        assert real.rotation == trees.rotation
        assert {name: slab[0] for name, slab in real.slabs.items()} == {
            name: slab.tracked for name, slab in trees.slabs.items()
        }
        assert {name: words for name, words in real.words.items() if words} == {
            name: words for name, slab in trees.slabs.items() if (words := _words(slab))
        }
        assert {name: set(failures) for name, failures in real.failures.items()} == {
            name: {ids.index_of(anchor) for anchor in slab.failed}
            for name, slab in trees.slabs.items()
            if slab.failed and not slab.tracked
        }
        for name, slab in trees.slabs.items():
            if not is_over(slab):
                assert real.slabs[name][3] == slab.rotation  # type: ignore[index]
        for outcome in ("acked", "failed", "expired"):
            assert real.counters.get(outcome, 0) == trees.counts[outcome], outcome


def _words(slab: Slab) -> dict[int, int]:
    return {ids.index_of(anchor): value for anchor, value in slab.values.items() if value}


def assert_same_hashes(raw: Any, ledger: Ledger, shards: Sequence[Shard]) -> None:
    """Fails where hashes of segments, or notes of flushes, differ."""
    names = raw.keys(f"acker:{{{ledger.config.name}:*")
    places = {name: place for name in names if (place := requests.shard_of(name)) is not None}
    chosen = [name for name, place in places.items() if place[1] in ("staged", "applied")]
    pipeline = raw.pipeline(transaction=False)
    for name in chosen:
        pipeline.hgetall(name).pttl(name)
    replies = iter(pipeline.execute())
    hashes: list[dict[Key, Any]] = [{} for _ in shards]
    notes: list[dict[str, Any]] = [{} for _ in shards]
    for name in chosen:
        number, kind, own = places[name]
        fields, life = next(replies), next(replies)
        if kind == "staged":
            hashes[number][requests.staged_key(own)] = fields, life
        else:
            notes[number][own.decode()] = fields, life
    for number, shard in enumerate(shards):
        assert _open_rows(raw, ledger, number) == _rows_left(shard)
        assert {key: _stored(fields) for key, (fields, _) in hashes[number].items()} == {
            key: _expected(staged) for key, staged in shard.staged.items()
        }
        for key, (_, life) in hashes[number].items():
            wanted = shard.staged[key].until - shard.now
            assert wanted - SLOW < life <= wanted + SLOW, (key, life, wanted)
        for flush, (_, life) in notes[number].items():
            wanted = shard.flushes[flush].life - shard.now
            assert wanted - SLOW < life <= wanted + SLOW, (flush, life, wanted)
        assert {flush: _noted(fields) for flush, (fields, _) in notes[number].items()} == {
            flush: _progress(progress)
            for flush, progress in shard.flushes.items()
            if progress.applied or progress.slabs
        }


def _open_rows(raw: Any, ledger: Ledger, shard: int) -> dict[int, int]:
    """Rows that subscriptions have still to work on, as a shard counts them."""
    counts = raw.hgetall(ledger.core.shards[shard].counters)
    return {int(name[5:]): int(count) for name, count in counts.items() if name.startswith(b"open:")}


def _rows_left(shard: Shard) -> dict[int, int]:
    """The same by the bits of all segments that are emitted, and neither full nor void."""
    left = dict[int, int]()
    for (_, slot), staged in shard.staged.items():
        if staged.state == 1 and staged.content.rows is not None and not staged.full and not staged.void:
            left[slot] = left.get(slot, 0) + staged.content.rows - len(staged.bits)
    return {slot: rows for slot, rows in left.items() if rows}


def _stored(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """A hash as the store has it."""
    state = fields.get(b"state", b"").decode()
    assert len(set(state)) <= 1, f"the chunks of a hash are in different states: {state}"
    return {
        "state": int(state[0]) if state else None,
        "early": b"early" in fields,
        "bits": set(bits.unpack(fields.get(b"bits", b""))),
        "fails": requests.fails_of(fields.get(b"fails", b"")),
        "full": b"full" in fields,
        "void": b"void" in fields,
        "oldest": fields.get(b"oldest", b"").decode(),
    }


def _expected(staged: Staged) -> dict[str, Any]:
    """The same of the model."""
    oldest = staged.oldest
    return {
        "state": staged.state,
        "early": staged.state is None,
        "bits": staged.bits,
        "fails": staged.fails,
        "full": staged.full,
        "void": staged.void,
        "oldest": f"{oldest.rotation} {oldest.until}" if oldest is not None else "",
    }


def _noted(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The notes of a flush as the store has them."""
    slabs = {name[5:]: int(value) for name, value in fields.items() if name.startswith(b"wait:")}
    return {
        "applied": {staged for name in fields for staged in requests.staged_keys([name])},
        "slabs": slabs,
        "until": int(fields[b"until"]) if b"until" in fields else None,
    }


def _progress(progress: Progress) -> dict[str, Any]:
    """The same of the model."""
    return {"applied": progress.applied, "slabs": progress.slabs, "until": progress.until}


def assert_same_streams(raw: Any, ledger: Ledger, streams: Mapping[str, Stream]) -> None:
    """Fails where open segments, or the progress of subscriptions, differ."""
    pipeline = raw.pipeline(transaction=False)
    for name in streams:
        own = keys.Stream(ledger.config.name, name)
        pipeline.xrange(own.entries).hgetall(own.subscriptions)
    replies = iter(pipeline.execute())
    for stream in streams.values():
        entries, fields = next(replies), next(replies)
        records = [segments.readable(pairs(values).get(b"segment", b"")) for _, values in _flat(entries)]
        assert {record.id: set(record.slots) for record in records} == {
            token: set(entry.slots) for token, entry in stream.entries.items()
        }
        received = {slot: int(fields.get(b"received:%d" % slot, 0)) for slot in stream.slots}
        assert received == {slot: stream.received[slot] for slot in stream.slots}


def _flat(entries: Any) -> list[tuple[bytes, list[bytes]]]:
    """Entries with their fields as lists, as acker's own client gives them."""
    return [(name, [word for pair in fields.items() for word in pair]) for name, fields in entries]
