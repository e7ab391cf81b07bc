"""The scripts of the tick as functions (as in acker/ledger/calls/scripts.py).

Terms: a slab is the trees that one call tracked together.
"""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.ledger.settings.config import TopologyConfig
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.operation import Word


def rotate(
    shard: Shard, rotation: int, period: int, horizon: int, force: bool, stamp: bytes, age: int, trust: bool
) -> Call:
    """Rotates the buckets. period, horizon, age: in ms."""
    own = [shard.expired(rotation), shard.marks(rotation + 1)]
    args: list[Word] = [rotation, period, horizon, int(force), stamp, age, int(trust)]
    return Call(shard.number, scripts.get("rotate"), own, args)


def drain(
    config: TopologyConfig,
    shard: Shard,
    rotation: int,
    slabs: Sequence[bytes],
    odd: Sequence[bytes] = (),
    texts: Sequence[str] = (),
    codes: Sequence[bytes] = (),
    until: int = 0,
) -> Call:
    """Expires slabs that a rotation set aside. odd: malformed members. codes: reason codes of each slab.

    until: the time when texts become old, in ms by the shard's clock; 0 for never.
    """
    own = [shard.expired(rotation), *shard.vectors(slabs)]
    args: list[Word] = [rotation, config.outcomes_kept, until, len(odd), *odd, len(texts), *texts, *codes]
    return Call(shard.number, scripts.get("drain"), own, args)
