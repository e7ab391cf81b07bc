"""Whether what streams hold of each pending tree is all there is: the XOR of the places is the ack value."""

from acker.inspect.locate import search, tuples
from acker.inspect.locate.tuples import Lying
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
    there: list[Lying] = []
    for name in known.named:
        [entries] = yield [command("XRANGE", keys.Stream(core.config.name, name).entries, "-", "+")]
        for entry, fields in entries:
            segment = segments.Segment.load(fields[1])
            there += [Lying(name, slot, segment, entry.decode()) for slot in segment.slots]
    published = {(one.segment.token, one.slot) for one in there}
    for one in (yield from tuples.under_way(core, known.named, (yield from step_registry.steps(core)))):
        if (one.segment.token, one.slot) not in published:
            there.append(one)
    slabs: dict[int, frozenset[bytes]] = {}
    for shard in core.shards:
        [names] = yield [command("HKEYS", shard.slabs)]
        [ones] = yield [command("HKEYS", shard.ones)]
        slabs[shard.number] = frozenset([*names, *ones])
    found: dict[int, int] = {}
    for part in (yield from tuples.look(core, there, slabs)):
        for index, word in zip(part.indexes.tolist(), part.words.tolist(), strict=True):
            anchor = ids.anchor_at(part.slab, index)
            found[anchor] = found.get(anchor, 0) ^ word
    return found
