"""Trees to read, and pages of them, in few words."""

from collections.abc import Callable

from acker.inspect.topology.totals import Totals, totals
from acker.inspect.trees import pages as inspect
from acker.inspect.trees.pages import PAGE_TREES, TreesPage
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.trees import trees
from acker.ledger.trees.trees import Tree


def track(ledger: Ledger, count: int, name: str = "m", spout: str = "source") -> tuple[Ids, Ids]:
    anchors, values = ids.new_anchors(count), ids.new_ids(count)
    ledger.track(anchors, values, [f"{name}{index}" for index in range(count)], spout=spout)
    return anchors, values


def track_singles(ledger: Ledger, count: int, spout: str = "source") -> list[int]:
    slabs = [NewSlab(ids.new_anchors(1), ids.new_ids(1), [b"single%d" % number]) for number in range(count)]
    assert set(ledger.track_slabs(slabs, spout=spout)) == {"A"}
    return [int(slab.anchors[0]) for slab in slabs]


def tree(ledger: Ledger, anchor: int) -> Tree:
    found = ledger.run(trees.tree(ledger.core, anchor))
    assert found is not None
    return found


def pages(read: Callable[[str | None], TreesPage], most: int = 5_000) -> list[TreesPage]:
    """All pages from the first on; fails where they do not end."""
    pages_read = [read(None)]
    while pages_read[-1].cursor is not None:
        assert len(pages_read) < most
        pages_read.append(read(pages_read[-1].cursor))
    return pages_read


def listed(ledger: Ledger, limit: int = PAGE_TREES, **filters: object) -> list[Tree]:
    read = pages(
        lambda cursor: ledger.run(inspect.trees(ledger.core, limit=limit, cursor=cursor, **filters))  # type: ignore[arg-type]
    )
    assert all(len(page.trees) <= limit for page in read)
    return [tree for page in read for tree in page.trees]


def read_totals(ledger: Ledger) -> Totals:
    return ledger.run(totals(ledger.core))


# By message id


def found(ledger: Ledger, message_id: bytes | str, limit: int = 100) -> list[Tree]:
    read = pages(lambda cursor: ledger.run(inspect.find(ledger.core, message_id, limit=limit, cursor=cursor)))
    return [tree for page in read for tree in page.trees]
