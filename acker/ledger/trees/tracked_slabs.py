"""Asks the ledger for slabs whose trees have no outcome, for the spout's own timer.

Terms: a slab is the trees that one call tracked together; the nursery is the first of three time buckets,
through which a tree goes until it expires.
"""

from collections.abc import Sequence

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs import slabs as headers
from acker.store.operation import Operation, command


def still_there(core: Core, slabs: Sequence[bytes]) -> Operation[tuple[set[bytes], set[bytes]]]:
    """The slabs that the ledger holds as tracked: with possibly pending trees, and with finished trees only.

    A slab that was passed over when its bucket was drained no longer expires, so it counts as neither.
    """
    pending: set[bytes] = set()
    finished: set[bytes] = set()
    shards = [core.shards[shard] for shard in {ids.shard_of(slab, core.config.ackers) for slab in slabs}]
    # Read before the headers: a slab that goes back to the nursery meanwhile was not passed over.
    clocks = yield [command("HMGET", shard.clock, "drained", "rotations") for shard in shards]
    drained = {shard.number: _drained(*clock) for shard, clock in zip(shards, clocks, strict=True)}
    for first in range(0, len(slabs), 256):
        part = slabs[first : first + 256]
        shards = [core.shards[ids.shard_of(slab, core.config.ackers)] for slab in part]
        requests = [command("HGET", shard.slabs, slab) for shard, slab in zip(shards, part, strict=True)]
        requests += [
            command("HEXISTS", shard.ones, slab)
            if ids.is_one(slab)
            else command("EXISTS", shard.vector(slab))
            for shard, slab in zip(shards, part, strict=True)
        ]
        replies = yield requests
        for slab, header, vector in zip(part, replies[: len(part)], replies[len(part) :], strict=True):
            known, shard = headers.read(header), ids.shard_of(slab, core.config.ackers)
            if known is not None and known.kind == headers.TRACKED:
                (pending if vector and known.entered + 2 >= drained[shard] else finished).add(slab)
    return pending, finished


def _drained(drained: bytes | None, rotations: bytes | None) -> int:
    """The rotation up to which a shard is drained; 0 if the clock cannot be right."""
    if not all(value is not None and value.isdigit() and len(value) < 16 for value in (drained, rotations)):
        return 0
    return int(drained) if int(drained) <= int(rotations) else 0  # type: ignore[arg-type]
