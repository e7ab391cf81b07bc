"""The scripts of staged data as functions (see acker/streams/log/scripts.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR
of tuple ids; roots are rows of a spout that were staged together, and get a tree each; a chunk is a piece of
a vector, applied by one call; staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acker.ledger.calls.calls import Call
from acker.ledger.calls.marks import Mark
from acker.ledger.settings.config import TopologyConfig
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.operation import Request, Word, script


def stage(key: bytes, ttl: int, fields: Mapping[str, bytes | str]) -> Request:
    """Stages a hash, if there is none."""
    return script("stage", [key], [ttl, *chain.from_iterable(fields.items())])


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk of staged vectors.

    Attributes:
        staged: Its hash.
        number: Its number in the hash.
        slabs: Its slabs of many trees.
        ones: Its slabs of one tree.
        left: The trees of its slabs that are not acked (acker/streams/staging/skipped.py); None if all are.
    """

    staged: bytes
    number: int
    slabs: Sequence[bytes]
    ones: Sequence[bytes]
    left: Mapping[bytes, bytes] | None = None


def apply_staged(
    config: TopologyConfig,
    shard: Shard,
    chunks: Sequence[StagedChunk],
    *,
    to: str,
    applied: bytes | None = None,
    needed: str = "",
    by: Mark | None = None,
    stay: int = 0,
) -> Call:
    """Brings chunks to a state.

    applied, needed: the work that a commit needs in the shard. by: the step that acks.
    stay: ms for which emits wait for their track; 0 for three rotations.
    """
    declared = [shard.early_rows, *([] if applied is None else [applied])]
    declared += [] if by is None else shard.of_steps
    args: list[Word] = [to, config.waiting_bytes, needed, b"" if by is None else by.packed()]
    args += [config.outcomes_kept, stay]
    for chunk in chunks:
        declared += [chunk.staged, *shard.vectors(chunk.slabs)]
        each = [chunk.left.get(slab, b"") for slab in (*chunk.slabs, *chunk.ones)] if chunk.left else ()
        packed = b"".join(len(part).to_bytes(2, "little") + part for part in each) if any(each) else b""
        args += [chunk.number, len(chunk.slabs), len(chunk.ones), packed, *chunk.ones]
    return Call(shard.number, scripts.get("apply_staged"), declared, args, waits=True)


def stage_rows(key: bytes, ttl: int, rows: bytes) -> Request:
    """Stages the rows of a segment, or of roots, if there are none."""
    return script("stage_rows", [key], [ttl, rows])


def extend_staged(staged: Sequence[bytes], ttl: int) -> Request:
    """Gives staged data of a commit another time to live."""
    return script("extend_staged", staged, [ttl])


def check_staged(staged: Sequence[bytes]) -> Request:
    """Says whether vectors of a shard are still staged."""
    return script("check_staged", staged, [])


def note_applied(config: TopologyConfig, applied: bytes, name: str, ttl: int) -> Request:
    """Notes in a shard that a commit has made something elsewhere."""
    return script("note_applied", [applied], [name, ttl], config.wait)


def record_effects(
    count: bytes, effects: bytes, latest: bytes, turn: tuple[int, int], number: int, digests: Sequence[bytes]
) -> Request:
    """Records effects. count, effects, latest: keys of a generation, and of the commit's writer.

    turn: the ms that a generation takes, and which one it is. number: of the commit.
    """
    return script("record_effects", [count, effects, latest], [*turn, number, *digests])


def keep_results(staged: bytes, results: Sequence[bytes], ttl: int, anchors: Sequence[str]) -> Request:
    """Applies staged results, by anchor."""
    return script("keep_results", [staged, *results], [ttl, *anchors])
