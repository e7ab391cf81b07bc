"""The scripts of kept rows and dead letters as functions (as in acker/streams/log/scripts.py)."""

from collections.abc import Mapping, Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store.keys import Spout
from acker.store.operation import Request, Word, script


def keep(
    config: TopologyConfig,
    spout: Spout,
    token: str,
    record: str,
    rows: int,
    limit: int,
    trees: int,
    slabs: bytes,
) -> Request:
    """Keeps the rows of roots."""
    own = [*spout.declared(), spout.rows(token)]
    return script("keep", own, [token, record, rows, limit, trees, slabs], config.wait)


def raise_highest(spout: Spout, highest: Mapping[str, int]) -> Request:
    """Raises the offsets after the highest rows of partitions."""
    return script("raise_highest", [spout.highest], [word for one in highest.items() for word in one])


def settle(
    spout: Spout, how: str, slabs: Sequence[tuple[bytes, bytes, int]], tokens: Sequence[str]
) -> Request:
    """Settles trees: slab, packed indexes, and the number of its token for each."""
    own = [*spout.declared(), *(spout.rows(token) for token in tokens)]
    return script("settle", own, [how, *(word for one in slabs for word in one)])


def bury(
    spout: Spout, token: str, slab: bytes, index: int, stored: bytes, facts: Mapping[str, Word]
) -> Request:
    """Makes a record a dead letter."""
    own = [*spout.declared(), spout.dead, spout.letters, spout.rows(token)]
    fields = [word for fact in facts.items() for word in fact]
    return script("bury", own, [slab, index.to_bytes(2, "little"), stored, *fields])


def drop_letters(spout: Spout, numbers: Sequence[str]) -> Request:
    """Drops dead letters."""
    return script("drop_letters", [spout.dead, spout.letters], numbers)


def register_roots(
    key: bytes,
    ttl: int,
    source: str,
    task: tuple[int, int, int],
    fingerprint: str,
    roots: str,
    number: int,
) -> Request:
    """Settles which roots the rows of a task have. task: stage, partition and attempt. number: of its own."""
    return script("register_roots", [key], [ttl, source, *task, fingerprint, roots, number])
