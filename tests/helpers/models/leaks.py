"""Keys that acker may leave in a store: each is of a known kind, and a key that lives for ever has an owner.

A kind of key that another part of acker adds belongs into one of the tables here. A key with a time to live
needs no owner; rows without must be of a segment that is read, or that waits for a live request.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import redis

from acker.inspect.operate import activity
from acker.inspect.topology.health import PACES
from acker.inspect.topology.thresholds import THRESHOLDS
from acker.inspect.topology.troubles import CODES
from acker.ledger.calls.marks import MOST_STEPS as MOST_NUMBERS
from acker.ledger.outcomes.latency_histogram import MOST_BUCKET, PER_DOUBLING
from acker.ledger.settings.config import MAX_SPOUTS
from acker.ledger.slabs import sections
from acker.ledger.slabs.sections import LINES
from acker.ledger.steps.step_registry import MOST_STEPS
from acker.streams.upkeep.scripts import MOST_DROPS

PERMANENT = {
    "acker:topologies": "set",
    "acker:functions": "hash",
    "config": "hash",
    "clock": "hash",
    "counters": "hash",
    "latency": "hash",
    "writers": "hash",
    "writers_before": "hash",
    "outcomes": "stream",
    "streams": "set",
    "steps": "hash",
    "step_numbers": "hash",
    "step_counts": "hash",
    "health": "hash",
    "activity": "stream",
    "chart_marks": "stream",
    "schema": "string",
    "entries": "stream",
    "counts": "hash",
    "highest": "hash",
    "reached": "hash",
    "dead": "stream",
    "letters": "hash",
    "history": "stream",
    "subscriptions": "hash",
    "drops": "stream",
    "recent": "stream",
    "lines": "hash",
    "counted": "hash",
    "paused": "string",
}
"""Keys that stay when all trees are finished, confirmed and forgotten; streams of outcomes are empty then."""

WHILE_TREES_LIVE = {
    "slabs": "hash",
    "message_ids": "hash",
    "failures": "hash",
    "confirmed": "hash",
    "bucket": "set",
    "expired": "set",
    "ack": "string",
    "ones": "hash",
    "early": "hash",
    "finished": "hash",
    "payload": "string",
    "kept": "hash",
    "masks": "hash",
    "left": "hash",
    "times": "zset",
    "rows": "string",
    "unacked": "hash",
    "returned": "stream",
}
"""Keys that go with their trees."""

TEMPORARY = {
    "turn", "idempotency_key", "commits", "committing", "notes", "tracked", "tracking_queries", "failing",
    "effects", "staged", "staged_rows", "once", "latest_once", "published", "marks", "delivered", "holder",
    "readers", "heartbeats",
    "fences", "suspect", "verdict", "stale", "applied", "trace", "traces", "skipped", "progress", "workers",
    "gathered", "gathering", "gone", "answer", "answers", "given", "result", "volumes", "early_rows",
    "removals", "listed", "named", "members", "receipts", "sent", "server", "txn",
    "calls", "deadlines", "removed", "withdrawn", "held",
}  # fmt: skip
"""Keys that always have a time to live."""

MOST = {
    "config": MAX_SPOUTS + 32,
    "clock": 16,
    "counters": 64 + MAX_SPOUTS,
    "latency": 64 * PER_DOUBLING,
    "steps": MOST_STEPS,
    "step_numbers": MOST_NUMBERS,
    "step_counts": (MOST_NUMBERS + 1) * (MOST_BUCKET + 4),
    "health": len(THRESHOLDS) + 2 * len(CODES) + PACES,
    "history": 30 * 144,
    "activity": activity.MOST,
    "chart_marks": activity.MOST_MARKS,
    "drops": MOST_DROPS,
    "lines": LINES,
    "counted": 12 * (MOST_BUCKET + 60),
    "writers": 1_000_000,
    "writers_before": 1_000_000,
}
"""Most entries of what stays and is bounded by a number; the rest is bounded by a topology's settings."""

WITHIN_A_CALL = ("scratch", "operand")
"""Keys that live within one call of a script."""

_LEDGER_KEY = re.compile(
    rb"acker:\{(?:acker:(?:topologies|functions)|[^{}:]+(?::\d+/\d+)?)\}:([a-z_]+)(?::.*)?\Z", re.DOTALL
)


def kind_of(key: bytes) -> str:
    """The kind of a key of the ledger, or "" where it is none of its."""
    if key in (b"acker:topologies", b"acker:functions"):
        return key.decode()
    match = _LEDGER_KEY.match(key)
    return match[1].decode() if match else ""


def entries(client: "redis.Redis", key: bytes, kind: str) -> int:
    """The number of entries of a hash or a stream."""
    return int(client.hlen(key) if kind == "hash" else client.xlen(key))


