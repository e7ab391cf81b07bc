"""Trees that nobody tells an outcome of: the ledger lost them, or the commit that was to track them ended.

They are failed and tracked again, in this order, so that the ledger tells of them as of any other. Those
whose rows cannot be read are left: there is nothing to be replayed.
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
"""Message timeouts after which kept rows are looked after: a commit waits for 2, trees expire by 1.5."""
REASON = "the store has lost the tree"
_LOOK = 100


def recover(core: Core, spout: str) -> Operation[int]:
    """Looks after a bounded number of old rows of a spout; returns how many trees were lost.

    One that is only late (its timeout was reset) is known to the ledger and left alone.
    """
    own = keys.Spout(core.config.name, spout)
    [instant] = yield [Request(own.times, ["TIME"])]
    now = milliseconds(instant)
    oldest = now - round(AFTER * core.config.timeout_ms)
    [tokens, ahead] = yield [
        command("ZRANGEBYSCORE", own.times, "-inf", oldest, "LIMIT", 0, _LOOK),
        command("ZRANGEBYSCORE", own.times, f"({now}", "+inf", "LIMIT", 0, _LOOK),
    ]
    if ahead:  # the server's clock was set back: they are as if they were kept now
        yield [command("ZADD", own.times, "XX", *(part for token in ahead for part in (now, token)))]
    if not tokens:
        return 0
    [records] = yield [command("HMGET", own.kept, *tokens)]
    found = 0
    for token, record in zip(tokens, records, strict=True):
        if (known := roots.readable(record)) is not None:
            found += yield from _recover(core, own, known)
        yield [command("ZADD", own.times, "XX", now, token)]
    return found


def _recover(core: Core, own: keys.Spout, one: Roots) -> Operation[int]:
    names = [ids.slab_of(int(first)) for first in one.slabs()]
    # The ledger first: what it has forgotten because its outcome was confirmed was settled before.
    known = yield [
        command("HGET", core.shards[ids.shard_of(name, core.config.ackers)].slabs, name) for name in names
    ]
    kept = yield [command("HEXISTS", own.slabs, name) for name in names]
    lost = [
        place
        for place, (header, open_) in enumerate(zip(known, kept, strict=True))
        if open_ and not slabs.is_tracked(header)
    ]
    if not lost or (yield from roots.kept_rows(core, one)) is None:
        return 0
    anchors = one.anchors()
    trees = anchors[np.isin(np.arange(one.rows) // one.slab, lost)]
    # What cannot be read of them a drain puts away first.
    yield from idempotence.submit(core, core.fail(trees, Cause(REASON).encode()).calls)
    yield from tracking.track_again(core, one, lost)
    return len(trees)
