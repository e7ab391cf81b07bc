"""Lost trees: they get no outcome, because the ledger lost them, or the commit that was to track them ended.

They are failed and tracked again, in this order, so that the ledger reports them like any other tree. Trees
whose rows cannot be read are left, because there is nothing to replay.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import numpy as np

from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.slabs import slabs
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds
from acker.streams.sources import roots, tracking
from acker.streams.sources.roots import Roots

AFTER = 3.0
"""Message timeouts after which kept rows are checked: a commit waits for 2, trees expire by 1.5."""
REASON = "the store has lost the tree"
_LOOK = 100


def recover(core: Core, spout: str) -> Operation[int]:
    """Checks a bounded number of old rows of a spout; returns the number of lost trees.

    A tree that is only late (its timeout was reset) is known to the ledger and left alone.
    """
    spout_keys = keys.Spout(core.config.name, spout)
    [instant] = yield [Request(spout_keys.times, ["TIME"])]
    now = milliseconds(instant)
    oldest = now - round(AFTER * core.config.timeout_ms)
    [roots_ids, ahead] = yield [
        command("ZRANGEBYSCORE", spout_keys.times, "-inf", oldest, "LIMIT", 0, _LOOK),
        command("ZRANGEBYSCORE", spout_keys.times, f"({now}", "+inf", "LIMIT", 0, _LOOK),
    ]
    if ahead:  # the server's clock was set back: they count as kept now
        yield [
            command("ZADD", spout_keys.times, "XX", *(part for roots_id in ahead for part in (now, roots_id)))
        ]
    if not roots_ids:
        return 0
    [records] = yield [command("HMGET", spout_keys.kept, *roots_ids)]
    count = 0
    for roots_id, record in zip(roots_ids, records, strict=True):
        if (roots_found := roots.readable(record)) is not None:
            count += yield from _recover(core, spout_keys, roots_found)
        yield [command("ZADD", spout_keys.times, "XX", now, roots_id)]
    return count


def _recover(core: Core, spout_keys: keys.Spout, kept_roots: Roots) -> Operation[int]:
    names = [ids.slab_of(int(first)) for first in kept_roots.slabs()]
    # The ledger first: trees that it has forgotten, because their outcome was confirmed, were settled before.
    headers = yield [
        command("HGET", core.shards[ids.shard_of(name, core.config.ackers)].slabs, name) for name in names
    ]
    kept = yield [command("HEXISTS", spout_keys.slabs, name) for name in names]
    lost = [
        place
        for place, (header, open_) in enumerate(zip(headers, kept, strict=True))
        if open_ and not slabs.is_tracked(header)
    ]
    if not lost or (yield from roots.kept_rows(core, kept_roots)) is None:
        return 0
    anchors = kept_roots.anchors()
    trees = anchors[np.isin(np.arange(kept_roots.rows) // kept_roots.slab, lost)]
    # Unreadable slabs are put away by a drain first.
    yield from idempotence.submit(core, core.fail(trees, Cause(REASON).encode()).calls)
    yield from tracking.track_again(core, kept_roots, lost)
    return len(trees)
