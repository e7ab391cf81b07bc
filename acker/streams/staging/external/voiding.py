"""The end of an external segment: its tuples are acked, or all its trees fail.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together; a vector has a number for each tree, the XOR of tuple ids; a chunk is a piece of a vector,
applied by one call; staged rows are stored, but nobody sees them before a commit.
"""

import struct
from collections.abc import Iterable

import numpy as np

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs.causes import Cause
from acker.store.operation import Operation, command
from acker.store.records import reading
from acker.store.replies import pairs
from acker.streams.staging import acks, vectors
from acker.streams.staging.external import scripts
from acker.streams.staging.external.declaring import MARGIN
from acker.streams.staging.vectors import VectorKey


def trees(core: Core, place: VectorKey) -> Operation[ids.Ids]:
    """The trees that staged vectors are for; none where they are gone. UnreadableRecord."""
    key, shard = place
    [reply] = yield [command("HGETALL", key)]
    anchors = list[int]()
    with reading(f"the staged vectors {key!r}"):
        fields = {name.decode(): value for name, value in pairs(reply).items()}
        layout, names = fields.get("layout", b""), fields.get("slabs", b"")
        counts = struct.unpack(f"<{len(layout) // 2}H", layout)
        at = 0
        for number, slabs in enumerate(counts):
            slab_names = [names[8 * (at + index) : 8 * (at + index) + 8] for index in range(slabs)]
            at += slabs
            anchors += _trees_of(fields, number, slab_names)
        elsewhere = {ids.shard_of_anchor(anchor, core.config.ackers) for anchor in anchors} - {shard}
        if len(names) != 8 * at or elsewhere:
            raise ValueError(f"{len(names)} bytes of names for {at} slabs, of shards {elsewhere or shard}")
    return np.array(anchors, np.int64)


def _trees_of(fields: dict[str, bytes], number: int, slabs: list[bytes]) -> list[int]:
    """The trees of a chunk (lua/streams/staging/stage.lua)."""
    sparse = np.frombuffer(fields.get(f"counts:{number}", b""), dtype="<u2").tolist()
    indexes = np.frombuffer(fields.get(f"indexes:{number}", b""), dtype="<u2").tolist()
    lengths = np.frombuffer(fields.get(f"lengths:{number}", b""), dtype="<u2").tolist()
    words = np.frombuffer(fields.get(f"vectors:{number}", b""), dtype="<i8")
    alone = slabs[len(sparse) + len(lengths) :]
    if (sum(sparse), sum(lengths)) != (len(indexes), len(words)) or not all(map(ids.is_one, alone)):
        raise ValueError(f"chunk {number}: its parts do not fit its {len(slabs)} slabs")
    anchors, at = list[int](), 0
    for slab, count in zip(slabs, sparse, strict=False):
        anchors += [ids.anchor_at(slab, index) for index in indexes[at : at + count]]
        at += count
    at = 0
    for slab, length in zip(slabs[len(sparse) :], lengths, strict=False):
        anchors += [ids.anchor_at(slab, index) for index in np.flatnonzero(words[at : at + length]).tolist()]
        at += length
    return anchors + [ids.anchor_at(slab, 0) for slab in alone]


def fail(core: Core, place: VectorKey, reason: str) -> Operation[int]:
    """Fails all trees that staged vectors are for, and drops the vectors; returns how many trees.

    It can be called again: what was done is noted with the vectors, which go when all is. A tombstone of them
    stays.
    """
    anchors = yield from trees(core, place)
    if len(anchors):
        yield from acks.fail_once(core, [place], anchors, [Cause(reason).text()] * len(anchors))
    yield from bury(core, [place])
    return len(anchors)


def bury(core: Core, places: Iterable[VectorKey]) -> Operation[None]:
    """Drops vectors whose trees are over; a tombstone stays, by which late copies of calls know them."""
    yield [scripts.leave_tombstone(core.shards[shard], key, MARGIN) for key, shard in places]


def finish(core: Core, looks: dict[VectorKey, str]) -> Operation[None]:
    """Acks hashes that are full, and fails the trees of void ones. looks: what their shards said of them."""
    full = [place for place, letter in looks.items() if letter == "f"]
    if full:
        yield from vectors.apply(core, full, "2")
    for place in [place for place, letter in looks.items() if letter == "v"]:
        yield from fail(
            core, place, "tuples that rows of its segment were made into were dropped: they waited too long"
        )
