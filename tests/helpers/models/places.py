"""Checks that the places of each pending tree are complete: their XOR is its ack value."""

from acker.inspect.locate import search, tuples
from acker.inspect.locate.tuples import Location
from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry
from acker.ledger.trees.trees import Tree
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import segments


def unexplained(ledger: Ledger) -> list[int]:
    """The anchors of pending trees of which more or less is found in streams than their ack values say."""
    words = ledger.run(_found(ledger))
    trees: list[Tree] = []
    cursor = None
    while True:
        page = ledger.run(pages.trees(ledger.core, state="pending", limit=1000, cursor=cursor))
        trees += page.trees
        cursor = page.cursor
        if cursor is None:
            return [tree.anchor for tree in trees if words.get(tree.anchor, 0) != tree.value]


def _found(ledger: Ledger) -> Operation[dict[int, int]]:
    """XOR of what streams, and commits that are under way, have of each tree."""
    core = ledger.core
    known = yield from search.streams(core)
    locations: list[Location] = []
    for name in known.named:
        [entries] = yield [command("XRANGE", keys.Stream(core.config.name, name).entries, "-", "+")]
        for entry, fields in entries:
            segment = segments.Segment.load(fields[1])
            locations += [Location(name, slot, segment, entry.decode()) for slot in segment.slots]
    published = {(one.segment.id, one.slot) for one in locations}
    for one in (yield from tuples.under_way(core, known.named, (yield from step_registry.steps(core)))):
        if (one.segment.id, one.slot) not in published:
            locations.append(one)
    slabs: dict[int, frozenset[bytes]] = {}
    for shard in core.shards:
        [names] = yield [command("HKEYS", shard.slabs)]
        [ones] = yield [command("HKEYS", shard.ones)]
        slabs[shard.number] = frozenset([*names, *ones])
    found: dict[int, int] = {}
    for part in (yield from tuples.look(core, locations, slabs)):
        for index, word in zip(part.indexes.tolist(), part.words.tolist(), strict=True):
            anchor = ids.anchor_at(part.slab, index)
            found[anchor] = found.get(anchor, 0) ^ word
    return found
