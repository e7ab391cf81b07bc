"""Trees of calls, found among the rows that the function's spout keeps.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a section
is the steps of a line between two gathers; a group is requests of a line that were tracked together.
"""

from collections.abc import Sequence

from acker.drpc.registry import Description
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.trees.trees import Tree, trees_at
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs

_PAGE = 500
_PAGES = 40


def tree(core: Core, function: Description, request: str) -> Operation[Tree | None]:
    """Returns the tree of a call in its last section, by the latest attempt; None if it has none now.

    Searches up to 20,000 groups of calls without answer.
    """
    spout_keys, cursor, trees = keys.Spout(core.config.name, function.name), b"0", list[Tree]()
    for _ in range(_PAGES):
        [(cursor, stored)] = yield [command("HSCAN", spout_keys.slabs, cursor, "COUNT", _PAGE)]
        anchors = yield from _named(core, list(pairs(stored)), request.encode())
        trees += yield from trees_at(core, anchors)
        if cursor == b"0" or any(attempt.state == "pending" for attempt in trees):
            break
    own_trees = [attempt for attempt in trees if attempt.spout == function.name]
    return max(own_trees, key=lambda attempt: attempt.tracked_at, default=None)


def _named(core: Core, slabs: Sequence[bytes], request: bytes) -> Operation[list[int]]:
    """Returns the anchors in slabs that have a message id."""
    by_shard: dict[int, list[bytes]] = {}
    for slab in slabs:
        by_shard.setdefault(ids.shard_of(slab, core.config.ackers), []).append(slab)
    replies = yield [
        command("HMGET", core.shards[shard].message_ids, *members) for shard, members in by_shard.items()
    ]
    # The ids of a large slab are in pieces beside it (lua/ledger/includes/id_pieces.lua).
    likely = [
        slab
        for members, reply in zip(by_shard.values(), replies, strict=True)
        for slab, packed in zip(members, reply, strict=True)
        if packed is not None and (not packed or request in packed)
    ]
    names = yield from outcomes.message_ids(core, likely)
    return [
        ids.anchor_at(slab, index)
        for slab, there in names.items()
        for index, name in enumerate(there)
        if name == request
    ]
