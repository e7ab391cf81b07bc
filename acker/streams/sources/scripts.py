"""The scripts of kept rows and dead letters as functions (see acker/streams/log/scripts.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; roots are
rows of a spout that were staged together, and get a tree each; staged rows are stored, but nobody sees them
before a commit.
"""

from collections.abc import Mapping, Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store.keys import Spout, config, health, reached
from acker.store.operation import Request, Word, script


def keep_rows(
    settings: TopologyConfig,
    spout: Spout,
    roots_id: str,
    record: str,
    rows: int,
    limit: int,
    trees: int,
    slabs: bytes,
    seen: tuple[bytes, int],
    *,
    staged: bool = False,
) -> Request:
    """Keeps the rows of roots.

    seen: the removals of the spout, and the time (ms) until which the call counts; 0 in a chain. staged:
    drops the rows that were staged beside their ids.
    """
    names = [spout.rows(roots_id), spout.removals, spout.paused]
    names += [spout.rows(roots_id, "staged_rows")] if staged else []
    words: list[Word] = [roots_id, record, rows, limit, trees, slabs, *seen]
    return script("keep_rows", [*spout.declared(), *names], words, settings.wait)


def find_kept_rows(spout: Spout, slabs: Sequence[bytes]) -> Request:
    """Finds the kept rows of slabs."""
    return script("find_kept_rows", [spout.kept, spout.slabs], slabs)


def fill_rows(spout: Spout, roots_id: str, tail: bytes, rows: bytes) -> Request:
    """Replaces kept ids, as they were read, by others."""
    return script("fill_rows", [spout.kept, spout.rows(roots_id)], [roots_id, tail, rows])


def note_wait(topology: str, kind: str, spout: str, text: str) -> Request:
    """Notes what a spout waits for, or how far its dead letters were sent; "" drops the note.

    kind: "unread" and "unsent" have a time (ms) and a reason: its source could not be read again, its dead
    letters could not be sent. "sent" has the number of its last sent dead letter.
    """
    return script("note_wait", [config(topology), health(topology)], [kind, spout, text])


def raise_highest(spout: Spout, highest: Mapping[str, int], seen: tuple[bytes, int]) -> Request:
    """Raises the upper ends of partitions: the offsets after their highest rows. seen: as in `keep_rows`."""
    words: list[Word] = [word for one in highest.items() for word in one]
    return script("raise_highest", [spout.highest, spout.removals], [*seen, *words])


def note_reached(
    topology: str, spout: str, partitions: Sequence[tuple[Word, Word, Word, Word, Word, Word]]
) -> Request:
    """Notes how far a spout has come in partitions."""
    words = [word for partition in partitions for word in partition]
    return script("note_reached", [reached(topology), config(topology)], [spout, *words])


def settle(
    spout: Spout, fate: str, slabs: Sequence[tuple[bytes, bytes, int]], roots_ids: Sequence[str]
) -> Request:
    """Settles trees: slab, packed indexes, and the number of its id for each."""
    own = [*spout.declared(), *(spout.rows(roots_id) for roots_id in roots_ids)]
    return script("settle", own, [fate, *(word for one in slabs for word in one)])


def bury(
    spout: Spout, roots_id: str, slab: bytes, index: int, stored: bytes, facts: Mapping[str, Word]
) -> Request:
    """Makes a record a dead letter."""
    own = [*spout.declared(), spout.dead, spout.letters, spout.rows(roots_id)]
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
    """Decides which roots the rows of a task have.

    task: stage, partition and attempt. number: of the caller's roots.
    """
    return script("register_roots", [key], [ttl, source, *task, fingerprint, roots, number])
