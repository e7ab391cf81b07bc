"""The trees of calls: they are looked for among the rows that the function's spout keeps, and no others."""

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


def tree(core: Core, what: Description, request: str) -> Operation[Tree | None]:
    """The tree of a call, in its last section; None where it has none yet, or none any more.

    Of a call that is tried again it is that of the latest attempt. Up to 20,000 groups of calls without
    answer are looked through.
    """
    own, cursor, found = keys.Spout(core.config.name, what.name), b"0", list[Tree]()
    for _ in range(_PAGES):
        [(cursor, stored)] = yield [command("HSCAN", own.slabs, cursor, "COUNT", _PAGE)]
        anchors = yield from _named(core, list(pairs(stored)), request.encode())
        found += yield from trees_at(core, anchors)
        if cursor == b"0" or any(one.state == "pending" for one in found):
            break
    own_trees = [one for one in found if one.spout == what.name]
    return max(own_trees, key=lambda one: one.tracked_at, default=None)


def _named(core: Core, slabs: Sequence[bytes], request: bytes) -> Operation[list[int]]:
    """The anchors that have a message id, of those in slabs."""
    by_shard: dict[int, list[bytes]] = {}
    for slab in slabs:
        by_shard.setdefault(ids.shard_of(slab, core.config.ackers), []).append(slab)
    replies = yield [
        command("HMGET", core.shards[shard].message_ids, *members) for shard, members in by_shard.items()
    ]
    # Those of a large slab are kept in pieces beside it (lua/ledger/includes/id_pieces.lua).
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