def problems(client: "redis.Redis", settled: bool = False) -> Iterable[str]:
    """Faults of the keys in the store. `settled`: no tree lives and every outcome is confirmed."""
    for key in client.scan_iter(count=1000):
        kind = kind_of(key)
        found = client.type(key).decode()  # type: ignore[union-attr]
        if found == "none":
            continue  # it went since it was found, as where a caller of a function still sees to what is late
        if kind in WITHIN_A_CALL:
            yield f"{key!r} outlived its call"
        elif found != (PERMANENT | WHILE_TREES_LIVE).get(kind, found):
            yield f"{key!r} is a {found}"
        elif kind in WHILE_TREES_LIVE and settled and client.ttl(key) == -1:
            yield f"{key!r} is left though no tree is"
        elif kind == "outcomes" and settled and client.xlen(key):
            yield f"{key!r} holds outcomes though all are confirmed"
        elif kind not in PERMANENT.keys() | WHILE_TREES_LIVE.keys() | TEMPORARY:
            yield f"{key!r} ({found}) is of no known kind"
        elif kind in TEMPORARY and client.ttl(key) == -1:
            yield f"{key!r} has no time to live"
        elif kind == "letters" and client.hlen(key) != client.xlen(key.removesuffix(b"letters") + b"dead"):
            yield f"{key!r} has not the rows of all dead letters, and of them alone"
        elif kind in MOST and entries(client, key, found) > MOST[kind]:
            yield f"{key!r} has more than {MOST[kind]} entries"


def assert_no_leaks(client: "redis.Redis") -> None:
    """Fails when a key is left behind that neither has a time to live nor is meant to stay."""
    found = sorted(problems(client))
    assert not found, "\n".join(["the test left keys behind:", *found[:20]])


def assert_settled(client: "redis.Redis") -> None:
    """Fails when anything is left of trees, after all outcomes are confirmed and three ticks were made."""
    found = sorted(problems(client, settled=True))
    assert not found, "\n".join(["trees left keys behind:", *found[:20]])


_STREAM = re.compile(rb"(acker:\{[^{}:/@]+/[^{}:]+\}:)([a-z_]+)(?::(.*))?\Z", re.DOTALL)
_SPOUT = re.compile(rb"(acker:\{[^{}:/@]+@[^{}:]+\}:)rows:(.*)\Z", re.DOTALL)
_SHARD = re.compile(rb"acker:\{[^{}:/@]+:\d+/\d+\}:slabs\Z")
_GROUP = re.compile(rb"([0-9a-f]{16}):\d+\Z")


def unowned(clients: Sequence[Any]) -> Iterator[str]:
    """Keys without a time to live that nobody will find again. clients: of all servers of a store."""
    slabs = set[bytes]()
    for client in clients:
        for key in client.scan_iter("acker:{*}:slabs", count=1000):
            if _SHARD.match(key) and client.type(key) == b"hash":
                slabs.update(client.hkeys(key))
    for client in clients:
        yield from _rows_of_streams(client, slabs)
        yield from _rows_of_spouts(client)


def assert_owned(clients: Sequence[Any]) -> None:
    """Fails where something is left that lives for ever and has no owner."""
    found = sorted(unowned(clients))
    assert not found, "\n".join(["keys that nobody will find again:", *found[:20]])


def _rows_of_streams(client: Any, slabs: set[bytes]) -> Iterator[str]:
    by_stream: dict[bytes, dict[bytes, list[bytes]]] = {}
    for key in client.scan_iter("acker:{*/*}:*", count=1000):
        if match := _STREAM.match(key):
            by_stream.setdefault(match[1], {}).setdefault(match[2], []).append(match[3] or b"")
    for prefix, kinds in by_stream.items():
        owned = set[bytes]()
        with suppress(ValueError):  # an entry that cannot be read: nobody knows whose rows it has
            owned |= _tokens(client, prefix + b"entries")
            for place in kinds.get(b"gathered", ()):
                group = _GROUP.match(place)
                owned |= _tokens(client, prefix + b"gathered:" + place)
                if group and not any(
                    sections.slab_of(group[1].decode(), section) in slabs
                    for section in range(1, sections.SECTIONS + 1)
                ):
                    yield f"{prefix + b'gathered:' + place!r} waits for a request that is over"
            for kind in (b"payload", b"unacked"):
                for segment_id in kinds.get(kind, ()):
                    key = prefix + kind + b":" + segment_id
                    if segment_id not in owned and client.ttl(key) == -1:
                        yield f"{key!r} is of no segment"


def _tokens(client: Any, key: bytes) -> set[bytes]:
    """The segments of a stream of entries. Raises ValueError where one cannot be read."""
    if client.type(key) != b"stream":
        return set()
    segment_ids = set[bytes]()
    for _, fields in client.xrange(key):
        record = json.loads(fields.get(b"segment", b"null"))
        if not isinstance(record, list) or len(str(record[0])) != 32:
            raise ValueError(record)
        segment_ids.add(str(record[0]).encode())
    return segment_ids


def _rows_of_spouts(client: Any) -> Iterator[str]:
    for key in client.scan_iter("acker:{*@*}:rows:*", count=1000):
        match = _SPOUT.match(key)
        if (
            match
            and client.ttl(key) == -1
            and not client.hexists((match[1] + b"kept").decode(), match[2].decode())
        ):
            yield f"{key!r} is of no roots"
